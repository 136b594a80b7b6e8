//! Contexts, and which one is current.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_void;

use super::write::write;
use crate::call::{Needs, call};
use crate::code::Code;
use crate::refusal::Refusal;
use crate::thread;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v4(context: *mut usize, params: *mut c_void, flags: u32, device: i32) -> i32 {
    call("cuCtxCreate_v4", Needs::Init, format_args!("flags={flags} device={device}"), |call| {
        let device = call.check_device(device)?;
        if !params.is_null() {
            return Err(Code::NOT_SUPPORTED.into());
        }
        let handle = call.make_context(device, false);
        thread::push_context(handle);
        call.result(format_args!("context={handle:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(context, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxDestroy_v2(context: usize) -> i32 {
    call("cuCtxDestroy_v2", Needs::Init, format_args!("context={context:#x}"), |call| {
        if call.live_context(context)?.is_primary {
            return Err(Refusal::misuse(Code::INVALID_CONTEXT, "a primary context is released, not destroyed"));
        }
        if thread::context() == context {
            thread::pop_context();
        }
        call.destroy_context(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> i32 {
    call("cuCtxGetCurrent", Needs::Init, format_args!(""), |call| {
        let current = thread::context();
        call.result(format_args!("context={current:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(context, current) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: usize) -> i32 {
    call("cuCtxSetCurrent", Needs::Init, format_args!("context={context:#x}"), |call| {
        if context != 0 {
            call.live_context(context)?;
        }
        thread::set_context(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPushCurrent_v2(context: usize) -> i32 {
    call("cuCtxPushCurrent_v2", Needs::Init, format_args!("context={context:#x}"), |call| {
        call.live_context(context)?;
        thread::push_context(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> i32 {
    call("cuCtxPopCurrent_v2", Needs::Init, format_args!(""), |call| {
        let none = || Refusal::misuse(Code::INVALID_CONTEXT, "no context is current");
        let popped = thread::pop_context().ok_or_else(none)?;
        call.result(format_args!("context={popped:#x}"));
        if context.is_null() {
            return Ok(());
        }
        // SAFETY: the driver's contract.
        unsafe { write(context, popped) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut i32) -> i32 {
    call("cuCtxGetDevice", Needs::Context, format_args!(""), |call| {
        let number = i32::try_from(call.device_of(call.context)).unwrap_or(0);
        // SAFETY: the driver's contract.
        unsafe { write(device, number) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> i32 {
    call("cuCtxGetStreamPriorityRange", Needs::Context, format_args!(""), |_| {
        if !least.is_null() {
            // SAFETY: the driver's contract.
            unsafe { write(least, 0) }?;
        }
        if greatest.is_null() {
            return Ok(());
        }
        // SAFETY: the driver's contract.
        unsafe { write(greatest, super::stream::GREATEST_PRIORITY) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> i32 {
    call("cuCtxSynchronize", Needs::Context, format_args!(""), |call| {
        call.check_captures()?;
        let context = call.context;
        let of = call.streams.iter().filter(|(_, stream)| stream.context == context);
        let all: Vec<(usize, u64)> = of.map(|(handle, stream)| (*handle, stream.enqueued)).collect();
        for (stream, number) in all {
            call.wait_for(stream, number)?;
        }
        call.trim_pools();
        call.check_context(context)
    })
}
