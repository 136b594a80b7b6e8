//! The clock: what takes how long.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, launch, ok};

/// Milliseconds between two events, by the device's own time: no lateness of threads is in it.
fn between(start: usize, end: usize) -> f32 {
    let mut time = 0.0;
    ok(cu!(cuEventElapsedTime(&raw mut time, start, end)));
    time
}

#[test]
fn copies_take_the_link_s_time() {
    let bed = Bed::by_clock();
    stand_in_link(1e6, 1_000_000);
    let (stream, memory, host) = (bed.stream(), bed.device(9000), bed.host(&[1; 9000]));
    let start = bed.recorded(stream);
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, host.address, 9000, stream)));
    let end = bed.recorded(stream);
    ok(cu!(cuStreamSynchronize(stream)));
    let time = between(start, end);
    assert!(time > 9.99, "{time} ms");
    assert_eq!(bed.content(memory, 9000), [1; 9000]);
}

#[test]
fn copies_one_way_share_the_link_and_those_the_other_way_do_not() {
    let bed = Bed::by_clock();
    stand_in_link(1e5, 0);
    let (memory, host) = (bed.device(30_000), bed.host(&[1; 30_000]));
    let streams = [bed.stream(), bed.stream(), bed.stream()];
    let start = bed.recorded(streams[0]);
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, host.address, 10_000, streams[0])));
    ok(cu!(cuMemcpyHtoDAsync_v2(memory + 10_000, host.address + 10_000, 10_000, streams[1])));
    ok(cu!(cuMemcpyDtoHAsync_v2(host.address + 20_000, memory + 20_000, 10_000, streams[2])));
    let ends = streams.map(|stream| bed.recorded(stream));
    ok(cu!(cuCtxSynchronize()));
    let [first, second, back] = ends.map(|end| between(start, end));
    assert!(second >= first + 99.0, "{first} and {second} ms");
    assert!(back < second, "{back} and {second} ms");
}

#[test]
fn a_kernel_takes_what_it_says_and_waits_hold_others() {
    let bed = Bed::by_clock();
    let (first, second, spin) = (bed.stream(), bed.stream(), bed.kernel("spin", &["u64"]));
    let (began, start) = (Instant::now(), bed.recorded(first));
    ok(launch(spin, first, &[20_000_000]));
    let end = bed.recorded(first);
    ok(cu!(cuStreamWaitEvent(second, end, 0)));
    let behind = bed.recorded(second);
    ok(cu!(cuEventSynchronize(behind)));
    assert!(began.elapsed() >= Duration::from_millis(20));
    assert!(between(start, end) >= 20.0);
    assert!(between(end, behind) >= 0.0);
}

#[test]
fn nothing_waits_for_calls_to_complete() {
    static CALLED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn function(_: *mut c_void) {
        CALLED.store(true, Ordering::SeqCst);
    }
    let bed = Bed::by_clock();
    let (stream, memory) = (bed.stream(), bed.device(4));
    ok(cu!(cuMemsetD8Async(memory, 1, 4, stream)));
    ok(cu!(cuLaunchHostFunc(stream, Some(function), std::ptr::null_mut())));
    // No call from here on: the clock's own thread does it.
    let patience = Instant::now() + Duration::from_secs(20);
    while !CALLED.load(Ordering::SeqCst) {
        assert!(Instant::now() < patience);
        thread::yield_now();
    }
}

#[test]
fn a_host_function_that_blocks_holds_its_own_stream_only() {
    static LEAVE: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn function(_: *mut c_void) {
        while !LEAVE.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
    let bed = Bed::by_clock();
    let (held, free) = (bed.stream(), bed.stream());
    ok(cu!(cuLaunchHostFunc(held, Some(function), std::ptr::null_mut())));
    let event = bed.recorded(free);
    ok(cu!(cuEventSynchronize(event)));
    assert_eq!(cu!(cuStreamQuery(held)), 600);
    LEAVE.store(true, Ordering::SeqCst);
    ok(cu!(cuStreamSynchronize(held)));
}

#[test]
fn the_clock_goes_on_where_the_hand_has_left() {
    let bed = Bed::by_hand();
    let stream = bed.stream();
    let event = bed.recorded(stream);
    assert_eq!((cu!(cuEventQuery(event)), counter("pending")), (600, 1));
    stand_in_manual(0);
    ok(cu!(cuEventSynchronize(event)));
}
