//! Device memory filled with one value.
#![expect(unsafe_code, reason = "exports C functions")]

use super::copy::now;
use crate::call::{Call, Needs, call};
use crate::operation::{Fill, Work};
use crate::refusal::Refusal;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(to: u64, value: u8, times: usize, stream: usize) -> i32 {
    let arguments = format_args!("to={to:#x} value={value} bytes={times} stream={stream:#x}");
    call("cuMemsetD8Async", Needs::Context, arguments, |call| fill(call, to, &[value], times, Some(stream)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(to: u64, value: u32, times: usize, stream: usize) -> i32 {
    let arguments = format_args!("to={to:#x} value={value} bytes={} stream={stream:#x}", times.wrapping_mul(4));
    let pattern = value.to_ne_bytes();
    call("cuMemsetD32Async", Needs::Context, arguments, |call| fill(call, to, &pattern, times, Some(stream)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(to: u64, value: u8, times: usize) -> i32 {
    let arguments = format_args!("to={to:#x} value={value} bytes={times}");
    call("cuMemsetD8_v2", Needs::Context, arguments, |call| fill(call, to, &[value], times, None))
}

/// Fills on a stream, or on the default stream and waits.
fn fill(call: &mut Call, to: u64, pattern: &[u8], times: usize, stream: Option<usize>) -> Result<(), Refusal> {
    let fill = Fill { to, pattern: pattern.to_vec(), times };
    let context = call.context;
    let stream = stream.map(|stream| call.find_stream(context, stream)).transpose()?;
    if times > 0 {
        call.check_device_range(to, pattern.len().saturating_mul(times))?;
    }
    match stream {
        Some(stream) => call.enqueue(stream, |_, _| Work::Fill(fill)).map(|_| ()),
        None => {
            call.check_captures()?;
            now(call, Work::Fill(fill))
        }
    }
}
