//! [`DeviceMemory`]: blocks at addresses that nothing is mapped at, so that a host that uses one crashes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::{FREED, FRESH};
use crate::code::Code;
use crate::refusal::Refusal;
use crate::world::World;

/// Where device memory seems to be: below what Linux maps libraries at, above what programs are.
pub(crate) const DEVICE_ADDRESSES: Range<u64> = 0x7d00_0000_0000..0x7e80_0000_0000;

/// The blocks of all devices, by address. Addresses are used again only when all others were.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    blocks: BTreeMap<u64, Block>,
    cursor: u64,
}

/// A block. Kernels use its bytes while the world is not locked.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) bytes: usize,
    pub(crate) device: usize,
    pub(crate) context: usize,
    pub(crate) pool: Option<usize>,
    /// A free of it is queued: no new operation may use it.
    pub(crate) is_freed: bool,
    content: Arc<Mutex<Box<[u8]>>>,
}

impl Default for DeviceMemory {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), cursor: DEVICE_ADDRESSES.start }
    }
}

impl DeviceMemory {
    fn insert(&mut self, device: usize, context: usize, pool: Option<usize>, bytes: usize) -> u64 {
        let align = if pool.is_some() { 512 } else { 256 };
        let address = self.room(bytes as u64, align);
        // A gap behind each block, so that no range goes on in the next one.
        self.cursor = address + bytes as u64 + 1;
        let content = Arc::new(Mutex::new(vec![FRESH; bytes].into()));
        self.blocks.insert(address, Block { bytes, device, context, pool, is_freed: false, content });
        address
    }

    fn room(&mut self, bytes: u64, align: u64) -> u64 {
        loop {
            let start = self.cursor.next_multiple_of(align);
            if start + bytes >= DEVICE_ADDRESSES.end {
                self.cursor = DEVICE_ADDRESSES.start;
                continue;
            }
            let before = self.blocks.range(..start + bytes).next_back();
            match before.map(|(at, block)| at + block.bytes as u64) {
                Some(end) if end >= start => self.cursor = end + 1,
                _ => return start,
            }
        }
    }

    /// The block that has all these bytes, and its address.
    pub(crate) fn find(&self, address: u64, bytes: usize) -> Option<(u64, &Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        let end = address.checked_add(bytes as u64)?;
        (address < start + block.bytes as u64 && end <= start + block.bytes as u64).then_some((*start, block))
    }

    /// Bytes and blocks that users have.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        let used = self.blocks.values().filter(|block| !block.is_freed);
        used.fold((0, 0), |(bytes, blocks), block| (bytes + block.bytes, blocks + 1))
    }

    /// What is at these bytes and where, for use without the lock.
    pub(crate) fn content(&self, address: u64, bytes: usize) -> Option<Content> {
        let (start, block) = self.find(address, bytes)?;
        let offset = usize::try_from(address - start).ok()?;
        Some(Content { bytes: block.content.clone(), range: offset..offset + bytes })
    }

    pub(crate) fn look<R>(&self, address: u64, bytes: usize, with: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.content(address, bytes)?.look(with)
    }

    /// Changes bytes, if they are still there.
    pub(crate) fn change(&self, address: u64, bytes: usize, with: impl FnOnce(&mut [u8])) {
        if let Some(content) = self.content(address, bytes) {
            content.change(with);
        }
    }
}

/// Bytes of a block, which stay as long as this.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Arc<Mutex<Box<[u8]>>>,
    range: Range<usize>,
}

impl Content {
    pub(crate) fn look<R>(&self, with: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).get(self.range.clone()).map(with)
    }

    pub(crate) fn change(&self, with: impl FnOnce(&mut [u8])) {
        if let Some(bytes) = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(self.range.clone()) {
            with(bytes);
        }
    }
}

impl World {
    /// Allocates from a pool, or past all pools.
    pub(crate) fn allocate(&mut self, context: usize, pool: Option<usize>, bytes: usize) -> Result<u64, Refusal> {
        if bytes == 0 {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "no bytes were asked for"));
        }
        let device = pool.and_then(|pool| self.pools.get(&pool)).map(|pool| pool.device);
        let device = device.unwrap_or_else(|| self.device_of(context));
        self.reserve(device, pool, bytes)?;
        Ok(self.device.insert(device, context, pool, bytes))
    }

    /// The start of a block that no one has freed.
    pub(crate) fn check_block(&self, address: u64) -> Result<&Block, Refusal> {
        let block = self.device.blocks.get(&address).filter(|block| !block.is_freed);
        block.ok_or_else(|| Refusal::misuse(Code::INVALID_VALUE, format!("{address:#x} is no block of device memory")))
    }

    pub(crate) fn check_device_range(&self, address: u64, bytes: usize) -> Result<(), Refusal> {
        match self.device.find(address, bytes.max(1)) {
            Some((_, block)) if !block.is_freed => Ok(()),
            Some(_) => Err(Refusal::misuse(Code::INVALID_VALUE, format!("{address:#x} was freed"))),
            None => Err(Refusal::misuse(
                Code::INVALID_VALUE,
                format!("no block of device memory has {bytes} bytes at {address:#x}"),
            )),
        }
    }

    /// From now on no operation may use the block.
    pub(crate) fn mark_freed(&mut self, address: u64) {
        if let Some(block) = self.device.blocks.get_mut(&address) {
            block.is_freed = true;
        }
    }

    /// The end of a block that is marked as freed: whatever still reads it reads [`FREED`].
    pub(crate) fn release(&mut self, address: u64) {
        if let Some(block) = self.device.blocks.remove(&address) {
            block.content.lock().unwrap_or_else(PoisonError::into_inner).fill(FREED);
            self.unreserve(block.pool, block.bytes);
        }
    }

    /// Frees all blocks of a context.
    pub(crate) fn free_all_of(&mut self, context: usize) {
        let of = |block: &Block| block.context == context;
        let all: Vec<u64> = self.device.blocks.iter().filter(|(_, block)| of(block)).map(|(at, _)| *at).collect();
        for address in all {
            if self.check_block(address).is_ok() {
                self.mark_freed(address);
            }
            self.release(address);
        }
    }

    /// What the device has for new blocks: all but the blocks outside pools and what pools hold.
    pub(crate) fn free_memory(&self, device: usize) -> usize {
        let outside = self.device.blocks.values().filter(|block| block.device == device && block.pool.is_none());
        let pools = self.pools.values().filter(|pool| pool.device == device);
        let taken = outside.map(|block| block.bytes).sum::<usize>() + pools.map(|pool| pool.reserved).sum::<usize>();
        self.settings.memory.saturating_sub(taken)
    }
}
