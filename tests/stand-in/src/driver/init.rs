//! The start, and the version.
#![expect(unsafe_code, reason = "exports C functions")]

use super::write::write;
use crate::call::{Needs, call};
use crate::code::Code;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: u32) -> i32 {
    call("cuInit", Needs::Nothing, format_args!("flags={flags}"), |call| {
        match call.settings.init {
            Some(0) => {}
            Some(code) => return Err(Code(code).into()),
            None if call.devices.is_empty() => return Err(Code::NO_DEVICE.into()),
            None => {}
        }
        if flags != 0 {
            return Err(Code::INVALID_VALUE.into());
        }
        call.is_initialised = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> i32 {
    call("cuDriverGetVersion", Needs::Nothing, format_args!(""), |call| {
        let known = call.settings.version;
        // SAFETY: the driver's contract.
        unsafe { write(version, known) }
    })
}
