//! Devices, and their primary contexts.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_char;

use super::write::write;
use crate::call::{Needs, call};
use crate::code::Code;
use crate::refusal::Refusal;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> i32 {
    call("cuDeviceGetCount", Needs::Init, format_args!(""), |call| {
        let devices = i32::try_from(call.devices.len()).unwrap_or(i32::MAX);
        // SAFETY: the driver's contract.
        unsafe { write(count, devices) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> i32 {
    call("cuDeviceGet", Needs::Init, format_args!("ordinal={ordinal}"), |call| {
        call.check_device(ordinal)?;
        // SAFETY: the driver's contract.
        unsafe { write(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: i32, device: i32) -> i32 {
    call("cuDeviceGetName", Needs::Init, format_args!("device={device}"), |call| {
        call.check_device(device)?;
        let text = format!("Stand-in GPU {device}\0");
        let len = usize::try_from(len).unwrap_or(0);
        if name.is_null() || len < text.len() {
            return Err(Code::INVALID_VALUE.into());
        }
        // SAFETY: the driver's contract: `len` bytes are the function's to write.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) -> i32 {
    let arguments = format_args!("attribute={attribute} device={device}");
    call("cuDeviceGetAttribute", Needs::Init, arguments, |call| {
        let device = call.check_device(device)?;
        if !(1..=200).contains(&attribute) {
            return Err(Code::INVALID_VALUE.into());
        }
        let known = call.settings.attribute(device, attribute);
        // SAFETY: the driver's contract.
        unsafe { write(value, known) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> i32 {
    call("cuDeviceTotalMem_v2", Needs::Init, format_args!("device={device}"), |call| {
        call.check_device(device)?;
        let memory = call.settings.memory;
        // SAFETY: the driver's contract.
        unsafe { write(bytes, memory) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) -> i32 {
    call("cuDeviceGetUuid", Needs::Init, format_args!("device={device}"), |call| {
        let device = call.check_device(device)?;
        // SAFETY: the driver's contract.
        unsafe { write(uuid, uuid_of(device)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) -> i32 {
    call("cuDeviceGetUuid_v2", Needs::Init, format_args!("device={device}"), |call| {
        let device = call.check_device(device)?;
        // SAFETY: the driver's contract.
        unsafe { write(uuid, uuid_of(device)) }
    })
}

fn uuid_of(device: usize) -> [u8; 16] {
    let mut uuid = *b"stand-in-gpu-\0\0\0";
    uuid[15] = device.to_le_bytes()[0];
    uuid
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> i32 {
    call("cuDevicePrimaryCtxRetain", Needs::Init, format_args!("device={device}"), |call| {
        let number = call.check_device(device)?;
        let primary = call.devices[number].primary;
        let (handle, count) = primary.unwrap_or_else(|| (call.make_context(number, true), 0));
        call.devices[number].primary = Some((handle, count + 1));
        call.result(format_args!("context={handle:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(context, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> i32 {
    call("cuDevicePrimaryCtxRelease_v2", Needs::Init, format_args!("device={device}"), |call| {
        let number = call.check_device(device)?;
        let Some((handle, count)) = call.devices[number].primary else {
            return Err(Refusal::misuse(Code::INVALID_CONTEXT, "the primary context is not retained"));
        };
        call.devices[number].primary = (count > 1).then_some((handle, count - 1));
        if count == 1 {
            call.destroy_context(handle);
        }
        Ok(())
    })
}
