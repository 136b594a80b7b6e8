//! Streams.
#![expect(unsafe_code, reason = "exports C functions")]

use super::write::write;
use crate::call::{Call, Needs, call};
use crate::capture::Capture;
use crate::code::Code;
use crate::event::Latest;
use crate::operation::Work;
use crate::refusal::Refusal;

/// The least is 0.
pub(super) const GREATEST_PRIORITY: i32 = -5;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut usize, flags: u32) -> i32 {
    call("cuStreamCreate", Needs::Context, format_args!("flags={flags}"), |call| {
        let made = make(call, flags, 0)?;
        // SAFETY: the driver's contract.
        unsafe { write(stream, made) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut usize, flags: u32, priority: i32) -> i32 {
    let arguments = format_args!("flags={flags} priority={priority}");
    call("cuStreamCreateWithPriority", Needs::Context, arguments, |call| {
        let made = make(call, flags, priority.clamp(GREATEST_PRIORITY, 0))?;
        // SAFETY: the driver's contract.
        unsafe { write(stream, made) }
    })
}

fn make(call: &mut Call, flags: u32, priority: i32) -> Result<usize, Refusal> {
    if flags > 1 {
        return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{flags} are no flags of a stream")));
    }
    let context = call.context;
    let made = call.make_stream(context, flags, priority);
    call.result(format_args!("stream={made:#x}"));
    Ok(made)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetPriority(stream: usize, priority: *mut i32) -> i32 {
    call("cuStreamGetPriority", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let found = find(call, stream)?;
        let known = call.stream(found)?.priority;
        // SAFETY: the driver's contract.
        unsafe { write(priority, known) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetFlags(stream: usize, flags: *mut u32) -> i32 {
    call("cuStreamGetFlags", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let found = find(call, stream)?;
        let known = call.stream(found)?.flags;
        // SAFETY: the driver's contract.
        unsafe { write(flags, known) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(stream: usize, context: *mut usize) -> i32 {
    call("cuStreamGetCtx", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let found = find(call, stream)?;
        let known = call.stream(found)?.context;
        // SAFETY: the driver's contract.
        unsafe { write(context, known) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: usize) -> i32 {
    call("cuStreamDestroy_v2", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        if stream <= 2 {
            return Err(Refusal::misuse(Code::INVALID_HANDLE, "a default stream can't be destroyed"));
        }
        let found = find(call, stream)?;
        let destroyed = call.stream(found)?;
        destroyed.has_handle = false;
        destroyed.capture = Capture::None;
        if !destroyed.is_kept() {
            call.streams.remove(&found);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: usize) -> i32 {
    call("cuStreamSynchronize", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let found = find(call, stream)?;
        call.check_not_captured(found)?;
        call.check_captures()?;
        let newest = call.stream(found)?.enqueued;
        call.wait_for(found, newest)?;
        call.trim_pools();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: usize) -> i32 {
    call("cuStreamQuery", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let found = find(call, stream)?;
        call.check_not_captured(found)?;
        call.check_captures()?;
        if call.is_idle(found) { Ok(()) } else { Err(Code::NOT_READY.into()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> i32 {
    let arguments = format_args!("stream={stream:#x} event={event:#x} flags={flags}");
    call("cuStreamWaitEvent", Needs::Context, arguments, |call| {
        let found = find(call, stream)?;
        // An event that was never recorded, or in a capture only, is none to wait for.
        if let Latest::Record(record) = call.find_event(event)?.latest.clone() {
            call.enqueue(found, |_, _| Work::Wait(record))?;
        }
        Ok(())
    })
}

fn find(call: &mut Call, stream: usize) -> Result<usize, Refusal> {
    let context = call.context;
    call.find_stream(context, stream)
}
