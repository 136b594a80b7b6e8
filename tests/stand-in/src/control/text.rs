//! Text to and from C.
#![expect(unsafe_code, reason = "reads and writes memory of the caller's")]

use std::ffi::{CStr, c_char};

/// The text at that address; `None` for null.
///
/// # Safety
///
/// The address is null, or of a text that ends with a 0.
pub(super) unsafe fn read(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Writes as much of a text as there is room for, without a 0; the answer is how long it is.
///
/// # Safety
///
/// `capacity` bytes at `buffer` may be written; it may be null if these are none.
pub(super) unsafe fn write(text: &str, buffer: *mut u8, capacity: u64) -> u64 {
    let fitting = text.len().min(usize::try_from(capacity).unwrap_or(usize::MAX));
    if fitting > 0 {
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, fitting) };
    }
    text.len() as u64
}
