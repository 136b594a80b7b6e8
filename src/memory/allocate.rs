//! Gets the block of a grant: on staging threads, since the driver may be slow at it (invariant 8).

use std::sync::atomic::Ordering;

use crate::admission::Grant;
use crate::backend::{Fault, Memory, Space};
use crate::device::{Shared, free_all};
use crate::error::{Error, Result, Returned};

/// Frees what was pushed out, and finds or allocates its block; after a failure once more without idle blocks.
pub(crate) fn block_for(device: &Shared, grant: &mut Grant) -> Result<Memory, Fault> {
    let backend = device.backend.as_ref();
    device.free_condemned();
    if let Some(memory) = grant.block.take() {
        return Ok(memory);
    }
    let memory = match backend.alloc(Space::Device, grant.bytes) {
        Ok(memory) => {
            device.counters.allocations.fetch_add(1, Ordering::Relaxed);
            memory
        }
        Err(_) => {
            let (kept, freed) = device.admission.retry(grant.bytes);
            free_all(backend, Space::Device, freed);
            kept.map_or_else(|| backend.alloc(Space::Device, grant.bytes), Ok)?
        }
    };
    device.admission.fulfilled(grant.bytes);
    Ok(memory)
}

/// The error for a block that could not be had.
pub(crate) fn out_of_memory(device: &Shared, fault: Fault, bytes: usize) -> Error {
    if fault.code == Fault::OUT_OF_MEMORY {
        let (what, device) = ("device memory", device.name.clone());
        return Error::OutOfMemory { what, bytes, limit: None, device, batch: Returned::default() };
    }
    device.fault(fault)
}
