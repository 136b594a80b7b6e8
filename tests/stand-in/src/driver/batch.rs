//! Copies of many pieces in one call. The function had another signature before CUDA 13.
#![expect(unsafe_code, reason = "exports C functions")]

use super::copy::copy;
use super::write::write;
use crate::call::{Call, Needs, call};
use crate::code::Code;
use crate::copy::End;
use crate::refusal::Refusal;

/// How a run of copies is to be made: when sources may be read, hints of where the memory is, flags.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyAttributes {
    order: i32,
    from: [i32; 2],
    to: [i32; 2],
    flags: u32,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyBatchAsync(
    to: *const u64,
    from: *const u64,
    bytes: *const usize,
    count: usize,
    attributes: *const CopyAttributes,
    starts: *const usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: usize,
) -> i32 {
    let arguments = format_args!("count={count} attributes={attribute_count} stream={stream:#x}");
    call("cuMemcpyBatchAsync", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        let made = unsafe { batch(call, (to, from, bytes, count), (attributes, starts, attribute_count), stream) };
        if made.is_err() && !failed.is_null() {
            // No one piece is to blame.
            // SAFETY: the driver's contract.
            unsafe { write(failed, usize::MAX) }?;
        }
        made
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyBatchAsync_v2(
    to: *const u64,
    from: *const u64,
    bytes: *const usize,
    count: usize,
    attributes: *const CopyAttributes,
    starts: *const usize,
    attribute_count: usize,
    stream: usize,
) -> i32 {
    let arguments = format_args!("count={count} attributes={attribute_count} stream={stream:#x}");
    call("cuMemcpyBatchAsync_v2", Needs::Context, arguments, |call| {
        // SAFETY: the driver's contract.
        unsafe { batch(call, (to, from, bytes, count), (attributes, starts, attribute_count), stream) }
    })
}

/// # Safety
///
/// The arrays have as many elements as said, and all that [`copy`] asks for.
unsafe fn batch(
    call: &mut Call,
    (to, from, bytes, count): (*const u64, *const u64, *const usize, usize),
    (attributes, starts, attribute_count): (*const CopyAttributes, *const usize, usize),
    stream: usize,
) -> Result<(), Refusal> {
    let wrong = |what: &str| Err(Refusal::misuse(Code::INVALID_VALUE, what));
    if stream <= 1 {
        return wrong("a batch can't be copied on the default stream");
    }
    if count == 0 || attribute_count == 0 || attribute_count > count {
        return wrong("there must be copies, and attributes, not more than copies");
    }
    if to.is_null() || from.is_null() || bytes.is_null() || attributes.is_null() || starts.is_null() {
        return wrong("an array is missing");
    }
    // SAFETY: the caller's contract.
    let attributes = unsafe { std::slice::from_raw_parts(attributes, attribute_count) };
    // SAFETY: the caller's contract.
    let starts = unsafe { std::slice::from_raw_parts(starts, attribute_count) };
    let are_in_order = starts.is_sorted_by(|a, b| a < b) && starts.first() == Some(&0) && starts.last() < Some(&count);
    if !are_in_order || attributes.iter().any(|attributes| !(1..=3).contains(&attributes.order)) {
        return wrong("attributes start at copy 0 and go on in order, and say when sources may be read");
    }
    // SAFETY: the caller's contract.
    let to = unsafe { std::slice::from_raw_parts(to, count) };
    // SAFETY: the caller's contract.
    let from = unsafe { std::slice::from_raw_parts(from, count) };
    // SAFETY: the caller's contract.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, count) };
    let pieces = to.iter().zip(from).zip(bytes);
    let parts: Vec<_> = pieces.map(|((to, from), bytes)| (End::Either(*to), End::Either(*from), *bytes)).collect();
    call.result(format_args!("bytes={}", bytes.iter().sum::<usize>()));
    // SAFETY: the caller's contract.
    unsafe { copy(call, stream, &parts) }
}
