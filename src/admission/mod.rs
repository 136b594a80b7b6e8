//! [`Admission`]: who may have how many bytes of device memory, and who waits (invariants 9 and 10).
//!
//! A batch is admitted inside a poll or not at all: a waiter that is dropped takes nothing with it. Each live pipeline
//! keeps a floor of one batch. Who is admitted is decided in `state.rs`, the lines are in `waiting.rs`, a pipeline's counters in
//! `pipeline.rs`.

mod pipeline;
mod state;
mod waiting;

use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

pub(crate) use pipeline::Pipeline;
use state::State;
use waiting::Row;
pub(crate) use waiting::{Overdue, Ticket};

use crate::backend::Memory;
use crate::batch::Name;
use crate::device::PipelineStats;
use crate::error::Error;
use crate::memory::arena::Arena;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{IS_MODEL, Mutex, lock};

/// How many operations may be under way at once: far below the 1 020 at which a driver blocks the caller.
pub(crate) const MOST_OPERATIONS: usize = if IS_MODEL { 2 } else { 256 };

/// A block of device memory in use, and whose budget it counts in.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) memory: Memory,
    pub(crate) pipeline: u64,
}

/// Room for one batch. The block is there unless it must first be allocated.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) pipeline: u64,
    /// Bytes that the grant counts for: a size class, or 0.
    pub(crate) bytes: usize,
    pub(crate) block: Option<Memory>,
    /// Idle blocks were given up to make room.
    pub(crate) evicts: bool,
}

/// What admission answers.
#[derive(Debug)]
pub(crate) enum Decision {
    Granted(Grant),
    /// No room: the waker is kept under the ticket.
    Wait,
    Refused(Error),
}

/// The wakers to wake once no lock is held.
pub(crate) type Wakers = SmallVec<[Waker; 2]>;

/// The device-memory budget of one device.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    timeout: Option<Duration>,
    /// Somebody may be waiting in a line; changed under the lock. Asked often by the reactor, which then need not take it.
    waited_for: AtomicBool,
    /// Where the blocks lie that lie side by side.
    arena: Range<usize>,
}

/// Device bytes by state, for `stats()`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) limit: usize,
    pub(crate) used: usize,
    pub(crate) peak: usize,
    pub(crate) idle: usize,
    pub(crate) operations: usize,
}

impl Admission {
    pub(crate) fn new(limit: usize, timeout: Option<Duration>) -> Self {
        let state = State::new(limit);
        Self { state: Mutex::new(state), timeout, waited_for: AtomicBool::new(false), arena: 0..0 }
    }

    /// The same with an arena, beside the limit, that small blocks come from.
    pub(crate) fn with_arena(mut self, arena: Arena) -> Self {
        self.arena = arena.addresses();
        lock(&self.state).idle.arena = Some(arena);
        self
    }

    /// A new live pipeline, whose floor is kept from now on.
    pub(crate) fn open(&self) -> Arc<Pipeline> {
        let mut state = lock(&self.state);
        state.next += 1;
        let id = state.next;
        let pipeline = Arc::new(Pipeline::new(id));
        state.rows.insert(id, Row::new(pipeline.clone(), true));
        pipeline
    }

    /// A holder of memory that is no pipeline: it keeps no floor.
    pub(crate) fn open_without_floor(&self, name: &'static str) -> Arc<Pipeline> {
        let pipeline = self.open();
        pipeline.name(Name::new_static(name));
        if let Some(row) = lock(&self.state).rows.get_mut(&pipeline.id()) {
            row.live = false;
            row.permanent = true;
        }
        pipeline
    }

    /// The pipeline's source has ended: nobody keeps room for it any more.
    pub(crate) fn close(&self, id: u64) {
        let woken = {
            let mut state = lock(&self.state);
            if let Some(row) = state.rows.get_mut(&id) {
                row.live = false;
            }
            state.forget_if_done(id);
            state.heads()
        };
        wake(woken);
    }

    /// Admits a batch of `bytes` (a size class, or 0), or keeps `waker` until there may be room.
    pub(crate) fn admit(
        &self,
        pipeline: &Pipeline,
        bytes: usize,
        ticket: &mut Ticket,
        waker: Option<&Waker>,
        now: Duration,
    ) -> Decision {
        let (decision, woken, spent) = {
            let mut state = lock(&self.state);
            let floor = state.floor_of(pipeline.id());
            let decision = state.admit(pipeline.id(), bytes, ticket, waker, now, self.timeout);
            let mut woken = match decision {
                Decision::Wait => {
                    self.waited_for.store(true, Ordering::Relaxed);
                    Wakers::new()
                }
                _ => state.head_of(pipeline.id()),
            };
            if floor != state.floor_of(pipeline.id()) {
                // It may be less than what was kept while nobody knew it, or so much that others are to be refused.
                let others = state.rows.iter().filter(|(id, _)| **id != pipeline.id());
                woken.extend(others.flat_map(|(_, row)| row.wakers()));
            }
            (decision, woken, std::mem::take(&mut state.spent))
        };
        drop(spent);
        wake(woken);
        decision
    }

    /// Gives a ticket up, and passes its turn on.
    pub(crate) fn leave(&self, pipeline: u64, ticket: &mut Ticket) {
        let (woken, spent) = {
            let mut state = lock(&self.state);
            state.give_up(pipeline, ticket);
            state.forget_if_done(pipeline);
            (state.head_of(pipeline), std::mem::take(&mut state.spent))
        };
        drop(spent);
        wake(woken);
    }

    /// A block has no owner any more and nothing pending touches it.
    pub(crate) fn release(&self, block: Block) {
        let woken = {
            let mut state = lock(&self.state);
            state.unuse(block.pipeline, block.memory.bytes);
            state.idle.put(block.memory);
            state.heads()
        };
        wake(woken);
    }

    /// The block of a grant that had none is there.
    pub(crate) fn fulfilled(&self, bytes: usize) {
        lock(&self.state).promised -= bytes;
    }

    /// Bytes of blocks that are in use or being freed: they may come back.
    pub(crate) fn blocks(&self) -> usize {
        let state = lock(&self.state);
        state.used - state.promised + state.dying
    }

    /// Blocks that were given up to make room, to be freed: say [`freed`](Self::freed) then.
    pub(crate) fn take_condemned(&self) -> Vec<Memory> {
        std::mem::take(&mut lock(&self.state).condemned)
    }

    /// So many bytes of condemned blocks are freed.
    pub(crate) fn freed(&self, bytes: usize) {
        lock(&self.state).dying -= bytes;
    }

    /// A grant whose block never came to be.
    pub(crate) fn cancel(&self, pipeline: u64, bytes: usize) {
        let woken = {
            let mut state = lock(&self.state);
            state.promised -= bytes;
            state.unuse(pipeline, bytes);
            state.heads()
        };
        wake(woken);
    }

    /// A block that must never be used again: the budget is smaller by it from now on.
    pub(crate) fn quarantine(&self, block: Block) {
        let woken = {
            let mut state = lock(&self.state);
            let bytes = block.memory.bytes;
            state.unuse(block.pipeline, bytes);
            state.limit = state.limit.saturating_sub(bytes);
            state.quarantined += bytes;
            // Who waits for more than there is now will learn so.
            state.rows.values().flat_map(Row::wakers).collect()
        };
        wake(woken);
    }

    /// An operation is complete.
    pub(crate) fn operation_done(&self) {
        let woken = {
            let mut state = lock(&self.state);
            state.operations -= 1;
            if state.operations + 1 == MOST_OPERATIONS { state.heads() } else { Wakers::new() }
        };
        wake(woken);
    }

    /// Takes a block for a grant that could not allocate one, and all other idle ones to be freed.
    pub(crate) fn retry(&self, bytes: usize) -> (Option<Memory>, Vec<Memory>) {
        let mut state = lock(&self.state);
        match state.idle.take(bytes) {
            Some(block) => (Some(block), Vec::new()),
            None => (None, state.idle.shrink_to(0)),
        }
    }

    /// All idle blocks.
    pub(crate) fn trim(&self) -> Vec<Memory> {
        lock(&self.state).idle.shrink_to(0)
    }

    /// All that is to be freed where a device is dropped: idle blocks, condemned ones, and the arena.
    pub(crate) fn take_all(&self) -> Vec<Memory> {
        let mut state = lock(&self.state);
        let mut all = state.idle.shrink_to(0);
        all.extend(state.idle.take_arena());
        all.append(&mut state.condemned);
        all
    }

    /// Whether a block lies in the arena, beside others.
    pub(crate) fn is_in_arena(&self, block: *const u8) -> bool {
        self.arena.contains(&block.addr())
    }

    /// Wakes everybody, so that they see that the device is lost.
    pub(crate) fn wake_all(&self) {
        let woken: Wakers = lock(&self.state).rows.values().flat_map(Row::wakers).collect();
        wake(woken);
    }

    /// When somebody's wait becomes worth a word, or too long.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        if !self.waited_for.load(Ordering::Relaxed) {
            return None;
        }
        let state = lock(&self.state);
        let next = state.rows.values().filter_map(|row| row.next_deadline(self.timeout)).min();
        if state.rows.values().all(Row::is_idle) {
            self.waited_for.store(false, Ordering::Relaxed);
        }
        next
    }

    /// Those who have waited so long by `now` that it must be said; those who time out are woken.
    pub(crate) fn overdue(&self, now: Duration) -> Vec<Overdue> {
        if !self.waited_for.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let (overdue, woken) = {
            let mut state = lock(&self.state);
            let holders = state.holders();
            let mut overdue = Vec::new();
            let mut woken = Wakers::new();
            for row in state.rows.values_mut() {
                row.overdue(now, self.timeout, &holders, &mut overdue, &mut woken);
            }
            (overdue, woken)
        };
        wake(woken);
        overdue
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let state = lock(&self.state);
        Bytes {
            limit: state.limit,
            used: state.used,
            peak: state.peak,
            idle: state.idle.bytes(),
            operations: state.operations,
        }
    }

    /// The named pipelines, those of one name added up.
    pub(crate) fn pipelines(&self) -> Vec<PipelineStats> {
        let state = lock(&self.state);
        let mut rows = state.ended.clone();
        for row in state.rows.values() {
            pipeline::merge(&mut rows, &row.pipeline, row.used);
        }
        rows.into_values().collect()
    }
}

fn wake(wakers: Wakers) {
    wakers.into_iter().for_each(crate::sync::wake);
}

#[cfg(test)]
mod tests;
