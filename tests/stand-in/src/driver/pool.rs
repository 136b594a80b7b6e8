//! Memory pools, and device memory in the order of streams.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_void;

use super::write::write;
use crate::call::{Call, Needs, call};
use crate::capture::Capture;
use crate::code::Code;
use crate::memory::USED_HIGH;
use crate::operation::Work;
use crate::refusal::Refusal;

/// The start of a pool's properties; the rest is not looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolProperties {
    allocation: i32,
    handles: i32,
    location: i32,
    device: i32,
}

/// Attributes up to this are ints, others are 64 bits.
const LAST_INT: i32 = 3;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolCreate(pool: *mut usize, properties: *const PoolProperties) -> i32 {
    call("cuMemPoolCreate", Needs::Init, format_args!(""), |call| {
        if properties.is_null() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "a pool needs properties"));
        }
        // SAFETY: the driver's contract.
        let properties = unsafe { properties.read() };
        if (properties.allocation, properties.location) != (1, 1) {
            return Err(Code::INVALID_VALUE.into());
        }
        let device = call.check_device(properties.device)?;
        if call.settings.attribute(device, 115) == 0 {
            return Err(Code::NOT_SUPPORTED.into());
        }
        let made = call.make_pool(device);
        call.result(format_args!("device={device} pool={made:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(pool, made) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolDestroy(pool: usize) -> i32 {
    call("cuMemPoolDestroy", Needs::Init, format_args!("pool={pool:#x}"), |call| {
        if call.devices.iter().any(|device| device.default_pool == pool) {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "a default pool can't be destroyed"));
        }
        call.destroy_pool(pool)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAttribute(pool: usize, attribute: i32, value: *mut c_void) -> i32 {
    let arguments = format_args!("pool={pool:#x} attribute={attribute}");
    call("cuMemPoolSetAttribute", Needs::Init, arguments, |call| {
        if value.is_null() || !(1..=USED_HIGH).contains(&attribute) {
            return Err(Code::INVALID_VALUE.into());
        }
        let wanted = if attribute <= LAST_INT {
            // SAFETY: the driver's contract: this attribute is an int.
            u64::from(unsafe { value.cast::<u32>().read() })
        } else {
            // SAFETY: the driver's contract: this attribute has 64 bits.
            unsafe { value.cast::<u64>().read() }
        };
        call.result(format_args!("value={wanted}"));
        let is_set = call.find_pool(pool)?.set_attribute(attribute, wanted);
        if is_set { Ok(()) } else { Err(Code::INVALID_VALUE.into()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAttribute(pool: usize, attribute: i32, value: *mut c_void) -> i32 {
    let arguments = format_args!("pool={pool:#x} attribute={attribute}");
    call("cuMemPoolGetAttribute", Needs::Init, arguments, |call| {
        let known = call.find_pool(pool)?.attribute(attribute).ok_or(Code::INVALID_VALUE)?;
        if attribute <= LAST_INT {
            // SAFETY: the driver's contract.
            unsafe { write(value.cast(), i32::from(known != 0)) }
        } else {
            // SAFETY: the driver's contract.
            unsafe { write(value.cast(), known) }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolTrimTo(pool: usize, keep: usize) -> i32 {
    call("cuMemPoolTrimTo", Needs::Init, format_args!("pool={pool:#x} keep={keep}"), |call| {
        call.find_pool(pool)?.trim(keep);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: i32) -> i32 {
    call("cuDeviceGetDefaultMemPool", Needs::Init, format_args!("device={device}"), |call| {
        let number = call.check_device(device)?;
        let known = call.devices[number].default_pool;
        // SAFETY: the driver's contract.
        unsafe { write(pool, known) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut usize, device: i32) -> i32 {
    call("cuDeviceGetMemPool", Needs::Init, format_args!("device={device}"), |call| {
        let number = call.check_device(device)?;
        let known = call.devices[number].pool;
        // SAFETY: the driver's contract.
        unsafe { write(pool, known) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceSetMemPool(device: i32, pool: usize) -> i32 {
    call("cuDeviceSetMemPool", Needs::Init, format_args!("device={device} pool={pool:#x}"), |call| {
        let number = call.check_device(device)?;
        if call.find_pool(pool)?.device != number {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "the pool is another device's"));
        }
        call.devices[number].pool = pool;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) -> i32 {
    call("cuMemAllocAsync", Needs::Context, format_args!("bytes={bytes} stream={stream:#x}"), |call| {
        let context = call.context;
        let stream = call.find_stream(context, stream)?;
        let context = call.stream(stream)?.context;
        let device = call.device_of(context);
        let pool = call.devices[device].pool;
        let found = alloc_on(call, stream, pool, bytes)?;
        // SAFETY: the driver's contract.
        unsafe { write(address, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: usize, stream: usize) -> i32 {
    let arguments = format_args!("bytes={bytes} pool={pool:#x} stream={stream:#x}");
    call("cuMemAllocFromPoolAsync", Needs::Context, arguments, |call| {
        let context = call.context;
        let stream = call.find_stream(context, stream)?;
        call.find_pool(pool)?;
        let found = alloc_on(call, stream, pool, bytes)?;
        // SAFETY: the driver's contract.
        unsafe { write(address, found) }
    })
}

/// The memory is there at once: no operation stands for an allocation.
fn alloc_on(call: &mut Call, stream: usize, pool: usize, bytes: usize) -> Result<u64, Refusal> {
    call.check_captures()?;
    let context = call.stream(stream)?.context;
    let found = call.allocate(context, Some(pool), bytes)?;
    call.result(format_args!("address={found:#x}"));
    Ok(found)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> i32 {
    call("cuMemFreeAsync", Needs::Context, format_args!("address={address:#x} stream={stream:#x}"), |call| {
        let context = call.context;
        let stream = call.find_stream(context, stream)?;
        if address == 0 {
            return Ok(());
        }
        let bytes = call.check_block(address)?.bytes;
        call.check_unused(&(address..address + bytes as u64), Some(stream));
        // Behind nothing there is nothing to wait for, by hand neither.
        if call.is_idle(stream) && call.stream(stream)?.capture == Capture::None {
            call.mark_freed(address);
            call.release(address);
            return Ok(());
        }
        call.enqueue(stream, |world, _| {
            world.mark_freed(address);
            Work::Free(address)
        })?;
        Ok(())
    })
}
