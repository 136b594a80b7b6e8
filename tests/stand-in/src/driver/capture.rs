//! Captures of streams into graphs.
#![expect(unsafe_code, reason = "exports C functions")]

use super::write::write;
use crate::call::{Needs, call};
use crate::capture::{Capture, GLOBAL, RELAXED};
use crate::code::Code;
use crate::refusal::Refusal;
use crate::thread;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: i32) -> i32 {
    let arguments = format_args!("stream={stream:#x} mode={mode}");
    call("cuStreamBeginCapture_v2", Needs::Context, arguments, |call| {
        if stream <= 1 {
            return Err(Code::CAPTURE_UNSUPPORTED.into());
        }
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{mode} is no capture mode")));
        }
        let context = call.context;
        let found = call.find_stream(context, stream)?;
        let capture = &mut call.stream(found)?.capture;
        if *capture != Capture::None {
            return Err(Refusal::misuse(Code::ILLEGAL_STATE, "the stream is being captured already"));
        }
        *capture = Capture::Active { mode, thread: thread::number() };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> i32 {
    call("cuStreamEndCapture", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let context = call.context;
        let found = call.find_stream(context, stream)?;
        let capture = std::mem::replace(&mut call.stream(found)?.capture, Capture::None);
        match capture {
            Capture::None => Err(Refusal::misuse(Code::ILLEGAL_STATE, "the stream is not being captured")),
            Capture::Invalidated { .. } => {
                // SAFETY: the driver's contract.
                unsafe { write(graph, 0) }?;
                Err(Code::CAPTURE_INVALIDATED.into())
            }
            Capture::Active { mode, thread } if mode != RELAXED && thread != thread::number() => {
                call.stream(found)?.capture = capture;
                Err(Refusal::misuse(Code(908), "another thread has begun the capture"))
            }
            Capture::Active { .. } => {
                let handle = call.new_handle();
                call.graphs.insert(handle);
                call.result(format_args!("graph={handle:#x}"));
                // SAFETY: the driver's contract.
                unsafe { write(graph, handle) }
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut i32) -> i32 {
    call("cuStreamIsCapturing", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let context = call.context;
        let found = call.find_stream(context, stream)?;
        let now = match call.stream(found)?.capture {
            Capture::None => 0,
            Capture::Active { .. } => 1,
            Capture::Invalidated { .. } => 2,
        };
        call.result(format_args!("status={now}"));
        // SAFETY: the driver's contract.
        unsafe { write(status, now) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: usize) -> i32 {
    call("cuGraphDestroy", Needs::Init, format_args!("graph={graph:#x}"), |call| {
        let unknown = || Refusal::misuse(Code::INVALID_HANDLE, format!("{graph:#x} is no graph"));
        call.graphs.remove(&graph).then_some(()).ok_or_else(unknown)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) -> i32 {
    call("cuThreadExchangeStreamCaptureMode", Needs::Init, format_args!(""), |call| {
        if mode.is_null() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "there is no mode"));
        }
        // SAFETY: the driver's contract.
        let wanted = unsafe { mode.read() };
        if !(GLOBAL..=RELAXED).contains(&wanted) {
            return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{wanted} is no capture mode")));
        }
        let before = thread::exchange_capture_mode(wanted);
        call.result(format_args!("mode={wanted} before={before}"));
        // SAFETY: the driver's contract.
        unsafe { write(mode, before) }
    })
}
