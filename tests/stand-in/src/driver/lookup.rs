//! Functions by name.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{CStr, c_char, c_void};

use super::write::write;
#[allow(clippy::wildcard_imports, reason = "all of them are listed")]
use super::*;
use crate::call::{Needs, call};
use crate::code::Code;

macro_rules! functions {
    ($($name:ident,)*) => {
        /// All functions of the library, with their addresses.
        fn all() -> Vec<(&'static str, *mut c_void)> {
            vec![$((stringify!($name), $name as *mut c_void),)*]
        }
    };
}

functions! {
    cuCtxCreate_v4,
    cuCtxDestroy_v2,
    cuCtxGetCurrent,
    cuCtxGetDevice,
    cuCtxGetStreamPriorityRange,
    cuCtxPopCurrent_v2,
    cuCtxPushCurrent_v2,
    cuCtxSetCurrent,
    cuCtxSynchronize,
    cuDeviceGet,
    cuDeviceGetAttribute,
    cuDeviceGetCount,
    cuDeviceGetDefaultMemPool,
    cuDeviceGetMemPool,
    cuDeviceGetName,
    cuDeviceGetUuid,
    cuDeviceGetUuid_v2,
    cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxRetain,
    cuDeviceSetMemPool,
    cuDeviceTotalMem_v2,
    cuDriverGetVersion,
    cuEventCreate,
    cuEventDestroy_v2,
    cuEventElapsedTime,
    cuEventElapsedTime_v2,
    cuEventQuery,
    cuEventRecord,
    cuEventSynchronize,
    cuFuncGetAttribute,
    cuGetErrorName,
    cuGetErrorString,
    cuGetProcAddress_v2,
    cuGraphDestroy,
    cuInit,
    cuLaunchHostFunc,
    cuLaunchKernel,
    cuMemAllocAsync,
    cuMemAllocFromPoolAsync,
    cuMemAlloc_v2,
    cuMemFreeAsync,
    cuMemFreeHost,
    cuMemFree_v2,
    cuMemGetInfo_v2,
    cuMemHostAlloc,
    cuMemHostGetDevicePointer_v2,
    cuMemHostRegister_v2,
    cuMemHostUnregister,
    cuMemPoolCreate,
    cuMemPoolDestroy,
    cuMemPoolGetAttribute,
    cuMemPoolSetAttribute,
    cuMemPoolTrimTo,
    cuMemcpy2DAsync_v2,
    cuMemcpy3DAsync_v2,
    cuMemcpyAsync,
    cuMemcpyBatchAsync,
    cuMemcpyBatchAsync_v2,
    cuMemcpyDtoDAsync_v2,
    cuMemcpyDtoD_v2,
    cuMemcpyDtoHAsync_v2,
    cuMemcpyDtoH_v2,
    cuMemcpyHtoDAsync_v2,
    cuMemcpyHtoD_v2,
    cuMemcpyPeerAsync,
    cuMemsetD32Async,
    cuMemsetD8Async,
    cuMemsetD8_v2,
    cuModuleGetFunction,
    cuModuleLoadData,
    cuModuleUnload,
    cuPointerGetAttribute,
    cuStreamBeginCapture_v2,
    cuStreamCreate,
    cuStreamCreateWithPriority,
    cuStreamDestroy_v2,
    cuStreamEndCapture,
    cuStreamGetCtx,
    cuStreamGetFlags,
    cuStreamGetPriority,
    cuStreamIsCapturing,
    cuStreamQuery,
    cuStreamSynchronize,
    cuStreamWaitEvent,
    cuThreadExchangeStreamCaptureMode,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    _flags: u64,
    status: *mut i32,
) -> i32 {
    call("cuGetProcAddress_v2", Needs::Nothing, format_args!("version={version}"), |call| {
        if name.is_null() {
            return Err(Code::INVALID_VALUE.into());
        }
        // SAFETY: the driver's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default();
        call.result(format_args!("name={name}"));
        let found = find(name, version);
        // SAFETY: the driver's contract.
        unsafe { write(function, found.unwrap_or(std::ptr::null_mut())) }?;
        if !status.is_null() {
            // SAFETY: the driver's contract.
            unsafe { write(status, i32::from(found.is_none())) }?;
        }
        found.map(|_| ()).ok_or_else(|| Code::NOT_FOUND.into())
    })
}

/// The newest function of that name which a program of that version of CUDA knows.
fn find(name: &str, version: i32) -> Option<*mut c_void> {
    let of = |wanted: &str| all().into_iter().find(|(name, _)| *name == wanted).map(|(_, function)| function);
    // The only two whose newest version is younger than CUDA 12.
    let is_young = matches!(name, "cuMemcpyBatchAsync" | "cuEventElapsedTime");
    let newest = ["_v4", "_v2"].into_iter().find_map(|suffix| of(&format!("{name}{suffix}")));
    if is_young && version < 13_000 { of(name) } else { newest.or_else(|| of(name)) }
}
