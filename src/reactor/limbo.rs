//! [`Limbo`]: blocks whose owners are gone and whose events have not all fired (invariant 3).

use std::sync::Arc;

use smallvec::SmallVec;

use crate::admission::Block;
use crate::backend::Event;
use crate::device::{Asked, Shared};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// Blocks that wait for the work which still touches them.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    entries: Mutex<Vec<Retired>>,
    count: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct Retired {
    block: Block,
    events: SmallVec<[Event; 2]>,
}

/// What became of a block.
enum Fate {
    Free,
    Waits,
    Unknown,
}

impl Limbo {
    /// Takes a block whose last owner is gone. It goes on at once if nothing touches it any more.
    pub(crate) fn retire(&self, device: &Arc<Shared>, block: Block, events: SmallVec<[Event; 2]>) {
        let mut retired = Retired { block, events };
        match retired.ask(device) {
            Fate::Free => device.release(retired.block),
            Fate::Unknown => device.quarantine(retired.block),
            Fate::Waits => {
                device.begin();
                self.count.fetch_add(1, Ordering::AcqRel);
                self.bytes.fetch_add(retired.block.memory.bytes, Ordering::AcqRel);
                lock(&self.entries).push(retired);
                device.reactor.notify_by(device.clock.now() + super::pace::LIMBO.0);
            }
        }
    }

    /// Releases the blocks that nothing touches any more. Answers whether there were any.
    ///
    /// The entries are taken out while they are asked: the driver is not called under the lock.
    pub(crate) fn reap(&self, device: &Arc<Shared>) -> bool {
        if self.count() == 0 {
            return false;
        }
        let taken = std::mem::take(&mut *lock(&self.entries));
        let mut waiting = Vec::new();
        let mut moved = false;
        for mut retired in taken {
            let bytes = retired.block.memory.bytes;
            match retired.ask(device) {
                Fate::Waits => {
                    waiting.push(retired);
                    continue;
                }
                Fate::Free => device.release(retired.block),
                Fate::Unknown => device.quarantine(retired.block),
            }
            moved = true;
            self.count.fetch_sub(1, Ordering::AcqRel);
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            device.end();
        }
        if !waiting.is_empty() {
            lock(&self.entries).append(&mut waiting);
        }
        moved
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

impl Retired {
    fn ask(&mut self, device: &Shared) -> Fate {
        if device.is_lost() {
            return Fate::Unknown;
        }
        while let Some(event) = self.events.last() {
            match device.ask(event) {
                Asked::NotYet => return Fate::Waits,
                // Also where the work ended in an error of its own, the block is no longer touched.
                Asked::Fired | Asked::Failed(_) if !device.is_lost() => {}
                Asked::Fired | Asked::Failed(_) | Asked::Unknown(_) => return Fate::Unknown,
            }
            if let Some(event) = self.events.pop() {
                device.events.put(event);
            }
        }
        Fate::Free
    }
}
