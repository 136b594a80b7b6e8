//! Answers through pointers.
#![expect(unsafe_code, reason = "writes through pointers of the caller's")]

use crate::code::Code;
use crate::refusal::Refusal;

/// Writes an answer.
///
/// # Safety
///
/// `to` is null or valid for a write.
pub(super) unsafe fn write<T>(to: *mut T, value: T) -> Result<(), Refusal> {
    if to.is_null() {
        return Err(Refusal::misuse(Code::INVALID_VALUE, "the answer has no place"));
    }
    // SAFETY: the caller's contract.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
