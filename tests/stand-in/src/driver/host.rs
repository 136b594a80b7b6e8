//! Page-locked memory of the host.
#![expect(unsafe_code, reason = "exports C functions")]

use super::write::write;
use crate::call::{Needs, call};
use crate::code::Code;
use crate::refusal::Refusal;

/// The flag for memory that the device only reads.
const READ_ONLY: u32 = 8;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut usize, bytes: usize, flags: u32) -> i32 {
    call("cuMemHostAlloc", Needs::Context, format_args!("bytes={bytes} flags={flags}"), |call| {
        call.check_captures()?;
        if flags > 7 {
            return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{flags} are no flags of host memory")));
        }
        let context = call.context;
        let found = call.allocate_host(context, bytes)?;
        call.result(format_args!("address={found:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(address, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: usize) -> i32 {
    call("cuMemFreeHost", Needs::Context, format_args!("address={address:#x}"), |call| {
        call.check_captures()?;
        call.free_host(address)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(address: usize, bytes: usize, flags: u32) -> i32 {
    let arguments = format_args!("address={address:#x} bytes={bytes} flags={flags}");
    call("cuMemHostRegister_v2", Needs::Context, arguments, |call| {
        call.check_captures()?;
        if flags > 15 {
            return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{flags} are no flags of registered memory")));
        }
        let context = call.context;
        call.register(context, address, bytes, flags & READ_ONLY != 0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(address: usize) -> i32 {
    call("cuMemHostUnregister", Needs::Context, format_args!("address={address:#x}"), |call| {
        call.check_captures()?;
        call.unregister(address)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(device_address: *mut u64, address: usize, flags: u32) -> i32 {
    let arguments = format_args!("address={address:#x} flags={flags}");
    call("cuMemHostGetDevicePointer_v2", Needs::Context, arguments, |call| {
        let unknown = || Refusal::misuse(Code::INVALID_VALUE, format!("{address:#x} is not page-locked"));
        call.host.find(address).ok_or_else(unknown)?;
        // SAFETY: the driver's contract.
        unsafe { write(device_address, address as u64) }
    })
}
