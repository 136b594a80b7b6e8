//! How many batches are ahead of the consumer (invariant 2).

use futures::{StreamExt, stream};
use inflight::BatchStreamExt;
use tokio_test::{assert_pending, assert_ready, task};

use crate::bed::by_hand;

#[test]
fn invariant_02_a_copy_starts_when_the_transfer_is_made() {
    let sim = by_hand(1 << 20);
    let mut transfers = task::spawn(stream::iter([("x", vec![1_u8; 8])]).to_device(sim.device()));
    let transfer = assert_ready!(transfers.poll_next());
    assert_eq!(sim.pending().len(), 1, "under way before its first poll");
    drop(transfer);
}

#[test]
fn invariant_02_a_large_copy_starts_when_the_transfer_is_made() {
    let sim = by_hand(1 << 20);
    let before = sim.counters();
    // It needs a block and goes through staging threads, which nobody wakes later.
    let transfer = sim.device().try_transfer(("x", vec![1_u8; 100_000])).unwrap();
    assert_eq!(sim.counters().copies_submitted, before.copies_submitted + 1);
    drop(transfer);
}

#[test]
fn invariant_02_depth_n_keeps_n_minus_one_ahead_b31_b64() {
    for depth in [1, 2, 4, 8] {
        let sim = by_hand(64 << 20);
        let source = stream::iter((0..20).map(|n| ("x", vec![n as u8; 4096])));
        let mut batches = task::spawn(source.to_device(sim.device()).named("train").buffered(depth));
        let mut ahead = Vec::new();
        for taken in 1..=20 {
            while batches.poll_next().is_pending() {
                assert!(sim.complete_next());
            }
            // The consumer computes now: all that is under way arrives, and nothing polls the stream.
            let submitted = sim.counters().copies_submitted;
            sim.complete_all();
            ahead.push(submitted - taken);
        }
        let steady = &ahead[..20 - depth];
        assert!(steady.iter().all(|ahead| *ahead == depth as u64 - 1), "depth {depth}: {ahead:?}");
        assert_eq!(*ahead.last().unwrap(), 0);
        let stats = sim.device().stats();
        let row = stats.pipeline("train").unwrap();
        assert_eq!((row.name.as_str(), row.batches, row.bytes, row.peak_in_flight), ("train", 20, 20 * 4096, depth));
        assert_eq!(row.in_flight, 0);
    }
}

#[test]
fn no_more_than_the_depth_is_in_flight_behind_a_slow_head_b63() {
    let sim = by_hand(64 << 20);
    let source = stream::iter((0..20).map(|n| ("x", vec![n as u8; 4096])));
    let mut batches = task::spawn(source.to_device(sim.device()).buffered(4));
    assert_pending!(batches.poll_next());
    assert_pending!(batches.poll_next());
    assert_eq!(sim.counters().copies_submitted, 4);
}

#[test]
fn a_huge_depth_allocates_nothing_up_front_b65() {
    for depth in [10_000, usize::MAX] {
        let sim = by_hand(8 * 1024);
        let source = stream::iter((0..8).map(|n| ("x", vec![n as u8; 1024])));
        // `buffered` itself allocates nothing; `usize::MAX` is its own business.
        let mut batches = task::spawn(source.to_device(sim.device()).buffered(depth));
        let mut got = 0;
        while got < 8 {
            match batches.poll_next() {
                std::task::Poll::Ready(batch) => {
                    batch.unwrap().unwrap();
                    got += 1;
                }
                std::task::Poll::Pending => assert!(sim.complete_next()),
            }
            assert!(sim.counters().live_device_bytes <= 8 * 1024);
        }
    }
}
