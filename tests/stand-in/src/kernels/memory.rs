//! [`Memory`]: what kernels reach: the memory of all devices, and page-locked memory of the host.
#![expect(unsafe_code, reason = "reads and writes memory of the caller's")]

use crate::world::{World, lock};

/// Memory by address. It is locked for each access alone.
#[derive(Debug)]
pub(super) struct Memory;

impl Memory {
    /// So many bytes, if all of them are there.
    pub(super) fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        if bytes == 0 {
            return Some(Vec::new());
        }
        let world = lock();
        let Some(content) = world.device.content(address, bytes) else {
            let start = page_locked(&world, address, bytes)? as *const u8;
            // SAFETY: page-locked memory stays while the world, which knows it, is locked.
            return Some(unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec());
        };
        drop(world);
        content.look(<[u8]>::to_vec)
    }

    /// Writes, if there is memory for all of it.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let world = lock();
        let Some(content) = world.device.content(address, bytes.len()) else {
            let Some(start) = page_locked(&world, address, bytes.len()) else { return false };
            // SAFETY: as in `read`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
            return true;
        };
        drop(world);
        content.change(|to| to.copy_from_slice(bytes));
        true
    }
}

fn page_locked(world: &World, address: u64, bytes: usize) -> Option<usize> {
    let start = usize::try_from(address).ok()?;
    matches!(world.host.is_locked(start, bytes), Ok(true)).then_some(start)
}
