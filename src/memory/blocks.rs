//! Size classes, and [`Idle`]: blocks that nobody uses, kept for the next batch of their class.

use std::collections::BTreeMap;

use super::arena::Arena;
use crate::backend::Memory;

/// The smallest block.
const SMALLEST: usize = 1024;
/// From here on classes are this many bytes apart.
const LARGE_STEP: usize = 2 << 20;

/// The size of the block that holds `bytes`: at most an eighth larger from 8 KiB on. `None` where it overflows.
pub(crate) fn class_of(bytes: usize) -> Option<usize> {
    if bytes <= SMALLEST {
        return Some(SMALLEST);
    }
    let step = (bytes.checked_next_power_of_two()? / 16).clamp(256, LARGE_STEP);
    bytes.checked_next_multiple_of(step)
}

/// Blocks without an owner, by size.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    classes: BTreeMap<usize, Vec<Memory>>,
    bytes: usize,
    /// Where small blocks come from as long as it has room.
    pub(crate) arena: Option<Arena>,
}

impl Idle {
    /// Bytes of the blocks, but for those of the arena: it is there whether they are used or not.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn put(&mut self, memory: Memory) {
        let memory = match &mut self.arena {
            Some(arena) => arena.put(memory),
            None => Some(memory),
        };
        let Some(memory) = memory else { return };
        self.bytes += memory.bytes;
        self.classes.entry(memory.bytes).or_default().push(memory);
    }

    pub(crate) fn take(&mut self, class: usize) -> Option<Memory> {
        if let Some(memory) = self.arena.as_mut().and_then(|arena| arena.take(class)) {
            return Some(memory);
        }
        let memory = self.classes.get_mut(&class)?.pop()?;
        self.bytes -= memory.bytes;
        Some(memory)
    }

    /// Takes the arena's memory out, to be freed; not where a block of it never came back.
    pub(crate) fn take_arena(&mut self) -> Option<Memory> {
        self.arena.take()?.into_memory()
    }

    /// Takes blocks out, the largest first, until at most `keep` bytes are left.
    pub(crate) fn shrink_to(&mut self, keep: usize) -> Vec<Memory> {
        let mut taken = Vec::new();
        while self.bytes > keep {
            let Some(mut entry) = self.classes.last_entry() else { break };
            match entry.get_mut().pop() {
                Some(memory) => {
                    self.bytes -= memory.bytes;
                    taken.push(memory);
                }
                None => {
                    entry.remove();
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_bytes_and_wastes_an_eighth_at_most() {
        for bytes in (1..200_000).chain([1 << 20, (1 << 20) + 1, 38_535_168, 2_147_483_648, (1 << 31) + 1]) {
            let class = class_of(bytes).unwrap();
            assert!(class >= bytes);
            assert_eq!(class_of(class), Some(class), "a class is its own class");
            assert!(bytes < 8 << 10 || class - bytes <= bytes / 8, "{bytes} in {class}");
        }
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn shrinking_gives_up_the_largest_first() {
        let mut idle = Idle::default();
        for bytes in [1024, 4096, 65536] {
            idle.put(Memory { ptr: std::ptr::null_mut(), bytes });
        }
        let taken: Vec<_> = idle.shrink_to(5120).iter().map(|memory| memory.bytes).collect();
        assert_eq!(taken, [65536]);
        assert_eq!(idle.bytes(), 5120);
        assert!(idle.take(4096).is_some() && idle.take(4096).is_none());
    }
}
