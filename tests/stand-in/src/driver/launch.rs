//! Kernels and host functions.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_void;
use std::sync::Arc;

use crate::call::{Needs, call};
use crate::code::Code;
use crate::jobs::HostFunction;
use crate::kernels::{Prepared, find};
use crate::operation::Work;
use crate::refusal::Refusal;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: usize,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> i32 {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let arguments = format_args!("function={function:#x} grid={grid:?} block={block:?} stream={stream:#x}");
    call("cuLaunchKernel", Needs::Context, arguments, |call| {
        let context = call.context;
        let stream = call.find_stream(context, stream)?;
        let entry = call.find_function(function)?.entry.clone();
        call.result(format_args!("name={}", entry.name));
        let threads = block.iter().map(|side| u64::from(*side)).product::<u64>();
        if grid.contains(&0) || !(1..=1024).contains(&threads) || shared_bytes > 227 << 10 {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "the grid, its blocks or their memory can't be so"));
        }
        if !extra.is_null() {
            return Err(Code::NOT_SUPPORTED.into());
        }
        if params.is_null() && !entry.params.is_empty() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "the kernel has parameters, the launch has none"));
        }
        let kernel = find(&entry.name).ok_or_else(|| {
            Refusal::misuse(Code::NO_BINARY_FOR_GPU, format!("the stand-in has no version of {}", entry.name))
        })?;
        // SAFETY: the driver's contract: an argument's address for each parameter of the kernel.
        let params = unsafe { arguments_at(params, &entry.params) };
        let prepared = Arc::new(Prepared { kernel, grid, block, params });
        call.enqueue(stream, |_, _| Work::Kernel(prepared)).map(|_| ())
    })
}

/// Copies arguments of those sizes.
///
/// # Safety
///
/// There is an address for each, of an argument of that size.
unsafe fn arguments_at(params: *const *const c_void, sizes: &[usize]) -> Vec<Vec<u8>> {
    if sizes.is_empty() {
        return Vec::new();
    }
    // SAFETY: the caller's contract.
    let addresses = unsafe { std::slice::from_raw_parts(params, sizes.len()) };
    // SAFETY: the caller's contract.
    let copied =
        |at: &*const c_void, bytes: usize| unsafe { std::slice::from_raw_parts(at.cast::<u8>(), bytes) }.to_vec();
    addresses.iter().zip(sizes).map(|(at, bytes)| copied(at, *bytes)).collect()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    stream: usize,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> i32 {
    call("cuLaunchHostFunc", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        let context = call.context;
        let stream = call.find_stream(context, stream)?;
        let function = function.ok_or_else(|| Refusal::misuse(Code::INVALID_VALUE, "there is no function"))?;
        let host = HostFunction { function, data: data.expose_provenance() };
        call.enqueue(stream, |_, _| Work::Host(host)).map(|_| ())
    })
}
