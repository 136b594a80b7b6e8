//! Kernels and host functions run when their turn has come.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, launch, ok, violations};

#[test]
fn kernels_change_memory_in_their_stream_s_order() {
    let bed = Bed::by_hand();
    let (stream, memory, copy) = (bed.stream(), bed.device(4), bed.device(4));
    let fill = bed.kernel("fill_u8", &["u64", "u64", "u32"]);
    let add = bed.kernel("add_u8", &["u64", "u64", "u32"]);
    let copy_u8 = bed.kernel("copy_u8", &["u64", "u64", "u64"]);
    ok(launch(fill, stream, &[memory, 4, 250]));
    ok(launch(add, stream, &[memory, 4, 10]));
    ok(launch(copy_u8, stream, &[copy, memory, 4]));
    assert_eq!(bed.content(memory, 4), [0xCD; 4]);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(bed.content(memory, 4), [250; 4]);
    assert_eq!(stand_in_advance(5), 2);
    assert_eq!(bed.content(copy, 4), [4; 4]);
}

#[test]
fn wrong_bytes_are_counted_and_numbers_summed() {
    let bed = Bed::by_hand();
    let pattern: Vec<u8> = (0..600_u64).map(|place| (5 * 31 + place * 7 + place / 251).to_le_bytes()[0]).collect();
    let numbers: Vec<u8> = [1.5_f32, 2.0, -0.5].iter().flat_map(|number| number.to_ne_bytes()).collect();
    let (stream, memory, errors, sum) = (bed.stream(), bed.device(600), bed.device(4), bed.device(16));
    ok(cu!(cuMemcpyHtoD_v2(memory, pattern.as_ptr() as usize, 600)));
    ok(cu!(cuMemcpyHtoD_v2(sum + 4, numbers.as_ptr() as usize, 12)));
    ok(cu!(cuMemsetD8_v2(errors, 0, 4)));
    let count = bed.kernel("count_wrong", &["u64", "u64", "u64", "u64"]);
    let add = bed.kernel("sum_f32", &["u64", "u64", "u64"]);
    ok(launch(count, stream, &[memory, 600, 5, errors]));
    ok(launch(count, stream, &[memory, 600, 6, errors]));
    ok(launch(add, stream, &[sum, sum + 4, 3]));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(bed.content(errors, 4), 0_u32.to_ne_bytes());
    assert_eq!(stand_in_advance(2), 2);
    assert_eq!(bed.content(errors, 4), 600_u32.to_ne_bytes());
    assert_eq!(bed.content(sum, 4), 3.0_f32.to_ne_bytes());
}

#[test]
fn memory_that_a_pending_kernel_was_given_is_in_use() {
    let bed = Bed::by_hand();
    let (stream, memory) = (bed.stream(), bed.device(4));
    let fill = bed.kernel("fill_u8", &["u64", "u64", "u32"]);
    ok(launch(fill, stream, &[memory + 1, 3, 1]));
    ok(cu!(cuMemFree_v2(memory)));
    assert_eq!(counter("violations"), 1);
    assert!(violations().contains("in use by a kernel"), "{}", violations());
}

#[test]
fn a_kernel_reads_page_locked_memory_and_no_other() {
    let bed = Bed::by_hand();
    let (stream, memory, host, pageable) = (bed.stream(), bed.device(4), bed.host(&[6; 4]), vec![1_u8; 4]);
    let copy = bed.kernel("copy_u8", &["u64", "u64", "u64"]);
    ok(launch(copy, stream, &[memory, host.address as u64, 4]));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(bed.content(memory, 4), [6; 4]);
    ok(launch(copy, stream, &[memory, pageable.as_ptr() as u64, 4]));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(cu!(cuStreamQuery(stream)), 700);
}

#[test]
fn what_is_no_kernel_is_refused() {
    let bed = Bed::by_hand();
    let (stream, other, mut function) = (bed.stream(), bed.kernel("unheard_of", &[]), 0);
    assert_eq!(launch(other, stream, &[]), 209);
    let spin = bed.kernel("spin", &["u64"]);
    let null = std::ptr::null();
    assert_eq!(cu!(cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, stream, null, null.cast())), 1);
    let mut module = 0;
    let load = |module: &mut usize, text: &str| {
        let text = CString::new(text).unwrap();
        cu!(cuModuleLoadData(&raw mut *module, text.as_ptr()))
    };
    assert_eq!(load(&mut module, "no PTX"), 218);
    assert_eq!(load(&mut module, ".version 99.0\n.target sm_75\n"), 222);
    assert_eq!(load(&mut module, ".version 8.0\n.target sm_120\n"), 209);
    ok(load(&mut module, ".version 8.0\n.target sm_75\n"));
    assert_eq!(cu!(cuModuleGetFunction(&raw mut function, module, c"f".as_ptr())), 500);
}

#[test]
fn a_host_function_is_called_in_order_and_may_not_call_the_driver() {
    static CODE: AtomicI32 = AtomicI32::new(-1);
    unsafe extern "C" fn function(_: *mut c_void) {
        CODE.store(cu!(cuCtxSynchronize()), Ordering::SeqCst);
    }
    let bed = Bed::by_hand();
    let stream = bed.stream();
    let event = bed.recorded(stream);
    ok(cu!(cuLaunchHostFunc(stream, Some(function), std::ptr::null_mut())));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(cu!(cuEventQuery(event)), 0);
    assert_eq!(CODE.load(Ordering::SeqCst), -1);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!((CODE.load(Ordering::SeqCst), counter("violations")), (800, 1));
}
