//! A simulated device driven in ways that make no sense: it answers no, and goes on.

use std::time::Duration;

use inflight::sim::{FaultPoint, PendingStream, Simulator};
use inflight::{Error, Transfer};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

use crate::bed::now;

const BYTES: usize = 100_000;

fn send(sim: &Simulator, name: &str) -> Transfer {
    sim.device().try_transfer((name, vec![1_u8; BYTES])).unwrap()
}

#[test]
fn what_is_not_there_does_not_complete() {
    let sim = Simulator::new().unwrap();
    assert!(!sim.complete_next() && !sim.fail_next(1) && !sim.complete_field("x") && !sim.complete(0));
    assert_eq!(sim.complete_all(), 0);
    let (one, two) = (send(&sim, "one"), send(&sim, "two"));
    let pending = sim.pending();
    assert_eq!(pending.iter().map(|copy| copy.runnable).collect::<Vec<_>>(), [true, false]);
    assert!(!sim.complete(pending[1].id), "it is not at the head of its stream");
    assert!(!sim.complete(u64::MAX) && !sim.complete_field("two") && !sim.complete_field(""));
    assert!(!sim.complete_on(PendingStream::Compute(7)) && !sim.complete_on(PendingStream::Read));
    assert_eq!(sim.pending(), pending);
    assert!(sim.complete(pending[0].id));
    assert!(!sim.complete(pending[0].id), "it is done");
    assert_eq!(sim.complete_all(), 1);
    now(one).unwrap();
    now(two).unwrap();
}

#[test]
fn work_can_not_fail_with_what_is_no_failure() {
    let sim = Simulator::new().unwrap();
    let mut transfer = task::spawn(send(&sim, "x"));
    for code in [0, 600, 900, 907] {
        assert!(!sim.fail_next(code), "{code}");
        sim.inject(FaultPoint::Complete, 1, code);
    }
    for point in [FaultPoint::Allocate, FaultPoint::Submit, FaultPoint::Record, FaultPoint::Query, FaultPoint::Free] {
        sim.inject(point, 1, 0);
    }
    assert_pending!(transfer.poll());
    assert_eq!(sim.complete_all(), 1);
    assert_ready_ok!(transfer.poll());
    now(send_and_complete(&sim)).unwrap();
}

fn send_and_complete(sim: &Simulator) -> Transfer {
    let transfer = send(sim, "x");
    sim.complete_all();
    transfer
}

#[test]
fn a_code_that_nobody_knows_is_a_lost_device() {
    for code in [-1, i32::MIN, i32::MAX, 1000] {
        let sim = Simulator::new().unwrap();
        let mut transfer = task::spawn(send(&sim, "x"));
        assert_pending!(transfer.poll());
        assert!(sim.fail_next(code));
        let error = assert_ready_err!(transfer.poll());
        assert!(matches!(error, Error::DeviceLost { code: of, .. } if of == code), "{error:?}");
    }
}

#[test]
fn the_zeroth_call_is_the_next_one_and_one_far_off_never_comes() {
    let sim = Simulator::new().unwrap();
    sim.inject(FaultPoint::Submit, usize::MAX, 1);
    now(send_and_complete(&sim)).unwrap();
    sim.inject(FaultPoint::Submit, 0, 1);
    let error = now(send_and_complete(&sim)).unwrap_err();
    assert!(matches!(error, Error::Driver { code: 1, .. }), "{error:?}");
    assert_eq!(error.take_batch().unwrap().bytes(), BYTES);
}

#[test]
fn the_clock_does_not_begin_anew() {
    let settings = |builder: inflight::DeviceBuilder<'static>| {
        builder.memory_bytes(BYTES * 3 / 2).admission_timeout(Duration::from_secs(60))
    };
    let sim = Simulator::with(settings).unwrap();
    let _held = send(&sim, "x");
    sim.advance(Duration::MAX);
    sim.advance(Duration::from_secs(1));
    let mut waits = task::spawn(sim.device().transfer(("x", vec![1_u8; BYTES])));
    assert_pending!(waits.poll());
    sim.advance(Duration::from_secs(61));
    assert_pending!(waits.poll());
    assert_eq!(sim.device().stats().overdue_waits, 0, "no time passes any more");
}
