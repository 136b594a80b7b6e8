//! [`Driver`]: the functions of CUDA's driver library that we call, found by name when a device is opened.
//!
//! Calls go through this table and not through cudarc's bindings: their return type is a closed enum, for which a code
//! of a newer driver is undefined behaviour, and a missing symbol is a panic there. Here it is a number and an error.
#![expect(unsafe_code, reason = "calls functions of a foreign library")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmemoryPool, CUmodule, CUstream};
use libloading::Library;

use super::super::Fault;
use super::batch::BatchCopy;
use super::open::Unavailable;
use super::shapes::{BoxCopy, PlaneCopy};

/// The oldest driver that we accept, as the driver counts: 1000 × major + 10 × minor. Our kernels' PTX needs it.
const OLDEST: c_int = 12_000;

#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so", "libcuda.so.1"];
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];

/// What cudarc calls on the paths that we and users of its streams take: looked for before cudarc's first call, since it
/// panics where one is missing.
const CUDARC: &[&str] = &[
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuMemAllocAsync",
    "cuMemcpyAsync",
    "cuMemsetD8Async",
    "cuStreamCreate",
];

/// The properties of a memory pool, as the driver reads them.
#[repr(C)]
#[derive(Debug)]
pub(super) struct PoolProperties {
    pub(super) allocation: c_int,
    pub(super) handles: c_int,
    pub(super) location: c_int,
    pub(super) device: c_int,
    pub(super) security: *mut c_void,
    pub(super) most: usize,
    pub(super) reserved: [u8; 56],
}

macro_rules! driver {
    ($($name:ident = $symbol:ident($($argument:ident: $type:ty),*);)*) => {
        /// The driver's functions. Each method is the function of that symbol, with its code as a [`Fault`].
        #[derive(Debug)]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
            version: c_int,
            pub(super) batch: BatchCopy,
        }

        impl Driver {
            fn find(library: &Library, version: c_int) -> Result<Self, Unavailable> {
                Ok(Self { $($name: symbol(library, stringify!($symbol))?,)* version, batch: BatchCopy::find(library) })
            }

            $(
                /// # Safety
                ///
                /// What the driver's manual asks for: handles that live, addresses that are valid as long as they are used.
                #[allow(clippy::too_many_arguments, reason = "a launch has eleven")]
                pub(super) unsafe fn $name(&self, $($argument: $type),*) -> Result<(), Fault> {
                    // SAFETY: the caller's contract; the signature is the one of the driver's manual.
                    match unsafe { (self.$name)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(Fault::new(code, stringify!($symbol))),
                    }
                }
            )*
        }
    };
}

driver! {
    init = cuInit(flags: c_uint);
    device_count = cuDeviceGetCount(count: *mut c_int);
    device_get = cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    device_name = cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    device_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    device_memory = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    context_current = cuCtxGetCurrent(context: *mut CUcontext);
    context_set = cuCtxSetCurrent(context: CUcontext);
    context_push = cuCtxPushCurrent_v2(context: CUcontext);
    context_pop = cuCtxPopCurrent_v2(context: *mut CUcontext);
    priorities = cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    stream_create = cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    stream_destroy = cuStreamDestroy_v2(stream: CUstream);
    stream_synchronize = cuStreamSynchronize(stream: CUstream);
    stream_wait = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    stream_capturing = cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
    event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    event_destroy = cuEventDestroy_v2(event: CUevent);
    event_record = cuEventRecord(event: CUevent, stream: CUstream);
    event_query = cuEventQuery(event: CUevent);
    memory_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    pool_create = cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const PoolProperties);
    pool_destroy = cuMemPoolDestroy(pool: CUmemoryPool);
    pool_set = cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    pool_alloc = cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    pool_free = cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    memory_alloc = cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    memory_free = cuMemFree_v2(address: CUdeviceptr);
    host_alloc = cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = cuMemFreeHost(address: *mut c_void);
    host_register = cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    host_unregister = cuMemHostUnregister(address: *mut c_void);
    copy_to_device = cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    copy_to_host = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    copy_on_device = cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    copy_plane = cuMemcpy2DAsync_v2(rows: *const PlaneCopy, stream: CUstream);
    copy_box = cuMemcpy3DAsync_v2(planes: *const BoxCopy, stream: CUstream);
    module_load = cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    module_unload = cuModuleUnload(module: CUmodule);
    module_function = cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    launch = cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream,
        parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
    error_string = cuGetErrorString(code: c_int, text: *mut *const c_char);
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

impl Driver {
    /// The driver, opened and initialised once a process.
    pub(super) fn open() -> Result<&'static Self, Unavailable> {
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let driver = Self::load()?;
        // SAFETY: no other call of the driver was made; 0 is the only value that the flags may have.
        unsafe { driver.init(0) }.map_err(Unavailable::init)?;
        Ok(DRIVER.get_or_init(|| driver))
    }

    fn load() -> Result<Self, Unavailable> {
        let library = library()?;
        // The version comes first: an old driver lacks symbols, and that it is old says more than which.
        let version_of: unsafe extern "C" fn(*mut c_int) -> c_int = symbol(&library, "cuDriverGetVersion")?;
        let mut version = 0;
        // SAFETY: this function may be called before `cuInit`, and writes a number.
        let code = unsafe { version_of(&raw mut version) };
        if code != 0 {
            return Err(Unavailable::init(Fault::new(code, "cuDriverGetVersion")));
        }
        if version < OLDEST {
            return Err(Unavailable::too_old(version, OLDEST));
        }
        let driver = Self::find(&library, version)?;
        for name in CUDARC {
            symbol::<unsafe extern "C" fn()>(&library, name)?;
        }
        // Never closed: its functions are kept, and the driver has threads of its own.
        let _ = std::mem::ManuallyDrop::new(library);
        Ok(driver)
    }

    /// The newest CUDA that the driver knows, as major and minor version.
    pub(super) const fn version(&self) -> (u32, u32) {
        let version = self.version.unsigned_abs();
        (version / 1000, version % 1000 / 10)
    }
}

pub(super) fn library() -> Result<Library, Unavailable> {
    let (mut said, mut absent) = (Vec::new(), true);
    for name in NAMES {
        // SAFETY: the driver's library does nothing when it is loaded that could be unsound.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) => {
                let cause = std::error::Error::source(&error);
                absent &= is_absent(name, cause);
                said.push(cause.map_or_else(|| error.to_string(), ToString::to_string));
            }
        }
    }
    Err(Unavailable::no_library(&said.join("; "), absent))
}

/// Whether the loader has found no file of that name; else there is one, and it is broken.
fn is_absent(name: &str, cause: Option<&(dyn std::error::Error + 'static)>) -> bool {
    const MODULE_NOT_FOUND: i32 = 126;
    let Some(cause) = cause else { return true };
    if let Some(error) = cause.downcast_ref::<std::io::Error>() {
        return error.raw_os_error() == Some(MODULE_NOT_FOUND);
    }
    // The system's own words for it, in the language that it speaks.
    let no_such_file = std::io::Error::from_raw_os_error(2).to_string();
    let no_such_file = no_such_file.split(" (os").next().unwrap_or_default();
    let text = cause.to_string();
    cfg!(target_os = "macos") || (text.contains(name) && text.contains(no_such_file))
}

fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F, Unavailable> {
    // SAFETY: each caller names a function of the driver and its signature.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| Unavailable::no_symbol(name))
}

/// What the driver says a code means, if a driver was opened.
pub(crate) fn describe(code: i32) -> Option<&'static str> {
    let driver = DRIVER.get()?;
    let mut text = std::ptr::null();
    // SAFETY: any number may be asked for; the answer is a text that is never freed, or null.
    unsafe { driver.error_string(code, &raw mut text) }.ok()?;
    if text.is_null() {
        return None;
    }
    // SAFETY: the driver's texts end with a 0 and are never freed.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_str().ok()
}
