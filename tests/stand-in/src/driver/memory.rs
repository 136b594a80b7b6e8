//! What is at an address.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_void;

use super::write::write;
use crate::call::{Needs, call};
use crate::code::Code;
use crate::refusal::Refusal;

const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;
const MAPPED: i32 = 13;

/// What is known of an address that is valid.
struct Known {
    context: usize,
    device: usize,
    is_host: bool,
    start: u64,
    bytes: usize,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(data: *mut c_void, attribute: i32, address: u64) -> i32 {
    let arguments = format_args!("attribute={attribute} address={address:#x}");
    call("cuPointerGetAttribute", Needs::Init, arguments, |call| {
        let on_device = call.device.find(address, 1).map(|(start, block)| Known {
            context: block.context,
            device: block.device,
            is_host: false,
            start,
            bytes: block.bytes,
        });
        let known = on_device.or_else(|| {
            let (start, range) = call.host.find(usize::try_from(address).ok()?)?;
            let device = call.device_of(range.context);
            Some(Known { context: range.context, device, is_host: true, start: start as u64, bytes: range.bytes })
        });
        // To ask is how one finds out whether an address is known: no misuse.
        let known = known.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the driver's contract.
        unsafe { answer(data, attribute, address, &known) }
    })
}

/// # Safety
///
/// `data` is null or valid for a write of the attribute's type.
unsafe fn answer(data: *mut c_void, attribute: i32, address: u64, known: &Known) -> Result<(), Refusal> {
    match attribute {
        // SAFETY: the caller's contract, for each of these.
        CONTEXT => unsafe { write(data.cast(), known.context) },
        // SAFETY: as above.
        MEMORY_TYPE => unsafe { write(data.cast(), if known.is_host { 1_u32 } else { 2 }) },
        // SAFETY: as above.
        DEVICE_POINTER => unsafe { write(data.cast(), address) },
        // SAFETY: as above.
        HOST_POINTER if known.is_host => unsafe { write(data.cast(), address) },
        // SAFETY: as above; a single byte.
        IS_MANAGED => unsafe { write(data.cast(), 0_u8) },
        // SAFETY: as above.
        DEVICE_ORDINAL => unsafe { write(data.cast(), i32::try_from(known.device).unwrap_or(0)) },
        // SAFETY: as above.
        RANGE_START => unsafe { write(data.cast(), known.start) },
        // SAFETY: as above.
        RANGE_SIZE => unsafe { write(data.cast(), known.bytes) },
        // SAFETY: as above; a single byte.
        MAPPED => unsafe { write(data.cast(), 1_u8) },
        _ => Err(Code::INVALID_VALUE.into()),
    }
}
