//! [`Engine`]: what the staging threads take up: chunks to fill and send, blocks to get, things to drop. `threads.rs` runs
//! them, `work.rs` is what each does.

mod threads;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::work::Task;
use super::lane::{Lane, StagedBatch};
use super::{Together, send};
use crate::backend::Memory;
use crate::batch::{BatchOwner, HostBatch};
use crate::device::Shared;
use crate::memory::{Ring, Segment};
use crate::plan::Plan;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Condvar, Mutex, lock};

/// Segments that are to lie side by side are taken from so many bytes of the ring, which a processor's own cache holds.
const NEAR: usize = 1 << 20;
/// Chunks that who submits a small batch does for its lane: its own, and one that was there before.
const HELPED: usize = 2;

/// So many batches that are through, or a chunk's worth of them, are dropped before any more is filled, fewer when there is
/// time: they keep their blocks and sources.
const MOST_SPENT: usize = 16;

/// Something to run on a staging thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;
/// The last thing to run: it gets the ring's memory to free.
pub(crate) type LastJob = Box<dyn FnOnce(Option<Memory>) + Send>;

/// The staging threads of one device, and the ring that they fill.
#[derive(Debug)]
pub(crate) struct Engine {
    state: Mutex<State>,
    /// One for each thread.
    wakes: Box<[Condvar]>,
    /// The ring's memory.
    base: Memory,
    chunk_bytes: usize,
    threads: usize,
    /// Some batch waits for a block that could not be allocated.
    starved: AtomicBool,
    /// Blocks that came free so far.
    freed: AtomicU64,
    /// Small batches that go in one call.
    pub(crate) together: Together,
}

struct State {
    ring: Ring,
    lanes: BTreeMap<u64, Lane>,
    /// The lane that was served last: the next one comes first (invariant 11).
    served: u64,
    /// The lane that waits for room in the ring: nobody takes any before it.
    short: Option<u64>,
    jobs: VecDeque<Job>,
    last: Option<LastJob>,
    /// Batches that are through, to be dropped where no lock is held: the user's values are in them.
    spent: Vec<Arc<StagedBatch>>,
    /// Threads with nothing to do, the one that worked last at the end.
    idle: Vec<usize>,
    alive: usize,
    /// For devices driven by hand: a thread is running the work, and whether lanes stand still.
    running: bool,
    held: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("lanes", &self.lanes).field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine over `base`, the ring's memory. `threads` is 0 where a test drives it.
    pub(crate) fn new(base: Memory, chunk_bytes: usize, threads: usize, together: Together) -> Self {
        let state = State {
            ring: Ring::new(base.bytes),
            lanes: BTreeMap::new(),
            served: 0,
            short: None,
            jobs: VecDeque::new(),
            last: None,
            spent: Vec::new(),
            idle: Vec::with_capacity(threads),
            alive: threads,
            running: false,
            held: false,
        };
        Self {
            state: Mutex::new(state),
            wakes: (0..threads).map(|_| Condvar::new()).collect(),
            base,
            chunk_bytes,
            threads,
            starved: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            together,
        }
    }

    pub(crate) const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        self.base.ptr.wrapping_add(offset)
    }

    /// Stages a small batch here if nothing of its pipeline is on its way through the threads and there is room.
    ///
    /// Else it comes back.
    pub(crate) fn try_inline(&self, core: &BatchOwner, batch: HostBatch, plan: Plan) -> Option<(HostBatch, Plan)> {
        let device = &core.device;
        if device.has_many_copies() {
            return Some((batch, plan));
        }
        let were_enough = {
            let _inside = device.backend.enter();
            let joins = send::is_one_staged_part(&plan) && self.together.takes(device, &core.pipeline);
            if !joins && !self.flushed(device) {
                return Some((batch, plan));
            }
            let bytes = if joins { send::parcel_bytes(core, &plan) } else { send::segment_bytes(&plan) };
            let segment = {
                let mut state = lock(&self.state);
                if state.held || state.short.is_some() || state.lanes.contains_key(&core.pipeline.id()) {
                    return Some((batch, plan));
                }
                match bytes {
                    0 => None,
                    _ if joins => state.ring.take_beside(bytes, NEAR),
                    _ => state.ring.take(bytes),
                }
            };
            match segment {
                None if bytes > 0 => return Some((batch, plan)),
                Some(segment) if joins => self.together.post(device, send::parcel(core, batch, &plan, segment)),
                segment => {
                    if let Err(error) = send::send_inline(core, &batch, &plan, segment) {
                        core.fail(if core.begun.is_up() { error } else { error.with_batch(batch) });
                    }
                    false
                }
            }
        };
        if were_enough {
            // Those before are there by now, mostly: the reactor need not look after them.
            device.reactor.help(device);
        }
        None
    }

    /// Enqueues the small batches that wait for each other. Answers whether none is left: another thread may be at it.
    fn flushed(&self, device: &Arc<Shared>) -> bool {
        self.together.flush(device);
        self.together.is_idle()
    }

    /// Takes a batch up. Batches of one pipeline keep their order.
    pub(crate) fn push(&self, batch: StagedBatch) {
        let pipeline = batch.core.pipeline.id();
        let is_small = batch.plan.layout.is_small && self.threads > 0;
        lock(&self.state).lanes.entry(pipeline).or_default().push(Arc::new(batch));
        if !is_small || !self.help(pipeline) {
            self.kick();
        }
    }

    /// Does small chunks of a lane on the calling thread, which has just added one. Answers whether the lane is empty.
    ///
    /// So a pipeline of small batches that once went through the threads comes back to the short way: without help it
    /// would add batches as fast as woken threads take them away.
    fn help(&self, pipeline: u64) -> bool {
        for _ in 0..HELPED {
            let mut spent = Vec::new();
            let work = {
                let mut state = lock(&self.state);
                let State { ring, lanes, held, short, .. } = &mut *state;
                let mut is_short = short.is_some();
                let freed = self.freed.load(Ordering::Acquire);
                let lane = lanes.get_mut(&pipeline).filter(|lane| !*held && lane.is_next_small());
                lane.and_then(|lane| lane.next(ring, &mut is_short, freed, &mut spent))
            };
            drop(spent);
            match work {
                Some(work) => self.perform(Task::Work(pipeline, work)),
                None => break,
            }
        }
        let mut state = lock(&self.state);
        let empty = state.lanes.get(&pipeline).is_none_or(Lane::is_empty);
        if empty {
            state.lanes.remove(&pipeline);
        }
        empty
    }

    /// Runs `job` on a thread of ours.
    pub(crate) fn run(&self, job: Job) {
        lock(&self.state).jobs.push_back(job);
        self.kick();
    }

    /// A chunk of the ring is free again.
    pub(crate) fn release(&self, segment: &Segment) {
        self.release_all([segment]);
    }

    /// Several are.
    pub(crate) fn release_all<'a>(&self, segments: impl IntoIterator<Item = &'a Segment>) {
        let waiting = {
            let mut state = lock(&self.state);
            segments.into_iter().for_each(|segment| state.ring.release(segment));
            !state.lanes.is_empty()
        };
        if waiting {
            self.kick();
        }
    }

    /// Device memory came free, or never will: a batch whose block could not be allocated tries again.
    pub(crate) fn memory_came_free(&self) {
        self.freed.fetch_add(1, Ordering::AcqRel);
        // Either it is seen here that somebody starves, or he sees that something came free.
        fence(Ordering::SeqCst);
        if self.starved.load(Ordering::Relaxed) && self.starved.swap(false, Ordering::AcqRel) {
            self.kick();
        }
    }

    /// Lets lanes stand still, or go on.
    pub(crate) fn hold(&self, held: bool) {
        lock(&self.state).held = held;
        self.kick();
    }
}
