//! Cases of others' failures that no test of a behaviour repeats: one file a group. The table of all is in
//! `tests/README.md`; the names end with the cases' numbers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

#[path = "../conformance/bed.rs"]
mod bed;
mod cancellation;
mod determinism;
mod device_memory;
mod dtypes;
mod errors;
mod files;
mod hangs;
mod host_memory;
mod ordering;
mod performance;
mod pressure;
mod shapes;

use inflight::DeviceBatch;
use inflight::sim::Simulator;

/// Sends one batch to a device that is driven by hand, and lets it arrive.
fn arrived(sim: &Simulator, bytes: Vec<u8>) -> DeviceBatch {
    use futures::FutureExt;
    let transfer = sim.device().try_transfer(("x", bytes)).unwrap();
    while sim.complete_field("x") {}
    transfer.now_or_never().unwrap().unwrap()
}

/// A device that is driven by hand and quickly made.
fn small() -> Simulator {
    let sim = Simulator::with(|builder| builder.memory_bytes(1 << 20).staging_bytes(64 << 10)).unwrap();
    sim.poison(true);
    sim
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}
