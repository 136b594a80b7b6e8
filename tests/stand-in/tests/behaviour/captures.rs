//! Captures, and what they forbid.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::thread;

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, ok};

fn status(stream: usize) -> i32 {
    let mut status = -1;
    ok(cu!(cuStreamIsCapturing(stream, &raw mut status)));
    status
}

#[test]
fn what_is_captured_does_not_run() {
    let bed = Bed::by_hand();
    let (stream, event, memory, mut graph) = (bed.stream(), bed.event(), bed.device(4), 0);
    ok(cu!(cuStreamBeginCapture_v2(stream, 0)));
    assert_eq!(status(stream), 1);
    ok(cu!(cuMemsetD8Async(memory, 1, 4, stream)));
    ok(cu!(cuEventRecord(event, stream)));
    assert_eq!((counter("pending"), status(stream)), (0, 1));
    ok(cu!(cuStreamEndCapture(stream, &raw mut graph)));
    assert_eq!(status(stream), 0);
    assert_ne!(graph, 0);
    ok(cu!(cuGraphDestroy(graph)));
    assert_eq!(cu!(cuEventQuery(event)), 907);
}

#[test]
fn a_forbidden_call_ends_the_capture_of_another_thread() {
    let bed = Bed::by_hand();
    let (stream, other, context, mut graph) = (bed.stream(), bed.stream(), bed.context, 1);
    let event = bed.recorded(other);
    ok(cu!(cuStreamBeginCapture_v2(stream, 0)));
    thread::spawn(move || {
        ok(cu!(cuCtxSetCurrent(context)));
        let mut mode = 2;
        ok(cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)));
        assert_eq!(mode, 0);
        assert_eq!(cu!(cuEventQuery(event)), 600);
        assert_eq!(status(stream), 1);
        ok(cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)));
        assert_eq!(mode, 2);
        assert_eq!(cu!(cuEventQuery(event)), 900);
    })
    .join()
    .unwrap();
    assert_eq!(status(stream), 2);
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), 901);
    assert_eq!((graph, counter("violations")), (0, 0));
}

#[test]
fn a_capture_of_its_own_thread_forbids_nothing_to_others() {
    let bed = Bed::by_hand();
    let (stream, context) = (bed.stream(), bed.context);
    ok(cu!(cuStreamBeginCapture_v2(stream, 1)));
    let allocate = move || {
        ok(cu!(cuCtxSetCurrent(context)));
        let mut address = 0;
        cu!(cuMemAlloc_v2(&raw mut address, 8))
    };
    assert_eq!(thread::spawn(allocate).join().unwrap(), 0);
    assert_eq!(allocate(), 900);
    assert_eq!(status(stream), 2);
}

#[test]
fn a_stream_can_not_be_waited_for_while_it_is_captured() {
    let bed = Bed::by_hand();
    let stream = bed.stream();
    ok(cu!(cuStreamBeginCapture_v2(stream, 2)));
    assert_eq!(cu!(cuStreamSynchronize(stream)), 900);
    assert_eq!(status(stream), 2);
}
