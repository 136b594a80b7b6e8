//! The host backend's memory is the host's own: staging threads write batches straight into it.

use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Device, HostArray, LinkModel, Route, batch};
use ndarray::Array2;

use crate::bed::{elements, on_host, pattern};

/// More than is left in a processor's own cache.
const LARGE: usize = 20 << 20;

#[test]
fn what_is_written_in_place_arrives_as_it_is() {
    let device = Device::builder().host().staging_bytes(4096).build().unwrap();
    let rows = Array2::from_shape_fn((300, 5000), |(row, column)| (row * 31 + column) as u16);
    let picked: Vec<_> = (0..600).map(|row| row * 7 % 300).collect();
    let (bytes, odd) = (pattern(1, LARGE), pattern(2, LARGE + 77));
    let sent = batch! {
        plain: bytes.clone(),
        odd: odd.clone(),
        picked: HostArray::from(rows.clone()).select_rows(&picked).unwrap(),
        wide: HostArray::from(rows.clone()).cast::<f64>(),
        turned: HostArray::from(rows.clone()).permuted_axes([1, 0]).unwrap(),
        small: [1_u8, 2, 3],
    };
    let told = device.explain(&sent).unwrap();
    assert!(told.fields.iter().all(|field| field.route == Route::Written), "{told}");
    assert_eq!(told.fields[0].staged_bytes, LARGE);
    let batch = block_on(device.try_transfer(sent).unwrap()).unwrap();
    assert_eq!(batch.explain(), told);
    assert_eq!(elements(&block_on(on_host::<u8>(&batch, "plain"))), bytes);
    assert_eq!(elements(&block_on(on_host::<u8>(&batch, "odd"))), odd);
    let expected: Vec<_> = picked.iter().flat_map(|row| rows.row(*row).to_vec()).collect();
    assert_eq!(elements(&block_on(on_host::<u16>(&batch, "picked"))), expected);
    assert!(
        block_on(on_host::<f64>(&batch, "wide")).iter().zip(&rows).all(|(wide, narrow)| *wide == f64::from(*narrow))
    );
    assert!(block_on(on_host::<u16>(&batch, "turned")).iter().eq(rows.t().iter()));
    assert_eq!(elements(&block_on(on_host::<u8>(&batch, "small"))), [1, 2, 3]);
}

#[test]
fn a_modelled_link_is_taken_by_way_of_the_ring() {
    let link = LinkModel { bytes_per_second: 1e12, latency: std::time::Duration::ZERO };
    let device = Device::builder().host().link_model(link).build().unwrap();
    assert_eq!(device.explain(&batch! { x: [1_u8; 100] }).unwrap().fields[0].route, Route::Staged);
    let batches: Vec<_> = (0..20).map(|n| pattern(n, 1 + n * 99_991)).collect();
    let source = stream::iter(batches.clone()).map(|bytes| ("x", bytes));
    let arrived: Vec<_> = block_on(source.to_device(&device).buffered(4).try_collect()).unwrap();
    for (batch, bytes) in arrived.iter().zip(batches) {
        assert_eq!(elements(&block_on(on_host::<u8>(batch, "x"))), bytes);
    }
}

/// How many batches of a pipeline had memory at once.
fn peak() -> usize {
    const BYTES: usize = 5 << 20;
    let device = Device::builder().host().staging_threads(2).build().unwrap();
    let array = HostArray::from(vec![7_u8; BYTES]);
    let source = stream::iter((0..100).map(|_| ("x", array.clone())));
    block_on(source.to_device(&device).buffered(3).try_for_each(|_| std::future::ready(Ok(())))).unwrap();
    device.stats().device_peak / BYTES
}

#[test]
fn batches_that_are_through_keep_no_memory() {
    // Three under way, one in hand, and what each thread has just done; more where a thread is held up.
    let peaks: Vec<_> = (0..8).map(|_| peak()).collect();
    assert!(peaks.iter().any(|peak| *peak <= 6), "so many batches had memory at once: {peaks:?}");
}
