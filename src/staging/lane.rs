//! [`Lane`]: the staged batches of one pipeline, their chunks in order (invariant 11).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::admission::Grant;
use crate::batch::{BatchOwner, HostBatch};
use crate::device::Active;
use crate::error::Error;
use crate::memory::blocks::class_of;
use crate::memory::{Ring, Segment};
use crate::plan::{Layout, Part, Plan, Way};
use crate::sync::{Mutex, caught};

/// A batch on its way through the threads.
#[derive(Debug)]
pub(crate) struct StagedBatch {
    pub(crate) core: BatchOwner,
    pub(crate) batch: HostBatch,
    pub(crate) plan: Plan,
    /// What admission gave, until the block is there.
    pub(crate) grant: Mutex<Option<Grant>>,
    /// Who drains waits for it.
    #[expect(dead_code, reason = "kept for its drop")]
    pub(crate) active: Active,
}

impl StagedBatch {
    /// The error, with the batch in it if no copy of it was enqueued.
    pub(super) fn give_back_in(&self, error: Error) -> Error {
        if self.core.begun.is_up() { error } else { error.with_batch(self.batch.clone()) }
    }
}

impl Drop for StagedBatch {
    fn drop(&mut self) {
        // Mostly on a staging thread, which goes on; and before `active`, since who drains waits for this too.
        // Plans keep views of its arrays.
        let sources = (std::mem::take(&mut self.batch), std::mem::take(&mut self.plan.special));
        caught("the drop of a source", || drop(sources));
    }
}

/// A stretch of a part, small enough for the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) part: usize,
    /// Bytes of the image.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a thread is to do next for a lane.
#[derive(Debug)]
pub(super) enum Work {
    /// Get a block for the batch.
    Allocate(Arc<StagedBatch>),
    /// Gather the chunk: to this place of the ring, or into the batch's own block.
    Gather { batch: Arc<StagedBatch>, chunk: Chunk, number: u64, place: Option<usize> },
}

#[derive(Debug)]
enum Unsent {
    Filling(Option<Segment>),
    Ready(Arc<StagedBatch>, Chunk, Option<Segment>),
    /// Its batch failed: there is nothing to send.
    Spoilt,
}

/// Who sees to the first batch's block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BlockState {
    #[default]
    Nobody,
    /// A thread is getting it.
    Allocating,
    /// Memory ran out when this many blocks had come free.
    Starved(u64),
}

/// The batches of one pipeline that go through staging threads, in order.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Not all of their chunks are taken up yet.
    waiting: VecDeque<Arc<StagedBatch>>,
    /// Where the next chunk of the first one begins: its part, and bytes of the image.
    cursor: Option<Chunk>,
    block: BlockState,
    unsent: VecDeque<Unsent>,
    /// The number of the first in `unsent`.
    first: u64,
    /// A thread is sending: nobody else may, so that order is kept.
    sending: bool,
}

impl Lane {
    pub(super) fn push(&mut self, batch: Arc<StagedBatch>) {
        self.waiting.push_back(batch);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.unsent.is_empty() && !self.sending
    }

    /// Whether chunks are not taken up yet.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the next batch has its block and is small enough for any thread.
    pub(super) fn is_next_small(&self) -> bool {
        let small = |batch: &Arc<StagedBatch>| batch.plan.layout.is_small && batch.core.has_block();
        self.block == BlockState::Nobody && self.waiting.front().is_some_and(small)
    }

    /// The next piece of work, if there is one and the ring has room for it. Nothing is taken from the ring while another lane
    /// `is_short` of room; where this one is, it says so.
    ///
    /// `freed` counts the blocks that came free so far. Batches that are through go to `spent`: the caller holds a lock.
    pub(super) fn next(
        &mut self,
        ring: &mut Ring,
        is_short: &mut bool,
        freed: u64,
        spent: &mut Vec<Arc<StagedBatch>>,
    ) -> Option<Work> {
        loop {
            let batch = self.waiting.front()?.clone();
            if !batch.core.has_block() && batch.core.failure().is_none() {
                if self.block == BlockState::Allocating || self.block == BlockState::Starved(freed) {
                    return None;
                }
                self.block = BlockState::Allocating;
                return Some(Work::Allocate(batch));
            }
            let chunk = match self.cursor {
                Some(at) => next_chunk(&batch.plan.layout, at),
                None => first_chunk(&batch.plan.layout, 0),
            };
            let Some(chunk) = chunk.filter(|_| batch.core.failure().is_none()) else {
                self.cursor = None;
                spent.extend(self.waiting.pop_front());
                continue;
            };
            let segment = match batch.plan.layout.parts[chunk.part].way {
                Way::Direct | Way::Rows | Way::Fetched => {
                    self.cursor = Some(chunk);
                    self.unsent.push_back(Unsent::Ready(batch, chunk, None));
                    continue;
                }
                Way::Staged => {
                    let segment = if *is_short { None } else { ring.take(chunk.end - chunk.start) };
                    *is_short = segment.is_none();
                    Some(segment?)
                }
                Way::Written => None,
            };
            self.cursor = Some(chunk);
            let number = self.first + self.unsent.len() as u64;
            let place = segment.as_ref().map(|segment| segment.offset);
            self.unsent.push_back(Unsent::Filling(segment));
            return Some(Work::Gather { batch, chunk, number, place });
        }
    }

    /// Bytes of blocks whose batches wait for the first one to get its block.
    pub(super) fn stuck(&self) -> usize {
        if self.block == BlockState::Nobody {
            return 0;
        }
        self.waiting
            .iter()
            .skip(1)
            .filter(|batch| batch.core.has_block())
            .filter_map(|batch| class_of(batch.plan.layout.bytes))
            .sum()
    }

    /// The first batch has its block, or has failed.
    pub(super) fn allocated(&mut self) {
        self.block = BlockState::Nobody;
    }

    /// There was no memory when `freed` blocks had come free: try again when there are more.
    pub(super) fn starve(&mut self, freed: u64) {
        self.block = BlockState::Starved(freed);
    }

    /// Whether the batches belong to a lost device.
    pub(super) fn is_lost(&self) -> bool {
        self.waiting.front().is_some_and(|batch| batch.core.device.is_lost())
    }

    /// A chunk is gathered, or failed to be: then there is nothing to send, and its segment comes back.
    pub(super) fn filled(
        &mut self,
        number: u64,
        batch: Arc<StagedBatch>,
        chunk: Chunk,
        ok: bool,
        spent: &mut Vec<Arc<StagedBatch>>,
    ) -> Option<Segment> {
        let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let unsent = self.unsent.get_mut(place)?;
        let Unsent::Filling(segment) = std::mem::replace(unsent, Unsent::Spoilt) else { return None };
        if !ok {
            spent.push(batch);
            return segment;
        }
        *unsent = Unsent::Ready(batch, chunk, segment);
        None
    }

    /// Becomes the one that sends, if there is something to send and nobody does.
    pub(super) fn begin_to_send(&mut self) -> bool {
        let begins = !self.sending && self.can_send();
        self.sending |= begins;
        begins
    }

    /// Whether the first unsent chunk is ready, and its stream has room (invariant 9).
    fn can_send(&self) -> bool {
        match self.unsent.front() {
            None | Some(Unsent::Filling(_)) => false,
            Some(Unsent::Spoilt) => true,
            Some(Unsent::Ready(batch, ..)) => !batch.core.device.has_many_copies(),
        }
    }

    /// Takes the next chunk to send. The outer `None`: there is none now, and this thread sends no more; the inner: it was
    /// spoilt.
    #[expect(clippy::type_complexity, reason = "the parts of one chunk, taken apart at once")]
    pub(super) fn take_ready(&mut self) -> Option<Option<(Arc<StagedBatch>, Chunk, Option<Segment>)>> {
        if !self.can_send() {
            self.sending = false;
            return None;
        }
        self.first += 1;
        match self.unsent.pop_front()? {
            Unsent::Ready(batch, chunk, segment) => Some(Some((batch, chunk, segment))),
            Unsent::Spoilt | Unsent::Filling(_) => Some(None),
        }
    }

    /// Takes all batches out that have not begun: the device is lost.
    pub(super) fn abandon(&mut self) -> VecDeque<Arc<StagedBatch>> {
        self.cursor = None;
        std::mem::take(&mut self.waiting)
    }
}

/// The chunk that follows another.
fn next_chunk(layout: &Layout, at: Chunk) -> Option<Chunk> {
    let part = layout.parts.get(at.part)?;
    if at.end == part.end {
        return first_chunk(layout, at.part + 1);
    }
    Some(Chunk { part: at.part, start: at.end, end: part.end.min(at.end + part.chunk) })
}

/// The first chunk of a part.
fn first_chunk(layout: &Layout, part: usize) -> Option<Chunk> {
    let Part { start, end, chunk, .. } = *layout.parts.get(part)?;
    Some(Chunk { part, start, end: end.min(start.saturating_add(chunk)) })
}
