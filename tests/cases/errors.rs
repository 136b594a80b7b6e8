//! Allocations that fail, sources that fail, and who hears of it.

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::sim::FaultPoint;
use inflight::{BatchStreamExt, Device, Error};
use tokio_test::{assert_pending, task};

use crate::bed::{by_hand, pattern};

#[test]
fn page_locked_memory_that_is_refused_is_an_error_of_that_call_alone_b95_b96() {
    for kth in 1..=3 {
        let sim = by_hand(1 << 20);
        let take = |n: usize| sim.device().pinned::<u8, _>(10_000 * n).now_or_never().unwrap();
        // The call, and the one after giving back what is kept.
        sim.inject(FaultPoint::Allocate, kth, 2);
        sim.inject(FaultPoint::Allocate, kth + 1, 2);
        let taken: Vec<_> = (1..=3).map(take).collect();
        for (n, array) in (1..=3).zip(&taken) {
            match array {
                Ok(array) => assert!(n != kth && array.len() == 10_000 * n),
                Err(error) => assert!(n == kth && matches!(error, Error::OutOfMemory { .. }), "{n}: {error}"),
            }
        }
        let used = sim.device().stats().pinned_used;
        let mut again = take(kth).unwrap();
        assert!(sim.device().stats().pinned_used > used, "counted now, and not before");
        again.as_slice_mut().unwrap().copy_from_slice(&pattern(kth, 10_000 * kth));
        drop(taken);
        let transfer = sim.device().try_transfer(("x", again)).unwrap();
        sim.complete_all();
        let batch = transfer.now_or_never().unwrap().unwrap();
        let x = batch.field("x").unwrap();
        assert!(x.as_host::<u8>().unwrap().iter().copied().eq(pattern(kth, 10_000 * kth)));
        assert_eq!(sim.device().stats().pinned_used, 0);
    }
}

#[test]
fn device_memory_that_is_refused_once_is_had_the_next_time_b96() {
    let sim = by_hand(1 << 20);
    let before = sim.device().stats();
    // The call, and the one after giving back what is kept.
    sim.inject(FaultPoint::Allocate, 1, 2);
    sim.inject(FaultPoint::Allocate, 2, 2);
    let error = sim.device().try_transfer(("x", pattern(1, 5000))).unwrap().now_or_never().unwrap().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    let after = sim.device().stats();
    assert_eq!((after.device_used, after.device_limit), (0, before.device_limit));
    let again = sim.device().try_transfer(error.take_batch().unwrap()).unwrap();
    sim.complete_all();
    let batch = again.now_or_never().unwrap().unwrap();
    assert!(batch.field("x").unwrap().as_host::<u8>().unwrap().iter().copied().eq(pattern(1, 5000)));
}

#[tokio::test]
async fn a_panic_on_the_blocking_pool_is_an_error_in_its_place_b98() {
    let device = Device::host().unwrap();
    let collate = |n: u8| {
        tokio::task::spawn_blocking(move || {
            assert!(n != 3, "nothing to collate");
            ("x", vec![n; 4])
        })
    };
    let batches = stream::iter(0..5).map(collate).buffered(2).to_device(&device).buffered(2);
    let got: Vec<_> = batches.collect().await;
    assert_eq!(got.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, true, false, true]);
    let error = got[3].as_ref().unwrap_err();
    assert!(error.source_as::<tokio::task::JoinError>().unwrap().is_panic());
    assert!(error.to_string().contains("nothing to collate"), "{error}");
}

#[test]
fn a_consumer_that_leaves_at_an_error_leaves_nothing_behind_b100() {
    let sim = by_hand(1 << 20);
    let items = [Ok(1_u8), Ok(2), Err(std::io::Error::other("disk")), Ok(4)];
    let source = stream::iter(items).map_ok(|byte| ("x", vec![byte; 4096]));
    let batches = source.to_device(sim.device()).buffered(4);
    let mut consumer = task::spawn(async move {
        let (mut batches, mut seen) = (batches, Vec::new());
        loop {
            match batches.try_next().await {
                Ok(Some(batch)) => seen.push(batch.index()),
                Ok(None) => return (seen, None),
                Err(error) => return (seen, Some(error.to_string())),
            }
        }
    });
    assert_pending!(consumer.poll());
    assert_eq!(sim.pending().len(), 3, "the error is known, and waits for its turn");
    assert!(sim.complete_next());
    assert!(sim.complete_next());
    let left = tokio_test::assert_ready!(consumer.poll());
    assert_eq!(left, (vec![0, 1], Some("the source failed: disk".to_owned())));
    drop(consumer);
    assert_eq!(sim.device().stats().device_used, 4096, "the fourth is still on its way");
    sim.complete_all();
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn no_waiter_hangs_when_the_memory_it_waited_for_is_refused_b104() {
    let sim = by_hand(64 << 10);
    let held = sim.device().try_transfer(("x", vec![1_u8; 64 << 10])).unwrap();
    sim.complete_all();
    // Of other sizes than what will come back: they need blocks of their own.
    let sizes = [5000, 10_000, 20_000, 24_000];
    let mut waiters: Vec<_> = sizes
        .iter()
        .map(|bytes| {
            let device = sim.device().clone();
            task::spawn(async move { device.transfer(("x", vec![2_u8; *bytes])).await?.await })
        })
        .collect();
    for waiter in &mut waiters {
        assert_pending!(waiter.poll());
    }
    for nth in 1..=4 {
        sim.inject(FaultPoint::Allocate, nth, 2);
    }
    drop(held);
    let mut outcomes = [None, None, None, None];
    for _ in 0..20 {
        for (waiter, outcome) in waiters.iter_mut().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
            if let std::task::Poll::Ready(done) = waiter.poll() {
                // An error is kept, a batch is not.
                *outcome = Some(done.map(drop));
            }
        }
        sim.complete_all();
    }
    let told = |outcome: &Option<Result<(), Error>>| matches!(outcome, Some(Ok(()) | Err(Error::OutOfMemory { .. })));
    assert!(outcomes.iter().all(told), "{outcomes:?}");
    assert!(outcomes.iter().flatten().any(Result::is_err), "some were refused: {outcomes:?}");
    assert_eq!(sim.device().stats().device_used, 0);
}
