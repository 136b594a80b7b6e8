//! Calls and operations that are to fail.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_char;

use super::text;
use crate::code::Code;
use crate::world::lock;

/// The `kth` call of a function from now on (1 is the next) returns `code` and does nothing; of any function, but those
/// that give an error's text, where `function` is null. With `sticky` not 0 the context fails with it.
///
/// # Safety
///
/// `function` is null or a text that ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_fail(function: *const c_char, kth: u64, code: i32, sticky: i32) {
    // SAFETY: the contract of this function.
    let function = unsafe { text::read(function) };
    lock().faults.fail_call(function, kth, Code(code), sticky != 0);
}

/// The `kth` operation from now on that would complete does not: its context fails with `code`.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_fail_operation(kth: u64, code: i32) {
    lock().faults.fail_operation(kth, Code(code));
}

/// How many of these faults have not happened.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_faults_left() -> u64 {
    lock().faults.left() as u64
}
