//! Device memory outside the order of streams.
#![expect(unsafe_code, reason = "exports C functions")]

use super::write::write;
use crate::call::{Needs, call};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32 {
    call("cuMemAlloc_v2", Needs::Context, format_args!("bytes={bytes}"), |call| {
        call.check_captures()?;
        let context = call.context;
        let found = call.allocate(context, None, bytes)?;
        call.result(format_args!("address={found:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(address, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> i32 {
    call("cuMemFree_v2", Needs::Context, format_args!("address={address:#x}"), |call| {
        if address == 0 {
            return Ok(());
        }
        call.check_captures()?;
        let bytes = call.check_block(address)?.bytes;
        call.check_unused(&(address..address + bytes as u64), None);
        call.mark_freed(address);
        call.release(address);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32 {
    call("cuMemGetInfo_v2", Needs::Context, format_args!(""), |call| {
        let device = call.device_of(call.context);
        let (left, all) = (call.free_memory(device), call.settings.memory);
        // SAFETY: the driver's contract.
        unsafe { write(free, left) }?;
        // SAFETY: the driver's contract.
        unsafe { write(total, all) }
    })
}
