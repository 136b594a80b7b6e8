//! Events.
#![expect(unsafe_code, reason = "exports C functions")]

use std::sync::Arc;

use super::write::write;
use crate::call::{Call, Needs, call};
use crate::capture::Capture;
use crate::code::Code;
use crate::event::{Event, Latest, NO_TIMING, Record};
use crate::operation::Work;
use crate::refusal::Refusal;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, flags: u32) -> i32 {
    call("cuEventCreate", Needs::Context, format_args!("flags={flags}"), |call| {
        if flags > 7 {
            return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{flags} are no flags of an event")));
        }
        let (handle, context) = (call.new_handle(), call.context);
        call.events.insert(handle, Event { context, flags, latest: Latest::Never });
        call.result(format_args!("event={handle:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(event, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: usize) -> i32 {
    call("cuEventDestroy_v2", Needs::Context, format_args!("event={event:#x}"), |call| {
        call.find_event(event)?;
        call.events.remove(&event);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: usize, stream: usize) -> i32 {
    let arguments = format_args!("event={event:#x} stream={stream:#x}");
    call("cuEventRecord", Needs::Context, arguments, |call| {
        let context = call.context;
        let found = call.find_stream(context, stream)?;
        let stream = call.stream(found)?;
        let (context, is_captured) = (stream.context, matches!(stream.capture, Capture::Active { .. }));
        let known = call.find_event(event)?;
        if known.context != context {
            return Err(Refusal::misuse(Code::INVALID_HANDLE, "event and stream are of different contexts"));
        }
        if is_captured {
            known.latest = Latest::Captured;
            return Ok(());
        }
        call.enqueue(found, |world, number| {
            let record = Arc::new(Record::new(found, number));
            // While this waited for room the event may have been destroyed.
            if let Some(event) = world.events.get_mut(&event) {
                event.latest = Latest::Record(record.clone());
            }
            Work::Record(record)
        })?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: usize) -> i32 {
    call("cuEventQuery", Needs::Context, format_args!("event={event:#x}"), |call| {
        call.check_captures()?;
        match latest(call, event)? {
            Some(record) => record.done().map(|_| ()).ok_or_else(|| Code::NOT_READY.into()),
            None => {
                call.counts.unrecorded_queries += 1;
                Ok(())
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: usize) -> i32 {
    call("cuEventSynchronize", Needs::Context, format_args!("event={event:#x}"), |call| {
        call.check_captures()?;
        if let Some(record) = latest(call, event)? {
            let context = call.find_event(event)?.context;
            call.wait_until(|_| record.done().is_some());
            call.check_context(context)?;
            call.trim_pools();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) -> i32 {
    let arguments = format_args!("start={start:#x} end={end:#x}");
    call("cuEventElapsedTime", Needs::Context, arguments, |call| {
        let time = elapsed(call, start, end)?;
        // SAFETY: the driver's contract.
        unsafe { write(milliseconds, time) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: usize, end: usize) -> i32 {
    let arguments = format_args!("start={start:#x} end={end:#x}");
    call("cuEventElapsedTime_v2", Needs::Context, arguments, |call| {
        let time = elapsed(call, start, end)?;
        // SAFETY: the driver's contract.
        unsafe { write(milliseconds, time) }
    })
}

/// In milliseconds; negative where the end was first.
fn elapsed(call: &mut Call, start: usize, end: usize) -> Result<f32, Refusal> {
    let mut times = Vec::new();
    for event in [start, end] {
        let is_timed = call.find_event(event)?.flags & NO_TIMING == 0;
        let record = latest(call, event)?.filter(|_| is_timed);
        let untimed = || Refusal::misuse(Code::INVALID_HANDLE, format!("event {event:#x} has no time"));
        times.push(record.ok_or_else(untimed)?);
    }
    let (Some(from), Some(to)) = (times[0].done(), times[1].done()) else { return Err(Code::NOT_READY.into()) };
    let milliseconds =
        |later: std::time::Instant, earlier| later.saturating_duration_since(earlier).as_secs_f32() * 1e3;
    Ok(if to >= from { milliseconds(to, from) } else { -milliseconds(from, to) })
}

/// The record that counts for the event now; `None` if there is none yet.
fn latest(call: &mut Call, event: usize) -> Result<Option<Arc<Record>>, Refusal> {
    match &call.find_event(event)?.latest {
        Latest::Never => Ok(None),
        Latest::Captured => Err(Code::CAPTURED_EVENT.into()),
        Latest::Record(record) => Ok(Some(record.clone())),
    }
}
