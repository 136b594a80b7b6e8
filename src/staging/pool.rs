//! [`PinnedPool`]: page-locked memory outside the ring, in two budgets: what users hold, and read-backs (invariant 9).
#![expect(unsafe_code, reason = "clears recycled blocks")]

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::{Memory, Space};
use crate::device::{Shared, free_all};
use crate::error::{Error, Result, Returned};
use crate::memory::blocks::{Idle, class_of};
use crate::reactor::{Waiters, until};
use crate::readback::ReadCore;
use crate::sync::{Mutex, lock};

/// Whose budget a block counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Arrays that users write and hold.
    User = 0,
    /// Results of read-backs.
    Read = 1,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::User => "page-locked memory (pinned_bytes)",
            Self::Read => "read-back memory (readback_bytes)",
        }
    }
}

/// Read-backs that are awaited together: each holds its memory until all are there.
pub(crate) type Reads = SmallVec<[Arc<ReadCore>; 1]>;

/// Page-locked memory of one device that is not the ring.
#[derive(Debug)]
pub(crate) struct PinnedPool {
    state: Mutex<State>,
    waiters: Waiters,
}

#[derive(Debug)]
struct State {
    limits: [usize; 2],
    used: [usize; 2],
    idle: Idle,
    /// How often something came back.
    puts: u64,
    /// Read-backs that wait for memory, in order; those that are awaited together in one place.
    reads: VecDeque<Reads>,
}

/// A block in use. Goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    memory: Option<Memory>,
    class: usize,
    purpose: Purpose,
    device: Arc<Shared>,
}

/// What the pool answers.
#[derive(Debug)]
pub(crate) enum Taken {
    Block(PinnedBlock),
    /// The room is reserved; the memory must be got by a staging thread.
    Reserved(PinnedBlock),
    Full,
}

impl PinnedPool {
    pub(crate) fn new(user: usize, read: usize) -> Self {
        let state = State {
            limits: [user, read].map(|limit| limit.min(isize::MAX as usize)),
            used: [0, 0],
            idle: Idle::default(),
            puts: 0,
            reads: VecDeque::new(),
        };
        Self { state: Mutex::new(state), waiters: Waiters::default() }
    }

    /// A block for `bytes`, which are not 0, if the budget has room.
    pub(crate) fn try_take(&self, device: &Arc<Shared>, purpose: Purpose, bytes: usize) -> Result<Taken> {
        let taken = self.try_take_all(device, purpose, &[bytes])?;
        Ok(taken.into_iter().flatten().next().unwrap_or(Taken::Full))
    }

    /// A block for each of `sizes`, which are not 0, if the budget has room for all of them.
    ///
    /// All or none: two who hold some and wait for more would wait for each other.
    pub(crate) fn try_take_all(
        &self,
        device: &Arc<Shared>,
        purpose: Purpose,
        sizes: &[usize],
    ) -> Result<Option<SmallVec<[Taken; 1]>>> {
        let mut state = lock(&self.state);
        let limit = state.limits[purpose as usize];
        let classes: Option<SmallVec<[usize; 1]>> = sizes.iter().map(|bytes| class_of(*bytes)).collect();
        let sum = |classes: &[usize]| classes.iter().try_fold(0, |sum: usize, class| sum.checked_add(*class));
        let fitting = classes.and_then(|classes| Some((sum(&classes).filter(|all| *all <= limit)?, classes)));
        let (all, classes) = fitting.ok_or_else(|| Error::OutOfMemory {
            what: purpose.name(),
            bytes: sizes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            limit: Some(limit),
            device: device.name.clone(),
            batch: Returned::default(),
        })?;
        if state.used[purpose as usize].saturating_add(all) > limit {
            return Ok(None);
        }
        state.used[purpose as usize] += all;
        let take = |class| {
            let memory = state.idle.take(class);
            let found = memory.is_some();
            let block = PinnedBlock { memory, class, purpose, device: device.clone() };
            if found { Taken::Block(block) } else { Taken::Reserved(block) }
        };
        Ok(Some(classes.into_iter().map(take).collect()))
    }

    /// A block for `bytes`, which are not 0, when there is room.
    pub(crate) async fn take(&self, device: &Arc<Shared>, purpose: Purpose, bytes: usize) -> Result<PinnedBlock> {
        let taken = until(&self.waiters, || {
            if let Err(error) = device.check() {
                return Some(Err(error));
            }
            match self.try_take(device, purpose, bytes) {
                Ok(Taken::Full) => None,
                Ok(taken) => Some(Ok(taken)),
                Err(error) => Some(Err(error)),
            }
        });
        match taken.await? {
            Taken::Block(block) => Ok(block),
            Taken::Reserved(block) => {
                let (done, filled) = futures::channel::oneshot::channel();
                device.engine.run(Box::new(move || {
                    // Nobody may be waiting any more: then the block goes back where it came from.
                    let _ = done.send(block.fill());
                }));
                filled.await.unwrap_or_else(|_| Err(gone(device, purpose, bytes)))
            }
            Taken::Full => Err(gone(device, purpose, bytes)),
        }
    }

    /// Read-backs that wait for memory.
    pub(crate) fn wait_for(&self, reads: Reads) {
        lock(&self.state).reads.push_back(reads);
    }

    /// Has a staging thread let read-backs go on, if any wait.
    pub(crate) fn serve_later(&self, device: &Arc<Shared>) {
        if !lock(&self.state).reads.is_empty() {
            let again = device.clone();
            device.engine.run(Box::new(move || again.pinned.serve()));
        }
    }

    /// Lets read-backs go on for which there is memory now.
    pub(crate) fn serve(&self) {
        loop {
            let (reads, puts) = {
                let mut state = lock(&self.state);
                (state.reads.pop_front(), state.puts)
            };
            let Some(reads) = reads else { return };
            let Some(device) = reads.first().map(|read| read.device().clone()) else { continue };
            let many = device.has_many_copies() && !device.is_lost();
            if many || !ReadCore::try_enqueue(&reads) {
                let mut state = lock(&self.state);
                state.reads.push_front(reads);
                // Who changed meanwhile what they wait for has found nobody waiting.
                let changed = if many { !device.has_many_copies() } else { state.puts != puts };
                if !changed {
                    return;
                }
            }
        }
    }

    pub(crate) fn wake_all(&self) {
        self.waiters.wake();
        let reads = std::mem::take(&mut lock(&self.state).reads);
        for read in reads.into_iter().flatten() {
            if let Some(error) = read.device().lost() {
                read.finish(Err(error));
            }
        }
    }

    /// All idle blocks.
    pub(crate) fn take_idle(&self) -> Vec<Memory> {
        lock(&self.state).idle.shrink_to(0)
    }

    /// Bytes used by users, by read-backs, and idle.
    pub(crate) fn bytes(&self) -> (usize, usize, usize) {
        let state = lock(&self.state);
        (state.used[0], state.used[1], state.idle.bytes())
    }

    fn put(&self, memory: Option<Memory>, class: usize, purpose: Purpose) -> bool {
        let waiting = {
            let mut state = lock(&self.state);
            state.used[purpose as usize] -= class;
            state.puts += 1;
            if let Some(memory) = memory {
                state.idle.put(memory);
            }
            !state.reads.is_empty()
        };
        self.waiters.wake();
        waiting
    }

    /// Idle blocks that must go so that all budgets together are kept.
    fn surplus(&self) -> Vec<Memory> {
        let mut state = lock(&self.state);
        let keep = state.limits[0].saturating_add(state.limits[1]).saturating_sub(state.used[0] + state.used[1]);
        state.idle.shrink_to(keep)
    }
}

fn gone(device: &Shared, purpose: Purpose, bytes: usize) -> Error {
    let (what, name) = (purpose.name(), device.name.clone());
    device.lost().unwrap_or(Error::OutOfMemory { what, bytes, limit: None, device: name, batch: Returned::default() })
}

impl PinnedBlock {
    /// Gets the memory of a reserved block. May be slow: page-locking takes milliseconds.
    pub(crate) fn fill(mut self) -> Result<Self> {
        let backend = Arc::clone(&self.device.backend);
        free_all(backend.as_ref(), Space::Pinned, self.device.pinned.surplus());
        let filled = backend.alloc(Space::Pinned, self.class).or_else(|_| {
            free_all(backend.as_ref(), Space::Pinned, self.device.pinned.take_idle());
            backend.alloc(Space::Pinned, self.class)
        });
        match filled {
            Ok(memory) => {
                self.memory = Some(memory);
                Ok(self)
            }
            Err(fault) if fault.code == crate::backend::Fault::OUT_OF_MEMORY => {
                let (what, device) = (self.purpose.name(), self.device.name.clone());
                Err(Error::OutOfMemory { what, bytes: self.class, limit: None, device, batch: Returned::default() })
            }
            Err(fault) => Err(self.device.fault(fault)),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.bytes)
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.ptr)
    }

    /// Writes zeros, so that any type's values are there.
    pub(crate) fn zero(&self) {
        if let Some(memory) = &self.memory {
            // SAFETY: the block is owned by `self`, which nobody else uses yet (invariant 9's pools hand it to one owner).
            unsafe { memory.ptr.write_bytes(0, memory.bytes) };
        }
    }

    pub(crate) fn device(&self) -> &Arc<Shared> {
        &self.device
    }

    /// Never gives the memory back: a copy may still write to it.
    pub(crate) fn leak(mut self) {
        use std::sync::atomic::Ordering;
        self.device.counters.leaked.fetch_add(self.class as u64, Ordering::Relaxed);
        self.memory = None;
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let device = self.device.clone();
        if device.pinned.put(self.memory.take(), self.class, self.purpose) {
            let again = device.clone();
            device.engine.run(Box::new(move || again.pinned.serve()));
        }
    }
}
