//! What a model stands on: the checker, threads, a way to wait, and devices.

use std::sync::Arc;

#[cfg(inflight_loom)]
pub(super) use loom::{future::block_on, thread};
#[cfg(inflight_shuttle)]
pub(super) use shuttle::{future::block_on, thread};

use crate::backend::sim::SimBackend;
use crate::device::{DeviceBuilder, DeviceKind};
use crate::sim::Simulator;
use crate::{ComputeStream, Device, HostStream};

/// Runs a model in all ways in which a thread is interrupted at most twice where it need not wait. Most mistakes show so.
pub(super) fn check(model: impl Fn() + Send + Sync + 'static) {
    check_with(2, model);
}

/// Runs it with another bound on interruptions: where a model is large, or small enough for more.
///
/// `INFLIGHT_INTERRUPTIONS` says how many more there may be, for those who have hours.
#[cfg(inflight_loom)]
pub(super) fn check_with(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let more = std::env::var("INFLIGHT_INTERRUPTIONS").ok().and_then(|text| text.parse().ok());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions + more.unwrap_or(0));
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Runs it in many ways at random; `INFLIGHT_WAYS` says how many.
#[cfg(inflight_shuttle)]
pub(super) fn check_with(_interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    const WAYS: usize = 2_000;
    let ways = std::env::var("INFLIGHT_WAYS").ok().and_then(|text| text.parse().ok()).unwrap_or(WAYS);
    shuttle::check_random(model, ways);
}

fn small(builder: DeviceBuilder<'static>) -> DeviceBuilder<'static> {
    // No slots for reads are made beforehand: each would be steps of every way.
    builder.memory_bytes(8 << 10).staging_bytes(4 << 10).readback_bytes(1 << 10).pinned_bytes(1 << 10)
}

/// A simulated device that the model drives.
pub(super) fn by_hand() -> Simulator {
    by_hand_with(|builder| builder)
}

/// The same with other settings.
pub(super) fn by_hand_with(settings: fn(DeviceBuilder<'static>) -> DeviceBuilder<'static>) -> Simulator {
    let sim = Simulator::with(|builder| settings(small(builder))).unwrap();
    sim.poison(true);
    sim
}

/// A device whose work is done as soon as it is enqueued, with a reactor and so many staging threads.
pub(super) fn at_once(threads: usize) -> Device {
    at_once_with_driver(threads).0
}

/// The same with its driver, whose calls can be made to fail.
pub(super) fn at_once_with_driver(threads: usize) -> (Device, Arc<SimBackend>) {
    let backend = Arc::new(SimBackend::at_once().unwrap());
    (built_on(&backend, small(Device::builder()).staging_threads(threads)), backend)
}

/// The same as `at_once` with other settings as well.
pub(super) fn at_once_with(threads: usize, settings: fn(DeviceBuilder<'static>) -> DeviceBuilder<'static>) -> Device {
    let backend = Arc::new(SimBackend::at_once().unwrap());
    built_on(&backend, settings(small(Device::builder()).staging_threads(threads)))
}

fn built_on(backend: &Arc<SimBackend>, builder: DeviceBuilder<'static>) -> Device {
    builder.build_on(backend.clone(), "model".to_owned(), DeviceKind::Simulated).unwrap()
}

pub(super) fn compute_stream(device: &Device) -> HostStream {
    match device.compute_stream().unwrap() {
        ComputeStream::Host(stream) => stream,
        #[cfg(feature = "cuda")]
        other => panic!("{other:?} on a simulated device"),
    }
}

/// Whether all that a simulated device gave out has come back.
pub(super) fn all_is_back(sim: &Simulator) {
    sim.complete_all();
    let stats = sim.device().stats();
    assert_eq!((stats.device_used, stats.limbo_blocks, stats.operations, stats.readback_used), (0, 0, 0, 0));
    assert_eq!(sim.counters().unrecorded_queries, 0, "invariant 5");
    sim.device().trim();
    assert_eq!(sim.counters().live_device_bytes, 0);
}
