//! Errors of the driver: what means "ask again", what fails one operation, what is the end of the device (invariant 6).

use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use inflight::sim::{FaultPoint, Simulator};
use inflight::{BatchStreamExt, Error, HostArray};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

use crate::bed::{by_hand, host_stream};
use crate::drops::registered;

/// A source that tells whether it is still kept.
struct Source(Vec<u8>, #[expect(dead_code, reason = "counted")] Arc<()>);

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

const FATAL: [i32; 17] = [214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 721, 999, 1234, -1];

#[test]
fn invariant_06_an_error_is_not_not_yet_b46() {
    for code in [1, 2, 100, 201, 400, 701, 800] {
        let sim = by_hand(1 << 20);
        let mut failing = task::spawn(sim.device().try_transfer(("x", vec![1_u8; 8])).unwrap());
        let mut fine = task::spawn(sim.device().try_transfer(("x", vec![2_u8; 8])).unwrap());
        assert_pending!(failing.poll());
        assert!(sim.fail_next(code));
        assert!(failing.is_woken());
        let error = assert_ready_err!(failing.poll());
        assert!(matches!(error, Error::Driver { code: of, .. } if of == code), "{error}");
        assert!(!error.is_fatal() && error.take_batch().is_none(), "a copy of it was enqueued");
        sim.complete_all();
        assert_ready_ok!(fine.poll());
        drop((failing, fine));
        assert_eq!(sim.device().stats().device_used, 0, "the device is healthy");
    }
}

#[test]
fn invariant_06_not_ready_and_capturing_mean_ask_again() {
    for code in [600, 900, 901, 906, 907] {
        let sim = by_hand(1 << 20);
        let mut transfer = task::spawn(sim.device().try_transfer(("x", vec![1_u8; 8])).unwrap());
        assert_pending!(transfer.poll());
        sim.inject(FaultPoint::Query, 1, code);
        sim.complete_next();
        sim.pending();
        assert!(transfer.is_woken(), "asked again after {code}");
        assert_ready_ok!(transfer.poll());
    }
}

#[test]
fn invariant_06_a_fatal_error_resolves_all_that_waits() {
    for code in FATAL {
        // What a lost device has pinned is leaked: not much each time.
        let sim = Simulator::with(|builder| builder.memory_bytes(2 << 20).pinned_bytes(1 << 20)).unwrap();
        sim.poison(true);
        let device = sim.device().clone();
        let stream = host_stream(&device);
        let send = |bytes: usize| {
            let mut pipeline = task::spawn(stream::iter([("x", vec![0_u8; bytes])]).to_device(&device));
            assert_ready!(pipeline.poll_next()).unwrap()
        };
        let arrived = send(1024);
        sim.complete_all();
        let arrived = arrived.now_or_never().unwrap().unwrap();
        let mut read = task::spawn(arrived.field("x").unwrap().read_back::<u8>().unwrap());
        let mut transfer = task::spawn(send(1400 << 10));
        let early = send(1024).early().now_or_never().unwrap().unwrap();
        let mut ready = task::spawn(early.field("x").unwrap().ready());
        let mut source = task::spawn(stream::iter(vec![("x", vec![2_u8; 700 << 10]); 3]).to_device(&device));
        let mut admission = task::spawn(device.transfer(("x", vec![3_u8; 700 << 10])));
        let held = device.pinned::<u8, _>(1 << 20).now_or_never();
        let mut pinned = task::spawn(device.pinned::<u8, _>(1 << 20));
        let mut drain = task::spawn(device.drain());
        let mut work = task::spawn(arrived.on(&stream).unwrap().run(|_| Ok(())));
        assert_pending!(read.poll());
        assert_pending!(transfer.poll());
        assert_pending!(ready.poll());
        assert_pending!(source.poll_next());
        assert_pending!(admission.poll());
        assert_pending!(pinned.poll());
        assert_pending!(drain.poll());
        assert_pending!(work.poll());
        assert!(sim.fail_next(code));
        let same = |error: &Error| {
            assert!(matches!(error, Error::DeviceLost { code: of, .. } if *of == code), "{code}: {error}");
            assert!(error.is_fatal());
        };
        for woken in [read.is_woken(), transfer.is_woken(), ready.is_woken(), source.is_woken(), admission.is_woken()] {
            assert!(woken, "{code}");
        }
        assert!(pinned.is_woken() && drain.is_woken());
        same(&assert_ready_err!(read.poll()));
        same(&assert_ready_err!(transfer.poll()));
        same(&assert_ready_err!(ready.poll()));
        let error = assert_ready_err!(admission.poll());
        same(&error);
        assert!(error.take_batch().is_some(), "nothing of it was sent");
        same(&assert_ready_err!(pinned.poll()));
        same(&assert_ready_err!(drain.poll()));
        let failed = assert_ready!(source.poll_next()).unwrap();
        same(&failed.now_or_never().unwrap().unwrap_err());
        assert!(assert_ready!(source.poll_next()).is_none(), "one failed transfer, then the end");
        same(&device.try_transfer(("x", 1_u8)).unwrap_err());
        same(&arrived.on(&stream).unwrap_err());
        same(&device.compute_stream().unwrap_err());
        drop(held);
    }
}

#[test]
fn invariant_06_a_driver_that_shuts_down_is_the_end_without_noise_b103() {
    let sim = by_hand(1 << 20);
    let mut transfer = task::spawn(sim.device().try_transfer(("x", vec![1_u8; 8])).unwrap());
    assert_pending!(transfer.poll());
    sim.inject(FaultPoint::Query, 1, 4);
    sim.complete_next();
    assert!(matches!(assert_ready_err!(transfer.poll()), Error::DeviceLost { code: 4, .. }));
}

#[test]
fn invariant_06_a_lost_device_leaks_both_ends_on_purpose() {
    let sim = by_hand(1 << 20);
    let (source, kept) = registered(sim.device(), 100_000).now_or_never().unwrap();
    let transfer = sim.device().try_transfer(("x", source)).unwrap();
    sim.fail_next(700);
    assert!(transfer.now_or_never().unwrap().is_err());
    let stats = sim.device().stats();
    assert!(stats.leaked >= 200_000, "counted: {}", stats.leaked);
    drop(sim);
    assert_eq!(Arc::strong_count(&kept), 2, "nobody knows whether the copy still reads it");
}

#[test]
fn invariant_06_a_record_that_fails_quarantines_its_block() {
    let sim = by_hand(1 << 20);
    sim.inject(FaultPoint::Record, 1, 400);
    let transfer = sim.device().try_transfer(("x", vec![1_u8; 4096])).unwrap();
    assert!(matches!(transfer.now_or_never().unwrap(), Err(Error::Driver { code: 400, .. })));
    let stats = sim.device().stats();
    assert_eq!((stats.device_quarantined, stats.device_limit, stats.device_used), (4096, (1 << 20) - 4096, 0));
    for _ in 0..3 {
        let next = sim.device().try_transfer(("x", vec![2_u8; 4096])).unwrap();
        sim.complete_all();
        assert!(next.now_or_never().unwrap().is_ok(), "the ring goes on");
    }
}

#[test]
fn a_copy_that_is_refused_gives_the_batch_back() {
    let sim = by_hand(1 << 20);
    sim.inject(FaultPoint::Submit, 1, 1);
    let error = sim.device().try_transfer(("x", vec![1_u8; 4096])).unwrap().now_or_never().unwrap().unwrap_err();
    assert!(matches!(error, Error::Driver { code: 1, .. }));
    assert_eq!(sim.device().stats().device_used, 0);
    let next = sim.device().try_transfer(("x", vec![2_u8; 4096])).unwrap();
    sim.complete_all();
    assert!(next.now_or_never().unwrap().is_ok());
}

#[test]
fn every_call_failing_once_leaves_nothing_hanging() {
    for point in [
        FaultPoint::Allocate,
        FaultPoint::Submit,
        FaultPoint::Record,
        FaultPoint::Wait,
        FaultPoint::Query,
        FaultPoint::Complete,
        FaultPoint::Free,
    ] {
        for code in [1, 2, 400, 700] {
            for nth in 1..8 {
                let sim = Simulator::with(|builder| builder.memory_bytes(1 << 20).staging_bytes(64 << 10)).unwrap();
                let stream = host_stream(sim.device());
                sim.inject(point, nth, code);
                let source = stream::iter((0..4).map(|n| ("x", vec![n as u8; 150_000])));
                let mut batches = task::spawn(source.to_device(sim.device()).buffered(2));
                let mut ended = false;
                for _ in 0..1000 {
                    match batches.poll_next() {
                        std::task::Poll::Ready(Some(Ok(batch))) => {
                            let Ok(lease) = batch.on(&stream) else { continue };
                            drop(lease.run(|fields| fields.view::<u8>("x").map(|_| ())));
                            drop(batch.read_back());
                        }
                        std::task::Poll::Ready(Some(Err(_))) => {}
                        std::task::Poll::Ready(None) => {
                            ended = true;
                            break;
                        }
                        std::task::Poll::Pending => {
                            sim.complete_next();
                        }
                    }
                }
                assert!(ended, "{point:?} {nth} {code} hangs");
                drop(batches);
                sim.complete_all();
                let mut drain = task::spawn(sim.device().drain());
                assert!(drain.poll().is_ready(), "{point:?} {nth} {code}: something is never over");
                let stats = sim.device().stats();
                assert_eq!(stats.device_used, 0, "{point:?} {nth} {code}: {stats:?}");
                assert_eq!(sim.counters().unrecorded_queries, 0);
            }
        }
    }
}

#[test]
fn out_of_memory_waits_for_what_is_in_flight_and_fails_alone_b104() {
    let sim = by_hand(1 << 20);
    let first = sim.device().try_transfer(("x", vec![1_u8; 4096])).unwrap();
    sim.inject(FaultPoint::Allocate, 1, 2);
    sim.inject(FaultPoint::Allocate, 2, 2);
    let mut second = task::spawn(sim.device().try_transfer(("x", vec![2_u8; 8192])).unwrap());
    assert_pending!(second.poll());
    assert_eq!(sim.pending().len(), 1, "the second waits for memory");
    sim.complete_all();
    drop(first);
    sim.complete_all();
    assert_ready_ok!(second.poll());
    sim.inject(FaultPoint::Allocate, 1, 2);
    sim.inject(FaultPoint::Allocate, 2, 2);
    drop(second);
    let error = sim.device().try_transfer(("x", vec![3_u8; 100_000])).unwrap().now_or_never().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("out of device memory on simulated:"), "{error}");
    assert_eq!(error.take_batch().unwrap().bytes(), 100_000);
}

#[test]
fn an_error_that_is_kept_keeps_no_device_memory_b97() {
    let sim = by_hand(128 << 10);
    sim.inject(FaultPoint::Complete, 1, 1);
    let transfer = sim.device().try_transfer(("x", vec![1_u8; 128 << 10])).unwrap();
    sim.complete_all();
    let kept = transfer.now_or_never().unwrap().unwrap_err();
    let retry = sim.device().try_transfer(("x", vec![1_u8; 64 << 10])).unwrap();
    sim.complete_all();
    assert!(retry.now_or_never().unwrap().is_ok());
    drop(kept);
}

#[test]
fn records_that_fail_again_and_again_hang_nothing() {
    let sim = by_hand(1 << 20);
    // The batch's own, the one that would keep its chunk, and that one tried again.
    for nth in 1..=4 {
        sim.inject(FaultPoint::Record, nth, 2);
    }
    let failed = sim.device().try_transfer(("x", vec![1_u8; 4096])).unwrap();
    sim.complete_all();
    assert!(failed.now_or_never().unwrap().is_err());
    for n in 0..20 {
        let transfer = sim.device().try_transfer(("x", vec![n; 4096])).unwrap();
        sim.complete_all();
        assert!(transfer.now_or_never().unwrap().is_ok() || n == 0, "batch {n}");
    }
}

#[test]
fn an_event_that_can_not_be_asked_says_nothing_about_its_copy() {
    let sim = by_hand(1 << 20);
    let kept = Arc::new(());
    let array = HostArray::from_owner::<u8>(Source(vec![7; 4096], kept.clone()), 4096).unwrap();
    let registered = sim.device().register(array).now_or_never().unwrap().unwrap();
    let mut transfer = task::spawn(sim.device().try_transfer(("x", registered)).unwrap());
    assert_pending!(transfer.poll());
    sim.inject(FaultPoint::Query, 1, 400);
    let other = sim.device().try_transfer(("y", vec![1_u8; 100])).unwrap();
    sim.complete_next();
    assert!(transfer.is_woken());
    let error = assert_ready!(transfer.poll()).unwrap_err();
    assert!(matches!(error, Error::Driver { code: 400, .. }), "{error:?}");
    drop(transfer);
    // The copy was done, but who could know: its block is never used again, its source is kept until a later event fired.
    let stats = sim.device().stats();
    assert_eq!((stats.device_quarantined, stats.device_limit), (4096, (1 << 20) - 4096));
    sim.complete_all();
    drop(other);
    assert_eq!(Arc::strong_count(&kept), 1, "an event behind the copy has fired");
    assert!(sim.device().drain().now_or_never().unwrap().is_ok());
}

#[test]
fn a_read_back_whose_event_can_not_be_asked_keeps_both_ends() {
    let sim = by_hand(1 << 20);
    let transfer = sim.device().try_transfer(("x", vec![7_u8; 4096])).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
    sim.inject(FaultPoint::Query, 1, 400);
    sim.complete_all();
    let error = read.now_or_never().unwrap().unwrap_err();
    assert!(matches!(error, Error::Driver { code: 400, .. }), "{error:?}");
    drop(batch);
    let stats = sim.device().stats();
    assert_eq!((stats.device_quarantined, stats.leaked), (4096, 4096), "the block, and what it is read into");
    assert_eq!(stats.device_used, 0);
}

#[test]
fn out_of_memory_does_not_wait_for_memory_that_is_only_promised() {
    let sim = by_hand(1 << 20);
    sim.hold_staging(true);
    let mut both: Vec<_> =
        (0..2_u8).map(|n| task::spawn(sim.device().try_transfer(("x", vec![n; 4096])).unwrap())).collect();
    both.iter_mut().for_each(|transfer| assert_pending!(transfer.poll()));
    for nth in 1..=4 {
        sim.inject(FaultPoint::Allocate, nth, 2);
    }
    sim.hold_staging(false);
    for transfer in &mut both {
        let error = assert_ready_err!(transfer.poll());
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert_eq!(error.take_batch().unwrap().bytes(), 4096);
    }
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn out_of_memory_does_not_wait_for_a_block_that_is_never_used_again() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let first = sim.device().try_transfer(("x", vec![1_u8; 4096])).unwrap();
    sim.complete_all();
    let batch = first.now_or_never().unwrap().unwrap();
    sim.inject(FaultPoint::Allocate, 1, 2);
    sim.inject(FaultPoint::Allocate, 2, 2);
    let mut waits = task::spawn(sim.device().try_transfer(("x", vec![2_u8; 8192])).unwrap());
    assert_pending!(waits.poll());
    let lease = batch.on(&stream).unwrap();
    lease.view::<u8>("x").unwrap();
    sim.inject(FaultPoint::Record, 1, 400);
    assert!(lease.end().is_err());
    drop(batch);
    assert_eq!(sim.device().stats().device_quarantined, 4096);
    sim.complete_all();
    assert!(waits.is_woken());
    assert_ready_ok!(waits.poll());
}

#[test]
fn out_of_memory_does_not_wait_for_a_block_of_a_batch_behind() {
    let sim = by_hand(1 << 20);
    let first = sim.device().try_transfer(("x", vec![0_u8; 4096])).unwrap();
    sim.complete_all();
    sim.hold_staging(true);
    let mut none = task::spawn(sim.device().try_transfer(("x", vec![1_u8; 8192])).unwrap());
    drop(first);
    let mut behind = task::spawn(sim.device().try_transfer(("x", vec![2_u8; 4096])).unwrap());
    assert_pending!(none.poll());
    assert_pending!(behind.poll());
    sim.inject(FaultPoint::Allocate, 1, 2);
    sim.inject(FaultPoint::Allocate, 2, 2);
    sim.hold_staging(false);
    assert!(matches!(assert_ready_err!(none.poll()), Error::OutOfMemory { .. }));
    sim.complete_all();
    assert_ready_ok!(behind.poll());
}
