//! Copies of bytes that lie together.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::call::{Call, Needs, call};
use crate::copy::End;
use crate::operation::Work;
use crate::refusal::Refusal;

/// The default stream, on which calls without a stream copy.
const DEFAULT: usize = 0;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: usize) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes} stream={stream:#x}");
    call("cuMemcpyHtoDAsync_v2", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { copy(call, stream, &[(End::Device(to), End::Host(from), bytes)]) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: usize) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes} stream={stream:#x}");
    call("cuMemcpyDtoHAsync_v2", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { copy(call, stream, &[(End::Host(to), End::Device(from), bytes)]) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes} stream={stream:#x}");
    call("cuMemcpyDtoDAsync_v2", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { copy(call, stream, &[(End::Device(to), End::Device(from), bytes)]) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes} stream={stream:#x}");
    call("cuMemcpyAsync", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { copy(call, stream, &[(End::Either(to), End::Either(from), bytes)]) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: usize,
    from: u64,
    from_context: usize,
    bytes: usize,
    stream: usize,
) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes} stream={stream:#x}");
    call("cuMemcpyPeerAsync", Needs::Context, arguments, |call| {
        call.check_context(to_context)?;
        call.check_context(from_context)?;
        // SAFETY: the driver's contract.
        unsafe { copy(call, stream, &[(End::Device(to), End::Device(from), bytes)]) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes}");
    call("cuMemcpyHtoD_v2", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { copy_now(call, (End::Device(to), End::Host(from), bytes)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes}");
    call("cuMemcpyDtoH_v2", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { copy_now(call, (End::Host(to), End::Device(from), bytes)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> i32 {
    let arguments = format_args!("to={to:#x} from={from:#x} bytes={bytes}");
    call("cuMemcpyDtoD_v2", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { copy_now(call, (End::Device(to), End::Device(from), bytes)) }
    })
}

/// Queues a copy of all parts as one operation; waits for it where the target is not page-locked.
///
/// # Safety
///
/// What [`World::make_copy`](crate::world::World::make_copy) asks for.
pub(super) unsafe fn copy(call: &mut Call, stream: usize, parts: &[(End, End, usize)]) -> Result<(), Refusal> {
    let context = call.context;
    let stream = call.find_stream(context, stream)?;
    // SAFETY: the caller's contract.
    let copy = unsafe { call.make_copy(parts) }?;
    let blocks = copy.blocks;
    match call.enqueue(stream, |_, _| Work::Copy(copy))? {
        Some(number) if blocks => call.wait_for(stream, number),
        _ => Ok(()),
    }
}

/// Copies on the default stream and waits. By hand too nothing is to be done for that where the stream is idle.
///
/// # Safety
///
/// What [`World::make_copy`](crate::world::World::make_copy) asks for.
unsafe fn copy_now(call: &mut Call, part: (End, End, usize)) -> Result<(), Refusal> {
    call.check_captures()?;
    // SAFETY: the caller's contract.
    let copy = unsafe { call.make_copy(&[part]) }?;
    now(call, Work::Copy(copy))
}

/// Does something on the default stream and waits for it.
pub(super) fn now(call: &mut Call, work: Work) -> Result<(), Refusal> {
    let context = call.context;
    let stream = call.find_stream(context, DEFAULT)?;
    let at_once = call.settings.manual && call.is_idle(stream);
    let Some(number) = call.enqueue(stream, |_, _| work)? else { return Ok(()) };
    if at_once {
        call.complete(stream, std::time::Instant::now());
    }
    call.wait_for(stream, number)
}
