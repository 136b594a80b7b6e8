//! The 128⁴ array of doubles, 2.15 GB, through a ring of 64 MiB in pieces. Needs 4.4 GB of memory.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::time::Duration;

use futures::executor::block_on;
use inflight::{Device, HostArray, LinkModel};

#[test]
fn a_batch_of_two_gigabytes_goes_through_the_ring_in_pieces() {
    const SIDE: usize = 128;
    // Without a link to go over there is no ring.
    let link = LinkModel { bytes_per_second: f64::INFINITY, latency: Duration::ZERO };
    let device =
        Device::builder().host().link_model(link).staging_bytes(64 << 20).memory_bytes(3 << 30).build().unwrap();
    let elements: Vec<f64> = (0..SIDE.pow(4)).map(|n| n as f64).collect();
    let array = HostArray::from(ndarray::Array::from_shape_vec((SIDE, SIDE, SIDE, SIDE), elements).unwrap());
    assert_eq!(array.bytes(), 2_147_483_648);
    let batch = block_on(async { device.transfer(("x", array)).await?.await }).unwrap();
    let stats = device.stats();
    assert_eq!((stats.bytes_sent, stats.bytes_staged), (2_147_483_648, 2_147_483_648));
    assert_eq!(stats.copies_sent, 512, "chunks of 4 MiB");
    let x = batch.field("x").unwrap();
    assert_eq!(x.shape(), [SIDE; 4]);
    let x = x.as_host::<f64>().unwrap();
    assert!(x.as_slice().unwrap().iter().enumerate().all(|(n, x)| *x == n as f64));
}
