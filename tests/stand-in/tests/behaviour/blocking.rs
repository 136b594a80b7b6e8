//! Calls that wait.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::thread;

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, ok};

#[test]
fn a_full_stream_blocks_who_queues_more() {
    let bed = Bed::by_hand();
    let (stream, event, context) = (bed.stream(), bed.event(), bed.context);
    for _ in 0..1020 {
        ok(cu!(cuEventRecord(event, stream)));
    }
    assert_eq!(counter("blocked_calls"), 0);
    let blocked = thread::spawn(move || {
        ok(cu!(cuCtxSetCurrent(context)));
        ok(cu!(cuEventRecord(event, stream)));
    });
    while counter("blocked_calls") == 0 {
        thread::yield_now();
    }
    assert!(!blocked.is_finished());
    assert_eq!(counter("pending"), 1020);
    assert_eq!(stand_in_advance(1), 1);
    blocked.join().unwrap();
    assert_eq!((counter("pending"), counter("peak_pending")), (1020, 1020));
}

#[test]
fn to_synchronise_waits_for_what_is_queued_by_then() {
    let bed = Bed::by_hand();
    let (stream, context) = (bed.stream(), bed.context);
    let event = bed.recorded(stream);
    stand_in_log(1);
    let waits: [fn(usize, usize) -> i32; 3] = [
        |stream, _| cu!(cuStreamSynchronize(stream)),
        |_, event| cu!(cuEventSynchronize(event)),
        |_, _| cu!(cuCtxSynchronize()),
    ];
    let waiting = waits.map(|wait| {
        thread::spawn(move || {
            ok(cu!(cuCtxSetCurrent(context)));
            wait(stream, event)
        })
    });
    while cu!(stand_in_calls(std::ptr::null())) < 6 {
        thread::yield_now();
    }
    let _later = bed.recorded(stream);
    assert!(waiting.iter().all(|thread| !thread.is_finished()));
    assert_eq!(stand_in_advance(1), 1);
    // The context may be asked after the later record, which is then one of what it waits for.
    let [stream, event, context] = waiting;
    ok(stream.join().unwrap());
    ok(event.join().unwrap());
    assert_eq!(stand_in_advance(1), 1);
    ok(context.join().unwrap());
}

#[test]
fn a_fault_ends_a_wait() {
    let bed = Bed::by_hand();
    let (stream, context) = (bed.stream(), bed.context);
    let _pending = bed.recorded(stream);
    stand_in_log(1);
    let waiting = thread::spawn(move || {
        ok(cu!(cuCtxSetCurrent(context)));
        cu!(cuStreamSynchronize(stream))
    });
    while cu!(stand_in_calls(c"cuStreamSynchronize".as_ptr())) == 0 {
        thread::yield_now();
    }
    stand_in_fail_operation(1, 719);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(waiting.join().unwrap(), 719);
}
