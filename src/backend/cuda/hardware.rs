//! [`Hardware`]: what kind of GPU it is, as the driver says.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::ffi::{CStr, c_char, c_int};

use super::driver::Driver;
use super::open::Unavailable;
use crate::backend::Fault;

/// Device attributes, by the driver's numbers.
const MOST_PITCH: c_int = 11;
const MULTIPROCESSORS: c_int = 16;
const INTEGRATED: c_int = 18;
const CAPABILITY: (c_int, c_int) = (75, 76);
const PAGEABLE_ACCESS: c_int = 88;
const REGISTERED_POINTERS: c_int = 91;
const HOST_PAGE_TABLES: c_int = 100;
const MEMORY_POOLS: c_int = 115;

/// A GPU and its driver, as [`Stats::hardware`](crate::Stats::hardware) tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hardware {
    /// The model's name.
    pub model: String,
    /// Its number among the GPUs that the process sees.
    pub ordinal: usize,
    /// The compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Its memory in bytes.
    pub memory_bytes: usize,
    /// Whether it shares memory with the host, and how.
    pub unified_memory: UnifiedMemory,
    /// The newest CUDA version that the driver knows, major and minor.
    pub driver_version: (u32, u32),
    pub(super) memory_pools: bool,
    /// Bytes from one row to the next in copies of rows, at most.
    pub(super) most_pitch: usize,
    /// Kernels reach page-locked memory of the host where the host has it.
    pub(super) reads_registered: bool,
    pub(super) multiprocessors: u32,
}

/// Whether a GPU shares memory with the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnifiedMemory {
    /// Memory of its own, behind a bus.
    None,
    /// Memory of its own, and the host's through the host's page tables (GH200, GB200).
    Coherent,
    /// The host's memory is its memory (GB10, Jetson).
    Integrated,
}

impl Hardware {
    pub(super) fn read(driver: &Driver, device: c_int, ordinal: usize) -> Result<Self, Fault> {
        let attribute = |number| attribute(driver, device, number);
        let unsigned = |number| attribute(number).map(c_int::unsigned_abs);
        let unified_memory = if attribute(INTEGRATED)? != 0 {
            UnifiedMemory::Integrated
        } else if attribute(PAGEABLE_ACCESS)? != 0 && attribute(HOST_PAGE_TABLES)? != 0 {
            UnifiedMemory::Coherent
        } else {
            UnifiedMemory::None
        };
        let mut memory_bytes = 0;
        // SAFETY: the number is written.
        unsafe { driver.device_memory(&raw mut memory_bytes, device) }?;
        Ok(Self {
            model: name(driver, device)?,
            ordinal,
            compute_capability: (unsigned(CAPABILITY.0)?, unsigned(CAPABILITY.1)?),
            memory_bytes,
            unified_memory,
            driver_version: driver.version(),
            memory_pools: attribute(MEMORY_POOLS)? != 0,
            most_pitch: usize::try_from(attribute(MOST_PITCH)?).unwrap_or(0),
            reads_registered: attribute(REGISTERED_POINTERS)? != 0,
            multiprocessors: unsigned(MULTIPROCESSORS)?,
        })
    }
}

/// The driver's handle of the device of that ordinal.
pub(super) fn device(driver: &Driver, ordinal: usize) -> Result<c_int, Unavailable> {
    let failed = |fault| Unavailable::call(fault, &format!("cuda:{ordinal}"));
    let mut count = 0;
    // SAFETY: the number is written.
    unsafe { driver.device_count(&raw mut count) }.map_err(failed)?;
    if count == 0 {
        return Err(Unavailable::no_device("the driver finds no CUDA device".to_owned()));
    }
    let number = c_int::try_from(ordinal).ok().filter(|number| *number < count);
    let number = number.ok_or_else(|| Unavailable::no_ordinal(ordinal, count))?;
    let mut device = 0;
    // SAFETY: the handle is written.
    unsafe { driver.device_get(&raw mut device, number) }.map_err(failed)?;
    Ok(device)
}

fn attribute(driver: &Driver, device: c_int, number: c_int) -> Result<c_int, Fault> {
    let mut value = 0;
    // SAFETY: the number is written.
    unsafe { driver.device_attribute(&raw mut value, number, device) }?;
    Ok(value)
}

fn name(driver: &Driver, device: c_int) -> Result<String, Fault> {
    let mut text = [0_u8; 256];
    // SAFETY: at most so many bytes are written.
    unsafe { driver.device_name(text.as_mut_ptr().cast::<c_char>(), 256, device) }?;
    let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy);
    Ok(text.map_or_else(|_| String::new(), std::borrow::Cow::into_owned))
}
