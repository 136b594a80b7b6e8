//! What codes are called and mean.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_char;

use super::write::write;
use crate::call::{Needs, call};
use crate::code::Code;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: i32, text: *mut *const c_char) -> i32 {
    call("cuGetErrorName", Needs::Nothing, format_args!("code={code}"), |_| {
        let found = Code(code).text();
        // SAFETY: the driver's contract.
        unsafe { write(text, found.map_or(std::ptr::null(), |(name, _)| name.as_ptr())) }?;
        found.map(|_| ()).ok_or_else(|| Code::INVALID_VALUE.into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: i32, text: *mut *const c_char) -> i32 {
    call("cuGetErrorString", Needs::Nothing, format_args!("code={code}"), |_| {
        let found = Code(code).text();
        // SAFETY: the driver's contract.
        unsafe { write(text, found.map_or(std::ptr::null(), |(_, text)| text.as_ptr())) }?;
        found.map(|_| ()).ok_or_else(|| Code::INVALID_VALUE.into())
    })
}
