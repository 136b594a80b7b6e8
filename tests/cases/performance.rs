//! How often an event is asked.

use std::time::Duration;

use futures::executor::block_on;
use inflight::{Device, LinkModel};

#[test]
fn a_copy_is_asked_after_a_few_times_however_long_it_takes_b112() {
    const COPIES: u64 = 5;
    for milliseconds in [1, 100] {
        let link = LinkModel { bytes_per_second: 1e12, latency: Duration::from_millis(milliseconds) };
        let device = Device::builder().host().link_model(link).build().unwrap();
        let before = device.stats().polls;
        for _ in 0..COPIES {
            drop(block_on(async { device.transfer(("x", vec![1_u8; 4096])).await?.await }).unwrap());
        }
        block_on(device.drain()).unwrap();
        let each = (device.stats().polls - before) / COPIES;
        println!("{each} questions for a copy of {milliseconds} ms");
        assert!((1..=300).contains(&each), "{each} questions for a copy of {milliseconds} ms");
    }
}
