//! Budgets, floors, and who waits for whom (invariants 9 and 10).

use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::sim::Simulator;
use inflight::{BatchStreamExt, Error, HostBatch, ToDevice};
use tokio_test::{assert_pending, task};

use crate::bed::{by_hand, on_each, pattern};

const BATCH: usize = 64 << 10;

fn source(count: usize) -> impl futures::Stream<Item = HostBatch> + Unpin {
    stream::iter((0..count).map(|n| HostBatch::new().with("x", pattern(n, BATCH))))
}

#[test]
fn invariant_09_ten_thousand_batches_without_awaiting_any_stay_in_the_budget_b62() {
    let sim = by_hand(16 * BATCH);
    let mut transfers = task::spawn(source(10_000).to_device(sim.device()));
    let mut kept = Vec::new();
    while let std::task::Poll::Ready(Some(transfer)) = transfers.poll_next() {
        kept.push(transfer);
        assert!(sim.counters().live_device_bytes <= 16 * BATCH);
    }
    assert_eq!(kept.len(), 15, "one batch of sixteen is left for another pipeline");
    assert_eq!(sim.device().stats().device_used, 15 * BATCH);
}

#[test]
fn invariant_09_random_sizes_stay_in_the_budget_and_allocate_no_more_after_a_while_b59_b110() {
    on_each(
        |builder| builder.memory_bytes(64 << 20),
        |bed| async move {
            let sizes = (0..1000_usize).map(|n| 1024 + n * 7919 % (256 << 10));
            let source = stream::iter(sizes.map(|bytes| ("x", vec![1_u8; bytes])));
            let mut batches = source.to_device(&bed.device).buffered(4);
            let mut after_warm_up = 0;
            for n in 0..1000 {
                batches.try_next().await.unwrap().unwrap();
                let stats = bed.device.stats();
                assert!(stats.device_used + stats.device_idle <= 64 << 20);
                if n == 500 {
                    after_warm_up = stats.device_allocations;
                }
            }
            let end = bed.device.stats().device_allocations;
            assert!(end - after_warm_up <= 20, "{after_warm_up} blocks by half-time, {end} at the end");
        },
    );
}

#[test]
fn equal_batches_allocate_nothing_in_steady_state_b110() {
    on_each(
        |builder| builder,
        |bed| async move {
            let mut batches = source(1000).to_device(&bed.device).buffered(4);
            let mut warm = 0;
            for n in 0..1000 {
                batches.try_next().await.unwrap().unwrap();
                if n == 20 {
                    warm = bed.device.stats().device_allocations;
                }
            }
            assert!(bed.device.stats().device_allocations <= warm + 1);
            assert!(warm <= 8, "a block for each that is in flight: {warm}");
        },
    );
}

#[test]
fn invariant_10_zip_of_two_pipelines_goes_on() {
    for batches in [2, 3, 4, 8] {
        on_each(
            |builder| builder.memory_bytes(batches * BATCH),
            |bed| async move {
                let left = source(20).to_device(&bed.device).buffered(4);
                let right = source(20).to_device(&bed.device).buffered(4);
                assert_eq!(left.zip(right).count().await, 20);
            },
        );
    }
}

#[test]
fn invariant_10_an_evaluation_loop_inside_the_training_loop_goes_on() {
    for batches in [2, 3, 4, 6] {
        on_each(
            |builder| builder.memory_bytes(batches * BATCH).admission_timeout(Duration::from_secs(10)),
            |bed| async move {
                let mut train = source(6).to_device(&bed.device).buffered(4);
                while let Some(batch) = train.try_next().await.unwrap() {
                    let evaluated = source(3).to_device(&bed.device).buffered(2).map(Result::unwrap).count().await;
                    assert_eq!((evaluated, batch.rows()), (3, Some(BATCH)));
                }
            },
        );
    }
}

#[test]
fn invariant_10_chunks_beyond_the_budget_are_warned_of_and_end_in_an_error() {
    let settings = |builder: inflight::DeviceBuilder<'static>| {
        builder.memory_bytes(4 * BATCH).admission_timeout(Duration::from_secs(30))
    };
    let sim = Simulator::with(settings).unwrap();
    let mut chunks = task::spawn(source(8).to_device(sim.device()).named("train").buffered(4).chunks(8));
    for _ in 0..10 {
        assert_pending!(chunks.poll_next());
        sim.complete_all();
    }
    assert_eq!(sim.device().stats().overdue_waits, 0);
    sim.advance(Duration::from_secs(5));
    assert_eq!(sim.device().stats().overdue_waits, 1, "it is said who holds what");
    sim.advance(Duration::from_secs(25));
    assert!(chunks.is_woken());
    let mut first = None;
    for _ in 0..20 {
        if let std::task::Poll::Ready(Some(chunk)) = chunks.poll_next() {
            first = chunk.into_iter().find_map(Result::err);
            break;
        }
        sim.complete_all();
        sim.advance(Duration::from_secs(30));
    }
    let error = first.expect("an error instead of a hang");
    let Error::AdmissionTimeout { pipeline, bytes, holders, .. } = &error else { panic!("{error}") };
    assert_eq!((pipeline.as_str(), *bytes), ("train", BATCH));
    assert!(holders.contains("\"train\" 196608 bytes"), "{holders}");
    assert!(error.take_batch().is_some());
}

#[test]
fn invariant_10_a_floor_that_does_not_fit_is_an_error_at_once() {
    let sim = by_hand(3 * BATCH);
    let mut one = task::spawn(stream::iter([("x", vec![0_u8; 2 * BATCH])]).to_device(sim.device()));
    let kept = one.poll_next();
    assert!(kept.is_ready());
    let mut two = task::spawn(stream::iter([("x", vec![0_u8; 2 * BATCH])]).to_device(sim.device()).named("eval"));
    let std::task::Poll::Ready(Some(transfer)) = two.poll_next() else { panic!("it waits for ever") };
    let error = transfer.now_or_never().unwrap().unwrap_err();
    assert!(matches!(&error, Error::FloorTooLarge { pipeline, .. } if pipeline == "eval"), "{error}");
    assert_eq!(error.take_batch().unwrap().bytes(), 2 * BATCH);
}

#[test]
fn invariant_10_a_dropped_waiter_passes_its_wake_on() {
    let sim = by_hand(BATCH);
    let device = sim.device().clone();
    let held = device.try_transfer(("x", vec![1_u8; BATCH])).unwrap();
    let send = || {
        let device = device.clone();
        task::spawn(async move { device.transfer(("x", vec![2_u8; BATCH])).await })
    };
    let (mut first, mut second) = (send(), send());
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    sim.complete_all();
    drop(held);
    sim.pending();
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    assert!(second.is_woken());
    assert!(second.poll().is_ready());
}

#[test]
fn back_pressure_reaches_the_source() {
    let sim = by_hand(4 * BATCH);
    let taken = std::cell::Cell::new(0);
    let counted = source(100).inspect(|_| taken.set(taken.get() + 1));
    let mut batches: task::Spawn<stream::Buffered<ToDevice<_>>> =
        task::spawn(counted.to_device(sim.device()).buffered(50));
    for _ in 0..5 {
        assert_pending!(batches.poll_next());
    }
    assert_eq!(taken.get(), 4, "three on their way, one in hand");
}

#[test]
fn try_transfer_gives_the_batch_back_where_there_is_no_room() {
    let sim = by_hand(BATCH);
    let _held = sim.device().try_transfer(("x", vec![1_u8; BATCH])).unwrap();
    let error = sim.device().try_transfer(("x", vec![2_u8; BATCH])).unwrap_err();
    assert_eq!(error.to_string(), "no room for 65536 bytes in the device memory right now");
    assert_eq!(error.take_batch().unwrap().bytes(), BATCH);
}

#[test]
fn the_three_page_locked_budgets_are_separate() {
    let sim = Simulator::with(|builder| builder.pinned_bytes(64 << 10).readback_bytes(64 << 10)).unwrap();
    let device = sim.device();
    let first = device.pinned::<u8, _>(64 << 10).now_or_never().unwrap().unwrap();
    let mut second = task::spawn(device.pinned::<u8, _>(1));
    assert_pending!(second.poll());
    let transfer = device.try_transfer(("x", vec![1_u8; 1 << 20])).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
    assert!(matches!(read.now_or_never(), Some(Err(Error::OutOfMemory { .. }))), "more than the budget of reads");
    drop(first);
    assert!(second.is_woken());
    assert!(second.poll().is_ready());
    let error = device.pinned::<u8, _>((64 << 10) + 1).now_or_never().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("out of page-locked memory (pinned_bytes) on simulated:"), "{error}");
}

#[test]
fn invariant_09_blocks_that_were_given_up_are_freed_before_any_other_is_allocated() {
    let sim = Simulator::with(|builder| builder.memory_bytes(24 * BATCH).staging_bytes(4 * BATCH)).unwrap();
    let send = |batches: usize| sim.device().try_transfer(("x", vec![1_u8; batches * BATCH])).unwrap();
    let before = [send(7), send(7)];
    sim.complete_all();
    drop(before);
    assert_eq!(sim.device().stats().device_idle, 14 * BATCH);
    let fills_the_ring = send(8);
    assert_eq!(sim.pending().len(), 4, "half of it is in the ring");
    let waits_behind = send(3);
    assert_eq!(sim.device().stats().device_idle, 7 * BATCH, "one block was given up for it");
    let mut other = task::spawn(stream::iter([("x", vec![3_u8; 6 * BATCH])]).to_device(sim.device()));
    let other = other.poll_next();
    assert!(other.is_ready() && sim.counters().live_device_bytes <= 24 * BATCH, "{:?}", sim.counters());
    drop((fills_the_ring, waits_behind, other));
}

#[test]
fn invariant_10_a_batch_that_waits_for_more_than_there_is_takes_nobodys_floor() {
    let sim = by_hand(16 * BATCH);
    let mut small = task::spawn(source(3).to_device(sim.device()));
    assert!(small.poll_next().is_ready());
    let held = sim.device().try_transfer(("x", vec![1_u8; 4 * BATCH])).unwrap();
    let mut large = task::spawn(stream::iter([("x", vec![2_u8; 12 * BATCH])]).to_device(sim.device()));
    sim.complete_all();
    assert_pending!(large.poll_next());
    assert!(small.poll_next().is_ready(), "what it had before is its own");
    sim.complete_all();
    drop(held);
    sim.complete_all();
    assert!(large.is_woken() && large.poll_next().is_ready());
}

#[test]
fn invariant_10_a_pipeline_that_shows_how_little_it_needs_wakes_those_who_kept_more_for_it() {
    let sim = by_hand(16 * BATCH);
    let mut much = task::spawn(source(16).to_device(sim.device()));
    let mut little = task::spawn(stream::iter([("x", vec![1_u8; 8])]).to_device(sim.device()));
    let mut kept = Vec::new();
    while let std::task::Poll::Ready(transfer) = much.poll_next() {
        kept.push(transfer);
    }
    assert_eq!(kept.len(), 8, "half is kept for the pipeline whose batches nobody has seen");
    assert!(!much.is_woken());
    let first = little.poll_next();
    assert!(first.is_ready() && much.is_woken());
    assert!(much.poll_next().is_ready());
}
