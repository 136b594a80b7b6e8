//! What tests can read: counts of calls, the log, attributes, names of codes, functions by name.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::ffi::{CStr, c_void};

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, ok, text};

#[test]
fn the_log_has_a_line_a_call() {
    let bed = Bed::by_hand();
    stand_in_log(1);
    let stream = bed.stream();
    assert_eq!(cu!(cuMemsetD8Async(5, 1, 4, stream)), 1);
    stand_in_log(0);
    let _quiet = bed.stream();
    let log = text(|buffer, capacity| cu!(stand_in_log_take(buffer, capacity)));
    let expected = format!(
        "cuStreamCreate flags=1 stream={stream:#x} -> 0\ncuMemsetD8Async to=0x5 value=1 bytes=4 stream={stream:#x} -> 1\n"
    );
    assert_eq!(log, expected);
    assert_eq!(text(|buffer, capacity| cu!(stand_in_log_take(buffer, capacity))), "");
    assert_eq!(cu!(stand_in_calls(c"cuStreamCreate".as_ptr())), 2);
    assert_eq!(cu!(stand_in_calls(std::ptr::null())), 3);
}

#[test]
fn a_log_that_has_no_room_is_kept() {
    let bed = Bed::by_hand();
    stand_in_log(1);
    let _stream = bed.stream();
    let (mut small, length) = ([0_u8; 4], cu!(stand_in_log_take(std::ptr::null_mut(), 0)));
    assert_eq!(cu!(stand_in_log_take(small.as_mut_ptr(), 4)), length);
    assert_eq!(&small, b"cuSt");
    assert_eq!(text(|buffer, capacity| cu!(stand_in_log_take(buffer, capacity))).len() as u64, length);
}

#[test]
fn attributes_can_be_set() {
    let _bed = Bed::by_hand();
    let read = |attribute, device| {
        let mut value = -1;
        ok(cu!(cuDeviceGetAttribute(&raw mut value, attribute, device)));
        value
    };
    assert_eq!([75, 76, 115, 16, 88].map(|attribute| read(attribute, 0)), [9, 0, 1, 132, 0]);
    stand_in_attribute(1, 88, 1);
    stand_in_attribute(-1, 75, 8);
    assert_eq!([read(88, 0), read(88, 1), read(75, 0), read(75, 1)], [0, 1, 8, 8]);
    stand_in_reset();
    assert_eq!(read(88, 1), 0);
    let mut value = 0;
    assert_eq!(cu!(cuDeviceGetAttribute(&raw mut value, 75, 2)), 101);
}

#[test]
fn codes_have_names() {
    let _bed = Bed::by_hand();
    let mut name = std::ptr::null();
    ok(cu!(cuGetErrorName(700, &raw mut name)));
    // SAFETY: the call has written a text.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(cu!(cuGetErrorString(12345, &raw mut name)), 1);
    assert!(name.is_null());
}

#[test]
fn functions_are_found_by_name() {
    let _bed = Bed::by_hand();
    let find = |name: &CStr, version| {
        let (mut function, mut status) = (std::ptr::null_mut::<c_void>(), -1);
        let code = cu!(cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, 0, &raw mut status));
        (function, code, status)
    };
    assert_eq!(find(c"cuMemAlloc", 12_000), (cuMemAlloc_v2 as *mut c_void, 0, 0));
    assert_eq!(find(c"cuEventQuery", 12_000), (cuEventQuery as *mut c_void, 0, 0));
    assert_eq!(find(c"cuMemcpyBatchAsync", 12_080), (cuMemcpyBatchAsync as *mut c_void, 0, 0));
    assert_eq!(find(c"cuMemcpyBatchAsync", 13_000), (cuMemcpyBatchAsync_v2 as *mut c_void, 0, 0));
    assert_eq!(find(c"cuNothing", 13_000), (std::ptr::null_mut(), 500, 1));
}

#[test]
fn an_unknown_counter_is_none() {
    let _bed = Bed::by_hand();
    assert_eq!(counter("nonsense"), u64::MAX);
}
