//! What has happened.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_char;

use super::text;
use crate::world::lock;

/// Calls of a function since the last reset or start of the log; of all functions where it is null.
///
/// # Safety
///
/// `function` is null or a text that ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_calls(function: *const c_char) -> u64 {
    // SAFETY: the contract of this function.
    let function = unsafe { text::read(function) };
    lock().log.calls(function.as_deref())
}

/// With `on` not 0, starts a log, and counts calls anew; with 0, ends it.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_log(on: i32) {
    lock().log.turn(on != 0);
}

/// Takes the log: a line a call that has returned, if all of it has room. The answer is how long it is.
///
/// # Safety
///
/// `capacity` bytes at `buffer` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_log_take(buffer: *mut u8, capacity: u64) -> u64 {
    let mut world = lock();
    // SAFETY: the contract of this function.
    let length = unsafe { text::write(world.log.text(), buffer, capacity) };
    if length <= capacity {
        world.log.clear();
    }
    length
}

/// The counter of that name; `u64::MAX` if there is none.
///
/// # Safety
///
/// `name` is null or a text that ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_counter(name: *const c_char) -> u64 {
    // SAFETY: the contract of this function.
    let name = unsafe { text::read(name) }.unwrap_or_default();
    let mut world = lock();
    world.catch_up();
    world.counter(&name).unwrap_or(u64::MAX)
}

/// What was wrong with calls, a line each, the first 64. The answer is how long it is.
///
/// # Safety
///
/// `capacity` bytes at `buffer` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_violations(buffer: *mut u8, capacity: u64) -> u64 {
    let lines: String = lock().counts.lines.iter().map(|line| format!("{line}\n")).collect();
    // SAFETY: the contract of this function.
    unsafe { text::write(&lines, buffer, capacity) }
}
