//! Streams are queues; events order one behind another.
#![expect(unsafe_code, reason = "makes driver calls")]

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, ok};

#[test]
fn a_stream_completes_in_order() {
    let bed = Bed::by_hand();
    let (stream, memory) = (bed.stream(), bed.device(4));
    for value in 1..=3 {
        ok(cu!(cuMemsetD8Async(memory, value, 4, stream)));
    }
    assert_eq!(bed.content(memory, 4), [0xCD; 4]);
    for value in 1..=3 {
        assert_eq!(cu!(cuStreamQuery(stream)), 600);
        assert_eq!(stand_in_advance(1), 1);
        assert_eq!(bed.content(memory, 4), [value; 4]);
    }
    assert_eq!(cu!(cuStreamQuery(stream)), 0);
    assert_eq!(stand_in_advance(1), 0);
}

#[test]
fn advancing_goes_round_the_streams() {
    let bed = Bed::by_hand();
    let (first, second) = (bed.stream(), bed.stream());
    let events = [bed.recorded(first), bed.recorded(first), bed.recorded(second), bed.recorded(second)];
    let done = || events.map(|event| cu!(cuEventQuery(event)) == 0);
    assert_eq!(done(), [false; 4]);
    assert_eq!(stand_in_advance(2), 2);
    assert_eq!(done(), [true, false, true, false]);
    assert_eq!(stand_in_advance_stream(second, 5), 1);
    assert_eq!(done(), [true, false, true, true]);
    assert_eq!(counter("pending"), 1);
    assert_eq!(counter("peak_pending"), 4);
}

#[test]
fn a_wait_holds_its_stream_until_the_record_that_was_the_latest() {
    let bed = Bed::by_hand();
    let (first, second) = (bed.stream(), bed.stream());
    let event = bed.recorded(first);
    ok(cu!(cuStreamWaitEvent(second, event, 0)));
    // Recorded again, it is another record: the wait is for the first one.
    ok(cu!(cuEventRecord(event, first)));
    let behind = bed.recorded(second);
    assert_eq!(stand_in_advance_stream(second, 5), 0);
    assert_eq!(stand_in_advance_stream(first, 1), 1);
    assert_eq!(stand_in_advance_stream(second, 5), 2);
    assert_eq!(cu!(cuEventQuery(behind)), 0);
    assert_eq!(cu!(cuEventQuery(event)), 600);
}

#[test]
fn an_event_that_was_never_recorded_is_done_and_holds_nothing() {
    let bed = Bed::by_hand();
    let (stream, event) = (bed.stream(), bed.event());
    assert_eq!(cu!(cuEventQuery(event)), 0);
    assert_eq!(counter("unrecorded_queries"), 1);
    ok(cu!(cuStreamWaitEvent(stream, event, 0)));
    assert_eq!(counter("pending"), 0);
}

#[test]
fn work_goes_on_when_its_stream_and_event_are_destroyed() {
    let bed = Bed::by_hand();
    let (first, second, memory) = (bed.stream(), bed.stream(), bed.device(1));
    ok(cu!(cuMemsetD8Async(memory, 7, 1, first)));
    let event = bed.recorded(first);
    ok(cu!(cuStreamWaitEvent(second, event, 0)));
    ok(cu!(cuStreamDestroy_v2(first)));
    ok(cu!(cuEventDestroy_v2(event)));
    assert_eq!((counter("streams"), counter("events")), (1, 0));
    assert_eq!(stand_in_advance(5), 3);
    assert_eq!(bed.content(memory, 1), [7]);
    assert_eq!(cu!(cuMemsetD8Async(memory, 7, 1, first)), 400);
}
