//! Memory: device blocks from a pool of our own, page-locked blocks from huge pages.
#![expect(unsafe_code, reason = "makes driver calls and maps memory")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::sys::{CUdevice, CUmemoryPool};
use memmap2::MmapMut;

use super::context::{Context, OurStream, Raw};
use super::driver::PoolProperties;
use crate::backend::{Fault, Memory, Span, os};
use crate::sync::{Mutex, lock};

/// Page-locked for all contexts of the process.
const PORTABLE: u32 = 1;
/// The device only reads it. Without this flag a file that is mapped shared and read-only is refused.
const READ_ONLY: u32 = 8;
/// The code for what a call can't be given.
const INVALID: i32 = 1;
/// The size of a huge page.
const HUGE: usize = 2 << 20;
/// From so many bytes on page-locked memory is mapped, touched by several threads and registered: five times faster than
/// the driver's own allocation, as measured on an H200 machine for 512 MiB.
const MAPPED: usize = 4 << 20;
/// Threads that touch it.
const TOUCHERS: usize = 8;

/// Pool attribute: whether an allocation may make its stream wait for other streams.
const ALLOW_INTERNAL_DEPENDENCIES: c_int = 3;

/// Device memory of one context. Used on staging threads only, so that it may wait for its own stream.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    context: Arc<Context>,
    /// Allocations and frees take their turns here; it is idle whenever a call returns, so a block can be used on any
    /// stream at once.
    stream: OurStream,
    /// `None` where the device has no memory pools.
    pool: Option<Raw<CUmemoryPool>>,
}

impl DeviceMemory {
    pub(super) fn new(context: &Arc<Context>, device: CUdevice, has_pools: bool) -> Result<Self, Fault> {
        let stream = context.stream(0)?;
        let mut memory = Self { context: context.clone(), stream, pool: None };
        if has_pools {
            memory.pool = Some(memory.make_pool(device)?);
        }
        Ok(memory)
    }

    fn make_pool(&self, device: CUdevice) -> Result<Raw<CUmemoryPool>, Fault> {
        let driver = self.context.driver;
        let _inside = self.context.enter()?;
        let properties = PoolProperties {
            allocation: 1,
            handles: 0,
            location: 1,
            device,
            security: std::ptr::null_mut(),
            most: 0,
            reserved: [0; 56],
        };
        let mut pool = std::ptr::null_mut();
        // SAFETY: the properties are those of pinned memory of this device; the handle is written.
        unsafe { driver.pool_create(&raw mut pool, &raw const properties) }?;
        // What is freed goes back to the system at the next call here: blocks that are worth keeping are kept by us, and
        // counted.
        let mut no: c_int = 0;
        // SAFETY: the attribute's value is an int.
        unsafe { driver.pool_set(pool, ALLOW_INTERNAL_DEPENDENCIES, (&raw mut no).cast::<c_void>()) }?;
        Ok(Raw(pool))
    }

    pub(super) fn alloc(&self, bytes: usize) -> Result<Memory, Fault> {
        let driver = self.context.driver;
        let _inside = self.context.enter()?;
        let mut address = 0;
        match self.pool {
            Some(pool) => {
                // SAFETY: pool and stream are ours; the address is written.
                unsafe { driver.pool_alloc(&raw mut address, bytes, pool.0, self.stream.raw()) }?;
                self.settle()?;
            }
            // SAFETY: the context is current; the address is written.
            None => unsafe { driver.memory_alloc(&raw mut address, bytes) }?,
        }
        Ok(Memory { ptr: std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)), bytes })
    }

    /// Waits until the allocation is there for all streams. Nothing else is ever queued here.
    fn settle(&self) -> Result<(), Fault> {
        // SAFETY: the stream is ours.
        unsafe { self.context.driver.stream_synchronize(self.stream.raw()) }
    }

    /// # Safety
    ///
    /// `memory` came from `alloc` and no pending work touches it.
    pub(super) unsafe fn free(&self, memory: &Memory) -> Result<(), Fault> {
        let driver = self.context.driver;
        let _inside = self.context.enter()?;
        let address = memory.ptr.addr() as u64;
        match self.pool {
            Some(_) => {
                // SAFETY: the caller's contract.
                unsafe { driver.pool_free(address, self.stream.raw()) }?;
                self.settle()
            }
            // SAFETY: the caller's contract.
            None => unsafe { driver.memory_free(address) },
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let (Some(pool), Ok(_inside)) = (self.pool, self.context.enter()) else { return };
        // SAFETY: the pool is ours; the driver keeps what is allocated from it until that is freed.
        let _ = unsafe { self.context.driver.pool_destroy(pool.0) };
    }
}

/// Page-locked memory of the host.
#[derive(Debug)]
pub(super) struct HostMemory {
    context: Arc<Context>,
    /// The mappings of blocks that were registered, by the blocks' addresses; others are the driver's. What is not freed
    /// was leaked on purpose, and stays mapped.
    mapped: Mutex<BTreeMap<usize, ManuallyDrop<MmapMut>>>,
}

impl HostMemory {
    pub(super) const fn new(context: Arc<Context>) -> Self {
        Self { context, mapped: Mutex::new(BTreeMap::new()) }
    }

    pub(super) fn alloc(&self, bytes: usize) -> Result<Memory, Fault> {
        if bytes >= MAPPED {
            // What is locked can't be swapped: beyond what there is the system would end processes, this one first.
            if os::available_memory().is_some_and(|available| bytes > available) {
                return Err(Fault::new(Fault::OUT_OF_MEMORY, "page-locked memory"));
            }
            if let Some(memory) = self.map(bytes) {
                return Ok(memory);
            }
        }
        let _inside = self.context.enter()?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the context is current; the address is written.
        unsafe { self.context.driver.host_alloc(&raw mut address, bytes, PORTABLE) }?;
        let ptr = address.cast::<u8>();
        // The driver does not promise that its memory is zero; what is mapped above is.
        // SAFETY: the driver has just given so many bytes, which nobody else knows.
        unsafe { ptr.write_bytes(0, bytes) };
        Ok(Memory { ptr, bytes })
    }

    /// Memory of huge pages, registered; `None` where the system or the driver does not want it so.
    fn map(&self, bytes: usize) -> Option<Memory> {
        let length = bytes.checked_next_multiple_of(HUGE)?;
        let mut mapping = MmapMut::map_anon(length.checked_add(HUGE)?).ok()?;
        // Small pages do as well, only slower.
        #[cfg(target_os = "linux")]
        let _ = mapping.advise(memmap2::Advice::HugePage);
        let start = mapping.as_ptr().align_offset(HUGE);
        let block = mapping.get_mut(start..start.checked_add(length)?)?;
        touch(block);
        let ptr = block.as_mut_ptr();
        self.lock_pages(ptr, length, PORTABLE).ok()?;
        lock(&self.mapped).insert(ptr.addr(), ManuallyDrop::new(mapping));
        Some(Memory { ptr, bytes })
    }

    /// Makes memory of the user's known.
    pub(super) fn register(&self, span: Span) -> Result<(), Fault> {
        // A private mapping that can't be written to, such as a program's constants, kept the driver busy for minutes on an
        // H200 machine.
        if !span.of_file && os::is_writable(span.start, span.bytes) == Some(false) {
            return Err(Fault::new(INVALID, "page-locking of read-only memory"));
        }
        let flags = if span.of_file { PORTABLE | READ_ONLY } else { PORTABLE };
        self.lock_pages(std::ptr::without_provenance_mut(span.start), span.bytes, flags)
    }

    fn lock_pages(&self, ptr: *mut u8, bytes: usize, flags: u32) -> Result<(), Fault> {
        let _inside = self.context.enter()?;
        // SAFETY: the memory is mapped, and stays so until it is unregistered: the callers' contract.
        unsafe { self.context.driver.host_register(ptr.cast(), bytes, flags) }
    }

    pub(super) fn unregister(&self, ptr: *mut u8) -> Result<(), Fault> {
        let _inside = self.context.enter()?;
        // SAFETY: the memory was registered from this address on.
        unsafe { self.context.driver.host_unregister(ptr.cast()) }
    }

    /// # Safety
    ///
    /// `memory` came from `alloc` and no pending work touches it.
    pub(super) unsafe fn free(&self, memory: &Memory) -> Result<(), Fault> {
        let mapping = lock(&self.mapped).remove(&memory.ptr.addr());
        if let Some(mapping) = mapping {
            // While the driver knows it, it must stay mapped.
            self.unregister(memory.ptr)?;
            drop(ManuallyDrop::into_inner(mapping));
            return Ok(());
        }
        let _inside = self.context.enter()?;
        // SAFETY: the caller's contract.
        unsafe { self.context.driver.host_free(memory.ptr.cast()) }
    }
}

/// Writes to each page, on several threads, so that the system provides them now.
fn touch(block: &mut [u8]) {
    const PAGE: usize = 4096;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(TOUCHERS);
    let share = block.len().div_ceil(threads).next_multiple_of(PAGE).max(HUGE);
    std::thread::scope(|scope| {
        for part in block.chunks_mut(share) {
            // Without a thread the pages come when they are registered.
            let _ = std::thread::Builder::new()
                .spawn_scoped(scope, move || part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0));
        }
    });
}
