//! What a test stands on: a device of each backend, and a way to let it get on.

#[path = "../support/driver.rs"]
#[expect(dead_code, reason = "other tests steer the stand-in")]
mod driver;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use inflight::sim::Simulator;
use inflight::{ComputeStream, Device, DeviceBatch, DeviceBuilder, Element, Error, HostStream};
use ndarray::ArrayD;

/// A device whose work gets done by itself: the host's, or a simulated one that a thread drives.
pub(crate) struct Bed {
    pub(crate) device: Device,
    stop: Arc<AtomicBool>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Runs `test` on every backend: those without hardware, and CUDA's where there is a driver or the stand-in for one.
pub(crate) fn on_each<F: Future<Output = ()>>(
    settings: impl Fn(DeviceBuilder<'static>) -> DeviceBuilder<'static>,
    test: impl Fn(Arc<Bed>) -> F,
) {
    on_hosts(&settings, &test);
    if !matches!(driver::driver(), driver::Driver::None) {
        let device = settings(Device::builder().cuda(0)).build().unwrap();
        block_on(test(Arc::new(Bed { device, stop: Arc::default() })));
    }
}

/// Runs `test` on the host backend, on it with every copy on its thread, and on the simulator.
pub(crate) fn on_hosts<F: Future<Output = ()>>(
    settings: impl Fn(DeviceBuilder<'static>) -> DeviceBuilder<'static>,
    test: impl Fn(Arc<Bed>) -> F,
) {
    let slow = inflight::LinkModel { bytes_per_second: 1e10, latency: Duration::from_micros(20) };
    for builder in [Device::builder().host(), Device::builder().host().link_model(slow)] {
        let device = settings(builder).build().unwrap();
        block_on(test(Arc::new(Bed { device, stop: Arc::default() })));
    }
    let sim = Simulator::with(&settings).unwrap();
    sim.poison(true);
    let bed = Bed { device: sim.device().clone(), stop: Arc::default() };
    let (stop, driven) = (bed.stop.clone(), sim.clone());
    let driver = std::thread::spawn(move || {
        while !stop.load(Ordering::Acquire) {
            if !driven.complete_next() {
                std::thread::yield_now();
            }
        }
    });
    block_on(test(Arc::new(bed)));
    driver.join().unwrap();
    assert_eq!(sim.counters().unrecorded_queries, 0, "invariant 5: no event is asked before it is recorded");
}

/// A simulated device whose every step the test takes.
pub(crate) fn by_hand(memory_bytes: usize) -> Simulator {
    let sim = Simulator::with(|builder| builder.memory_bytes(memory_bytes)).unwrap();
    sim.poison(true);
    sim
}

pub(crate) fn host_stream(device: &Device) -> HostStream {
    match device.compute_stream().unwrap() {
        ComputeStream::Host(stream) => stream,
        other => panic!("{other:?} on a host device"),
    }
}

/// Waits for what another thread is about to do.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "never came true: {what}");
        std::thread::yield_now();
    }
}

/// Bytes that tell which batch and which place they are.
pub(crate) fn pattern(batch: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (batch * 31 + place * 7 + place / 251) as u8).collect()
}

/// A field as it is on the device: read in place where that is the host, else read back.
pub(crate) async fn on_host<T: Element>(batch: &DeviceBatch, name: &str) -> ArrayD<T> {
    let field = batch.field(name).unwrap();
    match field.as_host::<T>() {
        Ok(view) => view.to_owned(),
        Err(Error::Unsupported { .. }) => field.read_back::<T>().unwrap().await.unwrap().to_owned(),
        Err(error) => panic!("{error}"),
    }
}

/// The elements of an array, in logical order.
pub(crate) fn elements<T: Copy>(array: &ndarray::ArrayRef<T, ndarray::IxDyn>) -> Vec<T> {
    array.iter().copied().collect()
}
