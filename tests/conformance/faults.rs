//! Errors of the driver: what means "ask again", what fails one operation, what is the end of the device (invariant 6).

use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use inflight::sim::{FaultPoint, Simulator};
use inflight::{BatchStreamExt, Error};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

use crate::bed::{by_hand, host_stream};
use crate::drops::registered;

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
        let sim = by_hand(2 << 20);
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
        let held = device.pinned::<u8, _>(1 << 30).now_or_never();
        let mut pinned = task::spawn(device.pinned::<u8, _>(1 << 30));
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
