//! Memory, blocks and events that must not grow.

use futures::{FutureExt, StreamExt, stream};
use inflight::sim::Simulator;
use inflight::{BatchStreamExt, HostArray};
use ndarray::s;
use tokio_test::{assert_pending, task};

use crate::Numbers;
use crate::bed::by_hand;

#[test]
fn a_thousand_batches_of_random_sizes_take_no_more_page_locked_memory_b59_b62() {
    const MOST: usize = (4 << 20) + 1;
    let sim = Simulator::with(|builder| builder.staging_bytes(62 << 20).memory_bytes(256 << 20)).unwrap();
    let data = HostArray::from(vec![7_u8; MOST]);
    let mut numbers = Numbers(59);
    let sizes: Vec<_> = (0..1000).map(|_| 1 + numbers.below(MOST)).collect();
    let source = stream::iter(sizes.iter().map(|bytes| ("x", data.slice(s![..*bytes]).unwrap())));
    let mut batches = task::spawn(source.to_device(sim.device()).buffered(4));
    let page_locked = sim.counters().live_pinned_bytes;
    assert!(page_locked <= 64 << 20, "the ring, and slots for small read-backs: {page_locked}");
    let mut half_time = 0;
    for (n, bytes) in sizes.iter().enumerate() {
        let batch = loop {
            match batches.poll_next() {
                std::task::Poll::Ready(batch) => break batch.unwrap().unwrap(),
                std::task::Poll::Pending => assert!(sim.complete_next()),
            }
        };
        assert_eq!(batch.rows(), Some(*bytes));
        let (stats, counters) = (sim.device().stats(), sim.counters());
        assert_eq!(counters.live_pinned_bytes, page_locked, "after batch {n}");
        assert!(counters.live_device_bytes <= 256 << 20 && stats.device_peak <= 5 * (MOST + MOST / 8));
        if n == 500 {
            half_time = counters.allocations;
        }
    }
    let later = sim.counters().allocations - half_time;
    assert!(later <= 20, "{half_time} blocks by half-time, {later} more");
}

#[test]
fn a_stalled_head_holds_the_depth_and_its_peak_is_reported_b63() {
    let sim = by_hand(64 << 20);
    let source = stream::iter((0..20).map(|n| ("x", vec![n as u8; 4096])));
    let mut batches = task::spawn(source.to_device(sim.device()).named("train").buffered(4));
    for _ in 0..3 {
        assert_pending!(batches.poll_next());
    }
    let stats = sim.device().stats();
    let row = stats.pipeline("train").unwrap();
    assert_eq!((row.batches, row.in_flight, row.peak_in_flight, row.device_bytes), (4, 4, 4, 4 * 4096));
    assert_eq!((stats.device_used, stats.device_peak), (4 * 4096, 4 * 4096));
    assert_eq!(sim.counters().copies_submitted, 4);
}

#[test]
fn events_are_used_again_by_whatever_becomes_of_transfers_b67() {
    let sim = by_hand(1 << 20);
    let mut most = 0;
    for n in 0..100_000_usize {
        let transfer = sim.device().try_transfer(("x", [1_u8; 64])).unwrap();
        match n % 4 {
            0 => drop(transfer),
            1 => assert!(sim.fail_next(1)),
            2 => drop(transfer.early().now_or_never().unwrap().unwrap().read_back()),
            _ => {}
        }
        sim.complete_all();
        most = most.max(sim.counters().live_events);
    }
    assert!(most <= 8, "{most} events at once");
    assert_eq!(sim.device().stats().device_used, 0);
}
