//! [`Admission`]: who may have how many bytes of device memory, and who waits (invariants 9 and 10).
//!
//! A batch is admitted inside a poll or not at all: a waiter that is dropped takes nothing with it. Each live pipeline
//! keeps a floor of one batch. The counters of a pipeline are in `pipeline.rs`.

mod pipeline;
mod waiting;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

pub(crate) use pipeline::Pipeline;
use waiting::Row;
pub(crate) use waiting::{Overdue, Ticket};

use crate::backend::Memory;
use crate::batch::Name;
use crate::device::PipelineStats;
use crate::error::{Error, Returned};
use crate::memory::arena::Arena;
use crate::memory::blocks::Idle;
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

#[derive(Debug)]
struct State {
    limit: usize,
    used: usize,
    quarantined: usize,
    peak: usize,
    operations: usize,
    /// Bytes of `used` that were granted and have no block yet.
    promised: usize,
    largest: usize,
    idle: Idle,
    /// Blocks given up to make room, to be freed before any other is allocated.
    condemned: Vec<Memory>,
    /// Bytes of those, until they are freed.
    dying: usize,
    rows: BTreeMap<u64, Row>,
    ended: BTreeMap<Name, PipelineStats>,
    next: u64,
    /// Wakers that are no longer needed, to be dropped where no lock is held.
    spent: Wakers,
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
        let state = State {
            // No address space holds more, and sums of what is within it do not wrap.
            limit: limit.min(isize::MAX as usize),
            used: 0,
            quarantined: 0,
            peak: 0,
            operations: 0,
            promised: 0,
            largest: 0,
            idle: Idle::default(),
            condemned: Vec::new(),
            dying: 0,
            rows: BTreeMap::new(),
            ended: BTreeMap::new(),
            next: 0,
            spent: Wakers::new(),
        };
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

impl State {
    fn admit(
        &mut self,
        id: u64,
        bytes: usize,
        ticket: &mut Ticket,
        waker: Option<&Waker>,
        now: Duration,
        timeout: Option<Duration>,
    ) -> Decision {
        if bytes > self.limit {
            self.give_up(id, ticket);
            return Decision::Refused(Error::BatchTooLarge { bytes, limit: self.limit, batch: Returned::default() });
        }
        let floors: usize = self.others(id).filter_map(|row| row.floor).sum();
        let Some(row) = self.rows.get_mut(&id) else { return Decision::Wait };
        if bytes.saturating_add(floors) > self.limit {
            let pipeline = row.pipeline.display_name();
            self.give_up(id, ticket);
            let (others, limit) = (floors, self.limit);
            return Decision::Refused(Error::FloorTooLarge {
                pipeline,
                bytes,
                others,
                limit,
                batch: Returned::default(),
            });
        }
        // Who is not first in line changes nothing for those who are.
        let turn = row.is_turn_of(ticket);
        if turn {
            row.floor = Some(row.floor.unwrap_or(0).max(bytes));
        }
        if let Some(waited) = row.timed_out(ticket, now, timeout) {
            let pipeline = row.pipeline.display_name();
            self.give_up(id, ticket);
            let holders = self.holders();
            return Decision::Refused(Error::AdmissionTimeout {
                pipeline,
                bytes,
                waited,
                holders,
                batch: Returned::default(),
            });
        }
        if turn && self.operations < MOST_OPERATIONS && self.fits(id, bytes) {
            self.give_up(id, ticket);
            return Decision::Granted(self.grant(id, bytes));
        }
        if let (Some(row), Some(waker)) = (self.rows.get_mut(&id), waker) {
            self.spent.extend(row.wait(bytes, ticket, waker, now));
        }
        Decision::Wait
    }

    /// What others keep for a live pipeline, if that is known.
    fn floor_of(&self, id: u64) -> Option<usize> {
        self.rows.get(&id).filter(|row| row.live).and_then(|row| row.floor)
    }

    fn others(&self, id: u64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |(of, row)| **of != id && row.live).map(|(_, row)| row)
    }

    /// Whether `bytes` may be taken without touching what is kept for others.
    ///
    /// A pipeline's first batch respects the floors that are known. What goes beyond it also leaves room for pipelines
    /// whose batches nobody has seen yet: those that are made and not yet polled and, where there is none, one that may
    /// be made later, such as an evaluation loop inside the training loop.
    fn fits(&self, id: u64, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let own = self.rows.get(&id);
        let within_floor = own.is_some_and(|row| row.used.saturating_add(bytes) <= row.floor.unwrap_or(0));
        // What a pipeline had before is its own: nobody takes it by waiting for more than there is.
        let had_before = own.is_some_and(|row| row.live && row.used.saturating_add(bytes) <= row.granted);
        let live = self.others(id).count() + 1;
        let mut kept = 0_usize;
        let mut unseen = false;
        for row in self.others(id) {
            let floor = match row.floor {
                _ if had_before => row.granted,
                Some(floor) => floor,
                None if within_floor => 0,
                None => {
                    unseen = true;
                    self.largest.max(self.limit / live)
                }
            };
            kept = kept.saturating_add(floor.saturating_sub(row.used));
        }
        if !within_floor && !unseen {
            kept = kept.saturating_add(self.largest.max(bytes));
        }
        self.used.saturating_add(bytes).saturating_add(kept) <= self.limit
    }

    fn grant(&mut self, id: u64, bytes: usize) -> Grant {
        self.operations += 1;
        if bytes == 0 {
            return Grant { pipeline: id, bytes, block: None, evicts: false };
        }
        self.largest = self.largest.max(bytes);
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        if let Some(row) = self.rows.get_mut(&id) {
            row.used += bytes;
            row.granted = row.granted.max(bytes);
        }
        let block = self.idle.take(bytes);
        if block.is_none() {
            self.promised += bytes;
        }
        let mut evicted = self.idle.shrink_to(self.limit.saturating_sub(self.used));
        let evicts = !evicted.is_empty();
        self.dying += evicted.iter().map(|memory| memory.bytes).sum::<usize>();
        self.condemned.append(&mut evicted);
        Grant { pipeline: id, bytes, block, evicts }
    }

    fn give_up(&mut self, id: u64, ticket: &mut Ticket) {
        if let (Some(ticket), Some(row)) = (ticket.take(), self.rows.get_mut(&id)) {
            self.spent.extend(row.leave(ticket));
        }
    }

    fn unuse(&mut self, id: u64, bytes: usize) {
        self.used -= bytes;
        if let Some(row) = self.rows.get_mut(&id) {
            row.used -= bytes;
        }
        self.forget_if_done(id);
    }

    fn forget_if_done(&mut self, id: u64) {
        if self.rows.get(&id).is_some_and(Row::is_done)
            && let Some(row) = self.rows.remove(&id)
        {
            pipeline::merge(&mut self.ended, &row.pipeline, 0);
        }
    }

    fn heads(&self) -> Wakers {
        self.rows.values().filter_map(Row::head).collect()
    }

    fn head_of(&self, id: u64) -> Wakers {
        self.rows.get(&id).and_then(Row::head).into_iter().collect()
    }

    fn holders(&self) -> String {
        let holding = self.rows.values().filter(|row| row.used > 0);
        let mut text: Vec<_> =
            holding.map(|row| format!("\"{}\" {} bytes", row.pipeline.display_name(), row.used)).collect();
        if self.quarantined > 0 {
            text.push(format!("quarantined {} bytes", self.quarantined));
        }
        if text.is_empty() { "nobody".to_owned() } else { text.join(", ") }
    }
}

#[cfg(test)]
mod tests;
