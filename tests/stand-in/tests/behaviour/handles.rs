//! Handles are checked.
#![expect(unsafe_code, reason = "makes driver calls")]

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, ok, violations};

#[test]
fn what_is_destroyed_or_was_never_made_is_refused() {
    let bed = Bed::by_hand();
    let (stream, event) = (bed.stream(), bed.event());
    ok(cu!(cuStreamDestroy_v2(stream)));
    ok(cu!(cuEventDestroy_v2(event)));
    let codes = [
        cu!(cuStreamDestroy_v2(stream)),
        cu!(cuStreamDestroy_v2(0)),
        cu!(cuEventDestroy_v2(event)),
        cu!(cuEventQuery(event)),
        cu!(cuEventRecord(event, 0)),
        cu!(cuEventQuery(stream)),
        cu!(cuModuleUnload(7)),
        cu!(cuMemPoolDestroy(7)),
        cu!(cuGraphDestroy(7)),
    ];
    assert_eq!(codes, [400; 9]);
    assert_eq!(counter("violations"), 9);
    assert!(violations().starts_with("cuStreamDestroy_v2: "), "{}", violations());
    assert_eq!(violations().lines().count(), 9);
}

#[test]
fn an_event_is_recorded_in_its_own_context_only() {
    let bed = Bed::by_hand();
    let (stream, mut other) = (bed.stream(), 0);
    ok(cu!(cuCtxCreate_v4(&raw mut other, std::ptr::null_mut(), 0, 0)));
    let event = bed.event();
    assert_eq!(cu!(cuEventRecord(event, stream)), 400);
    ok(cu!(cuEventRecord(event, 0)));
    // To wait for it is allowed everywhere.
    ok(cu!(cuStreamWaitEvent(stream, event, 0)));
    ok(cu!(cuCtxDestroy_v2(other)));
}

#[test]
fn default_streams_are_a_context_s_and_a_thread_s() {
    let bed = Bed::by_hand();
    let event = bed.event();
    ok(cu!(cuEventRecord(event, 0)));
    assert_eq!([0, 1, 2].map(|stream| cu!(cuStreamQuery(stream))), [600, 600, 0]);
    assert_eq!(counter("streams"), 0);
    assert_eq!(stand_in_advance(5), 1);
}
