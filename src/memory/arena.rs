//! [`Arena`]: device memory that small blocks are cut from. Batches that follow each other so lie side by side, and one copy
//! brings several of them.

use std::ops::Range;

use super::{Ring, Segment};
use crate::backend::Memory;

/// How long one is.
pub(crate) const BYTES: usize = 2 << 20;
/// The largest block that is cut from it.
pub(crate) const LARGEST: usize = 16 << 10;

/// One block of a backend's, and which bytes of it are taken.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: Memory,
    room: Ring,
}

impl Arena {
    pub(crate) fn new(memory: Memory) -> Self {
        let room = Ring::new(memory.bytes);
        Self { memory, room }
    }

    /// The addresses of its bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.memory.ptr.addr();
        start..start + self.memory.bytes
    }

    /// A block of `class` bytes, a size class, if it is small and there is room.
    pub(crate) fn take(&mut self, class: usize) -> Option<Memory> {
        let Segment { offset, bytes } =
            if class <= LARGEST { self.room.take_beside(class, BYTES)? } else { return None };
        Some(Memory { ptr: self.memory.ptr.wrapping_add(offset), bytes })
    }

    /// Takes back a block that was cut from it; any other comes back.
    pub(crate) fn put(&mut self, block: Memory) -> Option<Memory> {
        let addresses = self.addresses();
        if !addresses.contains(&block.ptr.addr()) {
            return Some(block);
        }
        self.room.release(&Segment { offset: block.ptr.addr() - addresses.start, bytes: block.bytes });
        None
    }

    /// The memory, to be freed. `None` where a block never came back: work on it may be pending.
    pub(crate) fn into_memory(self) -> Option<Memory> {
        self.room.is_empty().then_some(self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arena {
        Arena::new(Memory { ptr: std::ptr::without_provenance_mut(1 << 20), bytes: 8192 })
    }

    #[test]
    fn blocks_lie_side_by_side_and_come_back() {
        let mut arena = arena();
        let blocks: Vec<_> = std::iter::from_fn(|| arena.take(2048)).collect();
        let addresses: Vec<_> = blocks.iter().map(|block| block.ptr.addr() - (1 << 20)).collect();
        assert_eq!(addresses, [0, 2048, 4096, 6144]);
        for block in blocks {
            assert!(arena.put(block).is_none());
        }
        assert_eq!(arena.into_memory().map(|memory| memory.bytes), Some(8192));
    }

    #[test]
    fn large_blocks_are_none_of_its() {
        let mut arena = Arena::new(Memory { ptr: std::ptr::without_provenance_mut(1 << 20), bytes: BYTES });
        assert!(arena.take(LARGEST).is_some());
        assert!(arena.take(LARGEST + 1024).is_none());
        for place in [(1 << 20) - 1024, (1 << 20) + BYTES] {
            let other = Memory { ptr: std::ptr::without_provenance_mut(place), bytes: 1024 };
            assert!(arena.put(other).is_some());
        }
    }

    #[test]
    fn an_arena_of_which_a_block_never_comes_back_is_not_freed() {
        let mut arena = arena();
        let _quarantined = arena.take(1024);
        assert!(arena.into_memory().is_none());
    }
}
