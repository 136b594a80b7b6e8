//! Small batches that wait for each other: each is enqueued, whoever comes first (invariants 1, 7 and 11).

use futures::FutureExt;

use super::bed::{all_is_back, by_hand_with, check, thread};
use crate::sim::Simulator;
use crate::{HostBatch, batch};

fn made(fill: u8) -> HostBatch {
    batch! { x: vec![fill; 100] }
}

/// A device with blocks for two small batches, as many as a model has operations, the first of which is on its way.
fn busy() -> (Simulator, crate::Transfer) {
    let sim = by_hand_with(|builder| builder.batches_per_call(3));
    let blocks: Vec<_> = (0..2).map(|_| sim.device().try_transfer(made(0)).unwrap()).collect();
    sim.complete_all();
    drop(blocks);
    let first = sim.device().try_transfer(made(1)).unwrap();
    (sim, first)
}

#[test]
fn what_waits_is_enqueued_when_the_link_runs_dry_whoever_sees_it() {
    check(|| {
        let (sim, first) = busy();
        let other = sim.clone();
        let completing = thread::spawn(move || {
            assert!(other.complete_next());
            drop(first);
        });
        let mut second = sim.device().try_transfer(made(2)).unwrap();
        let _ = (&mut second).now_or_never();
        completing.join().unwrap();
        sim.complete_all();
        assert!(second.now_or_never().unwrap().is_ok(), "it was never enqueued");
        all_is_back(&sim);
    });
}

#[test]
fn a_loss_while_they_wait_resolves_them() {
    check(|| {
        let (sim, first) = busy();
        let mut second = sim.device().try_transfer(made(2)).unwrap();
        let other = sim.clone();
        let failing = thread::spawn(move || assert!(other.fail_next(700)));
        if let Some(resolved) = (&mut second).now_or_never() {
            assert!(resolved.unwrap_err().is_fatal());
            failing.join().unwrap();
        } else {
            failing.join().unwrap();
            sim.complete_all();
            assert!(second.now_or_never().unwrap().unwrap_err().is_fatal());
        }
        assert!(first.now_or_never().unwrap().is_err());
    });
}
