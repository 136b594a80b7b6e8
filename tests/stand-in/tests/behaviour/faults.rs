//! Faults that are ordered, and contexts that stay failed.
#![expect(unsafe_code, reason = "makes driver calls")]

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, fail, launch, ok};

#[test]
fn the_kth_call_fails_once() {
    let bed = Bed::by_hand();
    let stream = bed.stream();
    fail("cuStreamQuery", 2, 999, 0);
    assert_eq!(stand_in_faults_left(), 1);
    let codes = [0, 1, 2].map(|_| cu!(cuStreamQuery(stream)));
    assert_eq!(codes, [0, 999, 0]);
    cu!(stand_in_fail(std::ptr::null(), 1, 719, 0));
    assert_eq!(cu!(cuCtxSynchronize()), 719);
    assert_eq!(stand_in_faults_left(), 0);
    assert_eq!(counter("violations"), 0);
}

#[test]
fn a_sticky_fault_stays_with_its_context() {
    let bed = Bed::by_hand();
    let (stream, memory) = (bed.stream(), bed.device(4));
    let event = bed.recorded(stream);
    ok(cu!(cuMemsetD8Async(memory, 1, 4, stream)));
    fail("cuStreamQuery", 1, 700, 1);
    assert_eq!(cu!(cuStreamQuery(stream)), 700);
    assert_eq!(cu!(cuEventQuery(event)), 700);
    assert_eq!(cu!(cuMemFree_v2(memory)), 700);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 700);
    assert_eq!(cu!(cuEventRecord(event, stream)), 700);
    assert_eq!((counter("pending"), stand_in_advance(5)), (0, 0));
    ok(cu!(cuInit(0)));
    let (mut other, mut stream) = (0, 0);
    ok(cu!(cuDevicePrimaryCtxRetain(&raw mut other, 0)));
    ok(cu!(cuCtxPushCurrent_v2(other)));
    ok(cu!(cuStreamCreate(&raw mut stream, 1)));
    ok(cu!(cuCtxPopCurrent_v2(std::ptr::null_mut())));
    ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
}

#[test]
fn the_kth_operation_fails_its_context() {
    let bed = Bed::by_hand();
    let (stream, memory) = (bed.stream(), bed.device(4));
    ok(cu!(cuMemsetD8Async(memory, 1, 4, stream)));
    let (first, second) = (bed.recorded(stream), bed.recorded(stream));
    stand_in_fail_operation(2, 719);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(cu!(cuEventQuery(first)), 600);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(cu!(cuEventQuery(first)), 719);
    assert_eq!(cu!(cuEventQuery(second)), 719);
}

#[test]
fn a_stream_of_another_context_goes_on_past_a_fault() {
    let bed = Bed::by_hand();
    let event = bed.recorded(bed.stream());
    let mut other = 0;
    ok(cu!(cuCtxCreate_v4(&raw mut other, std::ptr::null_mut(), 0, 1)));
    let waiting = bed.stream();
    ok(cu!(cuStreamWaitEvent(waiting, event, 0)));
    stand_in_fail_operation(1, 700);
    assert_eq!(stand_in_advance_stream(waiting, 1), 0);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(stand_in_advance_stream(waiting, 1), 1);
    ok(cu!(cuStreamQuery(waiting)));
    ok(cu!(cuCtxDestroy_v2(other)));
}

#[test]
fn a_kernel_that_writes_nowhere_fails_its_context() {
    let bed = Bed::by_hand();
    let (stream, poke) = (bed.stream(), bed.kernel("poke", &["u64", "u32"]));
    ok(launch(poke, stream, &[4096, 1]));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(cu!(cuStreamQuery(stream)), 700);
    assert_eq!(counter("violations"), 0);
}
