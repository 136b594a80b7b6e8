//! [`Engine`]: the staging threads, and what they take up: chunks to fill and send, blocks to get, things to drop.
#![expect(unsafe_code, reason = "threads fill memory of the ring by address")]

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::lane::{Chunk, Lane, StagedBatch, Work};
use super::{Ring, Segment, Together, send};
use crate::admission::Block;
use crate::backend::{Backend, Fault, Memory};
use crate::batch::{BatchOwner, HostBatch};
use crate::device::Shared;
use crate::error::Error;
use crate::memory::allocate::{block_for, out_of_memory};
use crate::plan::Plan;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Condvar, Mutex, MutexGuard, caught, lock, spawn, wait, yield_now};

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

/// One thing for a thread to do.
enum Task {
    Job(Job),
    Work(u64, Work),
    Send(u64),
    Abandon(Vec<Arc<StagedBatch>>),
    Drop(Vec<Arc<StagedBatch>>),
}

impl Engine {
    /// An engine over `base`, the ring's memory. `threads` is 0 where a test drives it.
    pub(crate) fn new(base: Memory, chunk_bytes: usize, threads: usize, together: Together) -> Self {
        let state = State {
            ring: Ring::new(base.bytes),
            lanes: BTreeMap::new(),
            served: 0,
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

    /// Starts the threads, which work for `backend`.
    pub(crate) fn spawn(self: &Arc<Self>, backend: &Arc<dyn Backend>) -> std::io::Result<()> {
        for number in 0..self.threads {
            let (engine, backend) = (self.clone(), backend.clone());
            let run = move || {
                backend.attach_thread();
                let backend_of_thread = Arc::downgrade(&backend);
                drop(backend);
                engine.run_thread(number, &backend_of_thread);
            };
            if let Err(error) = spawn(format!("inflight-staging-{number}"), run) {
                lock(&self.state).alive -= self.threads - number;
                return Err(error);
            }
        }
        Ok(())
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
            let bytes = send::segment_bytes(&plan);
            let segment = {
                let mut state = lock(&self.state);
                if state.held || state.lanes.contains_key(&core.pipeline.id()) {
                    return Some((batch, plan));
                }
                if bytes == 0 { None } else { state.ring.take(bytes) }
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
        let is_small = batch.plan.is_small && self.threads > 0;
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
                let State { ring, lanes, held, .. } = &mut *state;
                let freed = self.freed.load(Ordering::Acquire);
                let lane = lanes.get_mut(&pipeline).filter(|lane| !*held && lane.is_next_small());
                lane.and_then(|lane| lane.next(ring, freed, &mut spent))
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

    /// Wakes a thread: there may be something to do.
    pub(crate) fn kick(&self) {
        if self.threads == 0 {
            self.run_inline();
        } else {
            self.wake_one(lock(&self.state));
        }
    }

    /// Wakes the idle thread that worked last: it is quicker, for what its processor has in its caches.
    fn wake_one(&self, mut state: MutexGuard<'_, State>) {
        let woken = state.idle.pop();
        drop(state);
        if let Some(number) = woken {
            self.wakes[number].notify_one();
        }
    }

    fn wake_all(&self, mut state: MutexGuard<'_, State>) {
        let woken = std::mem::take(&mut state.idle);
        drop(state);
        woken.into_iter().for_each(|number| self.wakes[number].notify_one());
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

    /// Ends the threads once the jobs are done, the last of them with `last`.
    pub(crate) fn stop(&self, last: LastJob) {
        let mut state = lock(&self.state);
        state.last = Some(last);
        if state.alive > 0 {
            return self.wake_all(state);
        }
        drop(state);
        // Driven by hand, or no thread could be started.
        self.run_inline();
        self.finish();
    }

    /// Lets lanes stand still, or go on.
    pub(crate) fn hold(&self, held: bool) {
        lock(&self.state).held = held;
        self.kick();
    }

    /// For devices driven by hand: does all there is to do. Answers whether there was anything.
    pub(crate) fn run_inline(&self) -> bool {
        if self.threads > 0 {
            return false;
        }
        let mut moved = false;
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.running, true) {
            return false;
        }
        while let Some(task) = self.next(&mut state) {
            drop(state);
            self.perform(task);
            moved = true;
            state = lock(&self.state);
        }
        state.running = false;
        moved
    }

    fn run_thread(&self, number: usize, backend: &Weak<dyn Backend>) {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = self.next(&mut state) {
                let waiting = || state.lanes.values().any(Lane::has_waiting);
                if !state.jobs.is_empty() || waiting() {
                    self.wake_one(state);
                } else {
                    drop(state);
                }
                self.perform(task);
                // Values of the user's may have been dropped.
                if let Some(backend) = backend.upgrade() {
                    backend.reattach_thread();
                }
                state = lock(&self.state);
                continue;
            }
            if state.last.is_some() {
                break;
            }
            state.idle.push(number);
            while state.idle.contains(&number) {
                state = wait(&self.wakes[number], state);
            }
        }
        state.alive -= 1;
        let alone = state.alive == 0;
        self.wake_all(state);
        if alone {
            self.finish();
        }
    }

    fn finish(&self) {
        let last = {
            let mut state = lock(&self.state);
            state.last.take().map(|last| (last, state.ring.is_empty()))
        };
        if let Some((last, empty)) = last {
            // A ring that something may still read is leaked.
            last(empty.then_some(Memory { ptr: self.base.ptr, bytes: self.base.bytes }));
        }
    }

    /// What to do next: jobs first, since they free what others wait for; then lanes in turn.
    fn next(&self, state: &mut MutexGuard<'_, State>) -> Option<Task> {
        if let Some(job) = state.jobs.pop_front() {
            return Some(Task::Job(job));
        }
        let spent_bytes = || state.spent.iter().map(|batch| batch.plan.bytes).sum::<usize>();
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
        let State { ring, lanes, served, spent, .. } = state;
        if lanes.is_empty() {
            return None;
        }
        let order: smallvec::SmallVec<[u64; 8]> =
            lanes.range(*served + 1..).chain(lanes.range(..=*served)).map(|(id, _)| *id).collect();
        for id in order {
            let Some(lane) = lanes.get_mut(&id) else { continue };
            if lane.is_lost() {
                return Some(Task::Abandon(lane.abandon().into()));
            }
            if lane.begin_to_send() {
                return Some(Task::Send(id));
            }
            if let Some(work) = lane.next(ring, self.freed.load(Ordering::Acquire), spent) {
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

    fn perform(&self, task: Task) {
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
