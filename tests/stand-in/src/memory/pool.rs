//! [`Pool`]: how much a memory pool holds and how much of that is used. The blocks are in `device.rs`.

use std::collections::BTreeMap;

use crate::code::Code;
use crate::refusal::Refusal;
use crate::world::World;

pub(crate) const RELEASE_THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
pub(crate) const USED_HIGH: i32 = 8;

/// A pool. One that is destroyed stays while blocks of it are used.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    has_handle: bool,
    /// What it holds of the device's memory, used or not.
    pub(crate) reserved: usize,
    /// What blocks take, those included whose free is queued.
    used: usize,
    high: (usize, usize),
    /// Reuse rules and the release threshold, by number.
    set: BTreeMap<i32, u64>,
}

impl Pool {
    pub(crate) fn attribute(&self, number: i32) -> Option<u64> {
        Some(match number {
            1..=3 => self.set.get(&number).copied().unwrap_or(1),
            RELEASE_THRESHOLD => self.set.get(&number).copied().unwrap_or(0),
            RESERVED => self.reserved as u64,
            RESERVED_HIGH => self.high.0 as u64,
            USED => self.used as u64,
            USED_HIGH => self.high.1 as u64,
            _ => return None,
        })
    }

    /// Whether that attribute can be set so.
    pub(crate) fn set_attribute(&mut self, number: i32, value: u64) -> bool {
        match (number, value) {
            (1..=RELEASE_THRESHOLD, _) => _ = self.set.insert(number, value),
            (RESERVED_HIGH, 0) => self.high.0 = self.reserved,
            (USED_HIGH, 0) => self.high.1 = self.used,
            _ => return false,
        }
        true
    }

    /// Gives back what is not used, down to so many bytes.
    pub(crate) fn trim(&mut self, keep: usize) {
        self.reserved = self.reserved.min(self.used.max(keep));
    }

    fn threshold(&self) -> usize {
        usize::try_from(self.attribute(RELEASE_THRESHOLD).unwrap_or(0)).unwrap_or(usize::MAX)
    }
}

impl World {
    pub(crate) fn make_pool(&mut self, device: usize) -> usize {
        let handle = self.new_handle();
        let set = BTreeMap::new();
        self.pools.insert(handle, Pool { device, has_handle: true, reserved: 0, used: 0, high: (0, 0), set });
        handle
    }

    pub(crate) fn find_pool(&mut self, handle: usize) -> Result<&mut Pool, Refusal> {
        let pool = self.pools.get_mut(&handle).filter(|pool| pool.has_handle);
        pool.ok_or_else(|| Refusal::misuse(Code::INVALID_HANDLE, format!("{handle:#x} is no memory pool")))
    }

    pub(crate) fn destroy_pool(&mut self, handle: usize) -> Result<(), Refusal> {
        let pool = self.find_pool(handle)?;
        pool.has_handle = false;
        pool.trim(0);
        let device = pool.device;
        if pool.used == 0 {
            self.pools.remove(&handle);
        }
        if let Some(device) = self.devices.get_mut(device)
            && device.pool == handle
        {
            device.pool = device.default_pool;
        }
        Ok(())
    }

    /// Takes device memory for a block: from what its pool holds, then from what is free, then from what other pools hold
    /// for nothing.
    pub(super) fn reserve(&mut self, device: usize, pool: Option<usize>, bytes: usize) -> Result<(), Refusal> {
        let spare = pool.and_then(|pool| self.pools.get(&pool)).map_or(0, |pool| pool.reserved - pool.used);
        let mut missing = bytes.saturating_sub(spare);
        if missing > self.free_memory(device) {
            for (handle, other) in &mut self.pools {
                if other.device == device && Some(*handle) != pool {
                    other.trim(0);
                }
            }
        }
        if missing > self.free_memory(device) {
            return Err(Code::OUT_OF_MEMORY.into());
        }
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(&pool)) {
            pool.used += bytes;
            missing = pool.used.saturating_sub(pool.reserved);
            pool.reserved += missing;
            pool.high = (pool.high.0.max(pool.reserved), pool.high.1.max(pool.used));
        }
        Ok(())
    }

    /// A block of that pool is gone.
    pub(super) fn unreserve(&mut self, pool: Option<usize>, bytes: usize) {
        let Some(handle) = pool else { return };
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        pool.used = pool.used.saturating_sub(bytes);
        if !pool.has_handle {
            pool.trim(0);
            if pool.used == 0 {
                self.pools.remove(&handle);
            }
        }
    }

    /// Gives back what pools hold above their thresholds, as the driver does when something is waited for.
    pub(crate) fn trim_pools(&mut self) {
        for pool in self.pools.values_mut() {
            let keep = pool.threshold();
            pool.trim(keep);
        }
    }
}
