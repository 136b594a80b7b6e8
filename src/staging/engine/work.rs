//! What a staging thread does next, and does: gets blocks, gathers chunks, sends them in order, drops what is through.
#![expect(unsafe_code, reason = "threads fill memory of the ring by address")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::super::lane::{Chunk, Lane, StagedBatch, Work};
use super::super::send;
use super::{Engine, Job, MOST_SPENT, State};
use crate::admission::Block;
use crate::backend::Fault;
use crate::error::Error;
use crate::memory::allocate::{block_for, out_of_memory};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{MutexGuard, caught, lock, yield_now};

/// One thing for a thread to do.
pub(super) enum Task {
    Job(Job),
    Work(u64, Work),
    Send(u64),
    Abandon(Vec<Arc<StagedBatch>>),
    Drop(Vec<Arc<StagedBatch>>),
}

impl Engine {
    /// What to do next: jobs first, since they free what others wait for; then lanes in turn.
    pub(super) fn next(&self, state: &mut MutexGuard<'_, State>) -> Option<Task> {
        if let Some(job) = state.jobs.pop_front() {
            return Some(Task::Job(job));
        }
        let spent_bytes = || state.spent.iter().map(|batch| batch.plan.layout.bytes).sum::<usize>();
        let is_full = state.spent.len() >= MOST_SPENT || spent_bytes() >= self.chunk_bytes;
        if !is_full
            && !state.held
            && let Some(task) = self.next_of_lanes(state)
        {
            return Some(task);
        }
        let spent = std::mem::take(&mut state.spent);
        (!spent.is_empty()).then_some(Task::Drop(spent))
    }

    fn next_of_lanes(&self, state: &mut State) -> Option<Task> {
        let State { ring, lanes, served, spent, short, .. } = state;
        if lanes.is_empty() {
            *short = None;
            return None;
        }
        // Who waits for room first: chunks of others may be smaller, and would fill the ring again and again.
        let in_turn = lanes.range(*served + 1..).chain(lanes.range(..=*served)).map(|(id, _)| *id);
        let was_short = short.filter(|id| lanes.contains_key(id));
        let order: smallvec::SmallVec<[u64; 8]> =
            was_short.into_iter().chain(in_turn.filter(|id| Some(*id) != was_short)).collect();
        let mut is_short = false;
        for id in order {
            let Some(lane) = lanes.get_mut(&id) else { continue };
            if lane.is_lost() {
                return Some(Task::Abandon(lane.abandon().into()));
            }
            if lane.begin_to_send() {
                return Some(Task::Send(id));
            }
            let before = is_short;
            let work = lane.next(ring, &mut is_short, self.freed.load(Ordering::Acquire), spent);
            if !before {
                // All before it need no room.
                *short = is_short.then_some(id);
            }
            if let Some(work) = work {
                *served = id;
                return Some(Task::Work(id, work));
            }
            // Direct parts are ready as soon as they are taken up.
            if lane.begin_to_send() {
                return Some(Task::Send(id));
            }
            if lane.is_empty() {
                lanes.remove(&id);
            }
        }
        None
    }

    pub(super) fn perform(&self, task: Task) {
        match task {
            Task::Job(job) => caught("a drop on a staging thread", job),
            Task::Work(lane, Work::Allocate(batch)) => self.allocate(lane, &batch),
            Task::Work(lane, Work::Gather { batch, chunk, number, place }) => {
                self.gather(lane, batch, chunk, number, place);
            }
            Task::Send(lane) => self.send(lane),
            Task::Abandon(batches) => batches.into_iter().for_each(abandon),
            Task::Drop(batches) => drop(batches),
        }
    }

    /// Gets a block: from what is idle by now, from the backend, or later.
    fn allocate(&self, lane: u64, staged: &StagedBatch) {
        let device = &staged.core.device;
        let freed = self.freed.load(Ordering::Acquire);
        let grant = lock(&staged.grant).take();
        let starved = grant.and_then(|mut grant| match block_for(device, &mut grant) {
            Ok(memory) => {
                staged.core.set_block(Block { memory, pipeline: grant.pipeline });
                None
            }
            Err(fault) if fault.code == Fault::OUT_OF_MEMORY && device.admission.blocks() > self.stuck() => Some(grant),
            Err(fault) => {
                device.admission.cancel(grant.pipeline, grant.bytes);
                let error = out_of_memory(device, fault, grant.bytes);
                staged.core.fail(error.with_batch(staged.batch.clone()));
                None
            }
        });
        let starves = starved.is_some();
        *lock(&staged.grant) = starved;
        if let Some(lane) = lock(&self.state).lanes.get_mut(&lane) {
            if starves { lane.starve(freed) } else { lane.allocated() }
        }
        self.starved.fetch_or(starves, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        // What came free between the attempt and the flag is not missed: either it saw the flag, or it is seen here.
        if !starves || self.freed.load(Ordering::Acquire) != freed {
            self.kick();
        }
    }

    /// Bytes of blocks that can't come back before somebody has got one: those of batches behind such a one.
    fn stuck(&self) -> usize {
        lock(&self.state).lanes.values().map(Lane::stuck).sum()
    }

    fn gather(&self, lane_id: u64, staged: Arc<StagedBatch>, chunk: Chunk, number: u64, place: Option<usize>) {
        let dst = place.map_or_else(|| staged.core.address(chunk.start), |place| self.address(place));
        let filled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the segment at `place` was taken for this chunk alone and is as long as the chunk; it is given back
            // only after it was sent and its event has fired (invariant 1), or below, unsent. Without one it is a stretch
            // of the batch's block, which is the host's memory: `staged` owns it, and nobody reads it before it is sent.
            unsafe { send::fill(&staged.batch, &staged.plan, chunk.part, chunk.start, chunk.end, dst) };
        }));
        let device = staged.core.device.clone();
        device.counters.gathered.fetch_add((chunk.end - chunk.start) as u64, Ordering::Relaxed);
        let ok = filled.is_ok();
        if let Err(payload) = filled {
            staged.core.fail(Error::panicked("staging", &*payload));
        }
        let spoilt = {
            let mut state = lock(&self.state);
            let State { ring, lanes, spent, .. } = &mut *state;
            let spoilt = lanes.get_mut(&lane_id).and_then(|lane| lane.filled(number, staged, chunk, ok, spent));
            if let Some(segment) = &spoilt {
                ring.release(segment);
            }
            spoilt.is_some()
        };
        if spoilt {
            self.kick();
        }
        self.send_if_first(lane_id);
    }

    fn send_if_first(&self, id: u64) {
        let sends = lock(&self.state).lanes.get_mut(&id).is_some_and(Lane::begin_to_send);
        if sends {
            self.send(id);
        }
    }

    /// Sends what is ready at the head of a lane, in order. The lane's `sending` was set for this thread.
    fn send(&self, id: u64) {
        loop {
            let ready = lock(&self.state).lanes.get_mut(&id).and_then(Lane::take_ready);
            match ready {
                None => return,
                Some(None) => {}
                Some(Some((staged, chunk, segment))) => {
                    // Small batches that were submitted before come before; who is enqueueing them does not wait for this.
                    while !self.flushed(&staged.core.device) {
                        yield_now();
                    }
                    if let Err(error) = send::send_chunk(&staged, chunk.part, chunk.start, chunk.end, segment) {
                        staged.core.fail(staged.give_back_in(error));
                    }
                    // Not here: what the user put into it may wait for this lane when it is dropped.
                    if let Some(spent) = Arc::into_inner(staged) {
                        self.run(Box::new(move || drop(spent)));
                    }
                }
            }
        }
    }
}

/// Resolves a batch of a lost device; what of it was not enqueued goes back to its owner.
fn abandon(staged: Arc<StagedBatch>) {
    let device = staged.core.device.clone();
    if let Some(grant) = lock(&staged.grant).take() {
        device.admission.cancel(grant.pipeline, grant.bytes);
    }
    if let Some(error) = device.lost() {
        staged.core.fail(staged.give_back_in(error));
    }
}
