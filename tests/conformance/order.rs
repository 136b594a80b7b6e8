//! Fields in the batch's order, batches in the stream's (invariant 11).

use std::task::Poll;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::sim::Simulator;
use inflight::{BatchStreamExt, Error, HostArray, HostBatch};
use tokio_test::{assert_pending, assert_ready, task};

use crate::bed::{by_hand, elements, on_each, on_host, pattern};

#[test]
fn invariant_11_batches_keep_the_sources_order_b121() {
    on_each(
        |builder| builder.staging_bytes(256 << 10),
        |bed| async move {
            let sizes = [100, 300_000, 5, 70_000, 64, 1 << 20, 0, 4096];
            let source = stream::iter((0..40).map(|n| ("x", pattern(n, sizes[n % 8]))));
            let batches: Vec<_> = source.to_device(&bed.device).buffered(5).try_collect().await.unwrap();
            for (n, batch) in batches.iter().enumerate() {
                assert_eq!(batch.index(), n as u64);
                assert_eq!(elements(&on_host::<u8>(batch, "x").await), pattern(n, sizes[n % 8]));
            }
        },
    );
}

#[test]
fn invariant_11_a_small_batch_does_not_overtake_a_large_one() {
    let sim = by_hand(64 << 20);
    // Blocks of the small size are at hand, so that nothing but the order sends a small batch the long way.
    let small: Vec<_> = (0..2).map(|_| sim.device().try_transfer(("x", vec![0_u8; 8])).unwrap()).collect();
    sim.complete_all();
    drop(small);
    assert_eq!(sim.device().stats().device_idle, 2048);
    sim.hold_staging(true);
    let sizes = [300_000, 8, 100_000, 8];
    let source = stream::iter(sizes.map(|bytes| ("x", vec![1_u8; bytes])));
    let mut batches = task::spawn(source.to_device(sim.device()).buffered(4));
    assert_pending!(batches.poll_next());
    sim.hold_staging(false);
    let order: Vec<_> = sim.pending().iter().map(|pending| pending.bytes).collect();
    assert_eq!(order, sizes);
}

#[test]
fn invariant_11_a_small_batch_waits_for_the_last_chunk_of_a_large_one() {
    // Four chunks of 16 KiB, and room for a small batch beside them.
    let (chunk, room) = (16 << 10, 768);
    let sim = Simulator::with(|builder| builder.memory_bytes(1 << 20).staging_bytes(4 * chunk + room)).unwrap();
    let warm = sim.device().try_transfer(("x", vec![0_u8; 8])).unwrap();
    sim.complete_all();
    drop(warm);
    assert_eq!(sim.device().stats().device_idle, 1024, "the small batch need not wait for its block");
    let source = stream::iter([6 * chunk, 8].map(|bytes| ("x", vec![1_u8; bytes])));
    let mut batches = task::spawn(source.to_device(sim.device()).buffered(2));
    assert_pending!(batches.poll_next());
    let mut order: Vec<_> = sim.pending().iter().map(|pending| pending.bytes).collect();
    assert_eq!(order, [chunk; 4], "the rest waits for room in the ring");
    let mut before = order.len();
    while sim.complete_next() {
        let pending = sim.pending();
        order.extend(pending.iter().skip(before - 1).map(|pending| pending.bytes));
        before = pending.len();
    }
    assert_eq!(order, [chunk, chunk, chunk, chunk, chunk, chunk, 8]);
}

#[test]
fn invariant_11_what_waits_for_room_on_the_copy_stream_keeps_its_order() {
    let sim = by_hand(64 << 20);
    let registered = sim.device().register(vec![1_u8; 512]).now_or_never().unwrap().unwrap();
    let names = |batch: usize| (0..64).map(move |field| format!("{batch}.{field}"));
    let sent: Vec<_> = (0..5)
        .map(|batch| {
            let fields = names(batch).map(|name| (name, registered.clone()));
            sim.device().try_transfer(HostBatch::from_fields(fields)).unwrap()
        })
        .collect();
    assert_eq!(sim.pending().len(), 256, "the others wait");
    let mut order = Vec::new();
    while let Some(next) = sim.pending().first() {
        order.extend(next.fields.clone());
        assert!(sim.complete_next());
    }
    assert_eq!(order, (0..5).flat_map(names).collect::<Vec<_>>());
    drop(sent);
}

#[test]
fn invariant_11_two_pipelines_interleave_by_chunk() {
    let settings = |builder: inflight::DeviceBuilder<'static>| builder.staging_bytes(1 << 20);
    let sim = Simulator::with(settings).unwrap();
    sim.hold_staging(true);
    let (bytes, chunk) = (512 << 10, 256 << 10);
    let mut left = task::spawn(stream::iter([("left", vec![1_u8; bytes])]).to_device(sim.device()).buffered(1));
    let mut right = task::spawn(stream::iter([("right", vec![2_u8; bytes])]).to_device(sim.device()).buffered(1));
    assert_pending!(left.poll_next());
    assert_pending!(right.poll_next());
    sim.hold_staging(false);
    let order: Vec<_> = sim.pending().iter().map(|pending| (pending.fields[0].clone(), pending.bytes)).collect();
    let expected = ["left", "right", "left", "right"].map(|name| (name.to_owned(), chunk));
    assert_eq!(order, expected);
}

#[test]
fn invariant_11_fields_are_queued_in_the_batchs_order() {
    let sim = by_hand(64 << 20);
    let fields = ["c", "a", "b"].map(|name| (name, vec![1_u8; 100_000]));
    let _transfer = sim.device().try_transfer(HostBatch::from_fields(fields)).unwrap();
    let order: Vec<_> = sim.pending().into_iter().flat_map(|pending| pending.fields).collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[test]
fn invariant_11_errors_of_the_source_keep_their_place_b98_b100() {
    on_each(
        |builder| builder,
        |bed| async move {
            let items = [Ok(1_u8), Ok(2), Err(std::io::Error::other("disk")), Ok(4)];
            let source = stream::iter(items).map_ok(|byte| ("x", vec![byte; 100_000]));
            let got: Vec<_> = source.to_device(&bed.device).buffered(4).collect().await;
            let ok: Vec<_> = got.iter().map(Result::is_ok).collect();
            assert_eq!(ok, [true, true, false, true]);
            let error = got[2].as_ref().unwrap_err();
            assert_eq!(error.to_string(), "the source failed: disk");
            assert_eq!(error.source_as::<std::io::Error>().unwrap().kind(), std::io::ErrorKind::Other);
        },
    );
}

#[test]
fn copies_complete_in_any_order_across_streams_and_futures_in_their_own() {
    let sim = by_hand(64 << 20);
    let source = stream::iter((0..8).map(|n| ("x", vec![n as u8; 64])));
    let mut unordered = task::spawn(source.to_device(sim.device()).buffer_unordered(4));
    let mut seen = Vec::new();
    while seen.len() < 8 {
        match unordered.poll_next() {
            Poll::Ready(batch) => seen.push(batch.unwrap().unwrap().index()),
            Poll::Pending => assert!(sim.complete_next()),
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..8).collect::<Vec<_>>(), "each batch carries its index");
}

#[test]
fn a_last_batch_that_is_smaller_comes_as_it_is_b20_b73() {
    on_each(
        |builder| builder,
        |bed| async move {
            for depth in [1, 3, 16] {
                for _epoch in 0..2 {
                    let source = stream::iter(0..10_u8).chunks(4).map(|rows| ("x", rows));
                    let batches: Vec<_> = source.to_device(&bed.device).buffered(depth).try_collect().await.unwrap();
                    let mut rows = Vec::new();
                    for batch in &batches {
                        rows.push(elements(&on_host::<u8>(batch, "x").await));
                    }
                    assert_eq!(rows, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
                }
            }
        },
    );
}

#[test]
fn a_source_without_items_or_with_empty_ones_ends_b58() {
    on_each(
        |builder| builder,
        |bed| async move {
            let none = stream::empty::<HostBatch>().to_device(&bed.device).buffered(6);
            assert_eq!(none.count().await, 0);
            let empty = stream::iter(vec![HostBatch::new(); 3]).to_device(&bed.device).buffered(6);
            assert_eq!(empty.map(Result::unwrap).count().await, 3);
            let fewer = stream::iter((0..5_u8).map(|n| ("x", n))).to_device(&bed.device).buffered(6);
            assert_eq!(fewer.map(Result::unwrap).count().await, 5, "a depth beyond the source (b44)");
        },
    );
}

#[test]
fn a_lost_batch_in_the_middle_keeps_its_place() {
    let sim = by_hand(64 << 20);
    let source = stream::iter((0..4).map(|n| ("x", vec![n as u8; 64])));
    let mut batches = task::spawn(source.to_device(sim.device()).buffered(4));
    assert_pending!(batches.poll_next());
    sim.complete_next();
    sim.fail_next(1);
    sim.complete_all();
    for n in 0..4 {
        let batch = assert_ready!(batches.poll_next()).unwrap();
        match batch {
            Ok(batch) => assert_eq!(batch.index(), n),
            Err(error) => assert!(n == 1 && matches!(error, Error::Driver { code: 1, .. })),
        }
    }
}

#[test]
fn invariant_10_a_pipeline_of_large_chunks_gets_its_turn_where_small_ones_fill_the_ring() {
    let sim = Simulator::with(|builder| builder.memory_bytes(4 << 20).staging_bytes(16 << 10)).unwrap();
    // Conversions go in chunks of a quarter of the size: 1 KiB.
    let cast = HostArray::from(vec![1_u16; 64 << 10]).cast::<f32>();
    let _small = sim.device().try_transfer(("x", cast)).unwrap();
    let sizes = || sim.pending().iter().map(|pending| pending.bytes).collect::<Vec<_>>();
    assert_eq!(sizes(), [1 << 10; 16], "the ring is full of them");
    let source = stream::iter([("x", vec![1_u8; 40 << 10])]);
    let mut batches = task::spawn(source.to_device(sim.device()).buffered(1));
    assert_pending!(batches.poll_next());
    let mut done: Vec<usize> = Vec::new();
    for _ in 0..64 {
        done.extend(sizes().first().copied());
        assert!(sim.complete_next());
    }
    let large = done.iter().filter(|bytes| **bytes == 4 << 10).count();
    assert!(large >= 5, "{large} chunks of the second in 64");
    assert!(done.iter().rev().take(16).any(|bytes| *bytes == 1 << 10), "the first goes on");
}

#[test]
fn invariant_10_small_batches_take_no_room_from_a_pipeline_that_waits_for_it() {
    let sim = Simulator::with(|builder| builder.memory_bytes(4 << 20).staging_bytes(16 << 10)).unwrap();
    let tiny = || task::spawn(stream::iter([("x", vec![1_u8; 8])]).to_device(sim.device()).buffered(1));
    let mut first = tiny();
    assert_pending!(first.poll_next());
    sim.complete_all();
    assert!(matches!(assert_ready!(first.poll_next()), Some(Ok(_))), "its block is at hand now");
    let cast = HostArray::from(vec![1_u16; 64 << 10]).cast::<f32>();
    let _fills = sim.device().try_transfer(("x", cast)).unwrap();
    let mut waits = task::spawn(stream::iter([("x", vec![1_u8; 40 << 10])]).to_device(sim.device()).buffered(1));
    assert_pending!(waits.poll_next());
    let sizes = || sim.pending().iter().map(|pending| pending.bytes).collect::<Vec<_>>();
    // The first of them was the first to wait, and takes what comes free first.
    (0..2).for_each(|_| assert!(sim.complete_next()));
    let mut small = tiny();
    assert_pending!(small.poll_next());
    assert_eq!(sizes(), [1 << 10; 15], "there is room for 8 bytes, and not for 4 KiB");
    let mut order = Vec::new();
    while order.last() != Some(&8) {
        order.extend(sizes().first().copied());
        assert!(sim.complete_next());
    }
    let first_large = order.iter().position(|bytes| *bytes == 4 << 10);
    assert!(first_large.is_some_and(|place| place < order.len() - 1), "{order:?}");
}
