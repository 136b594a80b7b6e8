//! [`SimBackend`]: a device whose copies and tasks are done when a test says so, or fail, or never are.
#![expect(unsafe_code, reason = "poisons blocks that are given back")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::queue::{Driver, Inner, Op, Queued};
use super::{
    Answer, Backend, Copy, Direction, Event, Fault, HostEvent, HostQueue, Memory, Pitched, Rearrangement, Severity,
    Space, Span, StreamHandle, Streams, host,
};
use crate::batch::Name;
use crate::sim::{Counters, FaultPoint, Pending, PendingStream};

/// The code for memory that is known already, or a part of it.
const ALREADY_KNOWN: i32 = 712;
/// The code for memory that is not known.
const NOT_KNOWN: i32 = 713;
/// What released memory is filled with.
const POISON: u8 = 0xDD;

/// A device without hardware and without threads.
#[derive(Debug)]
pub(crate) struct SimBackend {
    streams: Streams,
    /// Whether a test does the work, or it is done as soon as it is enqueued.
    by_hand: bool,
    /// Not one of `crate::sync`: to those who are tested, each call of a driver is one step.
    state: Mutex<State>,
    events: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    queues: Vec<(PendingStream, Arc<Inner>)>,
    computes: usize,
    faults: Vec<(FaultPoint, usize, i32)>,
    poison: bool,
    /// Memory of the user's that was made known.
    registered: Vec<Span>,
    /// The code of a fatal fault: every later call answers it.
    lost: i32,
    counters: Counters,
}

impl SimBackend {
    pub(crate) fn new() -> std::io::Result<Self> {
        Self::driven(true)
    }

    /// A device that does its work as soon as it has it, and lets the threads of ours run.
    #[cfg(all(test, any(inflight_loom, inflight_shuttle)))]
    pub(crate) fn at_once() -> std::io::Result<Self> {
        Self::driven(false)
    }

    fn driven(by_hand: bool) -> std::io::Result<Self> {
        let (copy, read) = (HostQueue::new("copy", Driver::Hand)?, HostQueue::new("read", Driver::Hand)?);
        let relayout = HostQueue::new("relayout", Driver::Hand)?;
        let of = |stream, queue: &HostQueue| (stream, queue.0.clone());
        let queues = vec![
            of(PendingStream::Copy, &copy),
            of(PendingStream::Read, &read),
            of(PendingStream::Relayout, &relayout),
        ];
        let [copy, read, relayout] = [copy, read, relayout].map(StreamHandle::Host);
        Ok(Self {
            streams: Streams { copy, read, fetch: relayout.clone(), relayout },
            by_hand,
            state: Mutex::new(State { queues, ..State::default() }),
            events: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether work can end with that code and have failed.
    pub(crate) fn is_failure(code: i32) -> bool {
        code != 0 && Fault::new(code, "completion").severity() != Severity::Later
    }

    /// Fails the k-th call at that point from now on.
    pub(crate) fn inject(&self, point: FaultPoint, nth: usize, code: i32) {
        if Self::is_failure(code) || (code != 0 && point != FaultPoint::Complete) {
            self.state().faults.push((point, nth.max(1), code));
        }
    }

    pub(crate) fn poison(&self, on: bool) {
        self.state().poison = on;
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.state().counters;
        counters.live_events = self.events.load(Ordering::Acquire);
        counters
    }

    /// How many stretches of the user's memory are known.
    #[cfg(all(test, any(inflight_loom, inflight_shuttle)))]
    pub(crate) fn known(&self) -> usize {
        self.state().registered.len()
    }

    /// A call at that point: the code that it is to answer, if it is to fail.
    fn meet(&self, point: FaultPoint, call: &'static str) -> Result<(), Fault> {
        let mut state = self.state();
        if state.lost != 0 {
            return Err(Fault::new(state.lost, call));
        }
        for (of, left, _) in &mut state.faults {
            if *of == point {
                *left = left.saturating_sub(1);
            }
        }
        let Some(place) = state.faults.iter().position(|(of, left, _)| *of == point && *left == 0) else {
            return Ok(());
        };
        let fault = Fault::new(state.faults.swap_remove(place).2, call);
        if fault.severity() == Severity::Lost {
            state.lost = fault.code;
        }
        Err(fault)
    }

    fn queues(&self) -> Vec<(PendingStream, Arc<Inner>)> {
        let queues = self.state().queues.clone();
        let over: Vec<u64> = queues.iter().filter(|(_, queue)| queue.is_over()).map(|(_, queue)| queue.id()).collect();
        if !over.is_empty() {
            self.state().queues.retain(|(_, queue)| !over.contains(&queue.id()));
        }
        queues
    }

    /// Does all records and fulfilled waits that have become possible.
    ///
    /// Every call that changes a queue does; a stream with a thread of its own can fulfil a wait at any other moment.
    pub(crate) fn settle(&self) {
        let queues = self.queues();
        while queues.iter().fold(false, |moved, (_, queue)| queue.settle() || moved) {}
    }

    /// What waits for a hand, oldest first.
    pub(crate) fn pending(&self) -> Vec<Pending> {
        let mut all = Vec::new();
        for (stream, queue) in self.queues() {
            queue.pending(|queued, runnable| {
                let is_task = matches!(queued.op, Op::Task(_));
                let (id, fields, bytes) = (queued.id, queued.fields.clone(), queued.bytes);
                all.push(Pending { id, stream, is_task, fields, bytes, runnable });
            });
        }
        all.sort_by_key(|pending| pending.id);
        all
    }

    /// Does all that can be done, where no test does.
    fn work(&self) {
        if !self.by_hand {
            while let Some(next) = self.pending().into_iter().find(|pending| pending.runnable) {
                self.complete(next.id, 0);
            }
        }
    }

    /// Completes the op of that id if it is at the head of its stream, with a code other than 0 by failing.
    pub(crate) fn complete(&self, id: u64, mut code: i32) -> bool {
        let Some((_, queue)) = self.queues().into_iter().find(|(_, queue)| queue.head_is(id)) else { return false };
        let Some(queued) = queue.begin(id) else { return false };
        if code == 0
            && let Err(fault) = self.meet(FaultPoint::Complete, "completion")
        {
            code = fault.code;
        }
        if code == 0 {
            self.count_done(&queued);
            queued.perform();
        } else {
            if Fault::new(code, "completion").severity() == Severity::Lost {
                self.state().lost = code;
            }
            drop(queued);
        }
        queue.finish(code);
        self.settle();
        true
    }

    fn count_done(&self, queued: &Queued) {
        let direction = match &queued.op {
            Op::Copy(copy) => copy.direction,
            Op::Pitched(_) => Direction::HostToDevice,
            _ => return,
        };
        let counters = &mut self.state().counters;
        counters.copies_done += 1;
        let moved = match direction {
            Direction::HostToDevice => &mut counters.bytes_to_device,
            Direction::DeviceToHost => &mut counters.bytes_from_device,
            Direction::DeviceToDevice => &mut counters.bytes_within_device,
        };
        *moved += queued.bytes as u64;
    }
}

impl Backend for SimBackend {
    fn streams(&self) -> &Streams {
        &self.streams
    }

    fn by_hand(&self) -> bool {
        self.by_hand
    }

    fn compute_stream(&self) -> Result<StreamHandle, Fault> {
        let queue = HostQueue::new("compute", Driver::Hand).map_err(|_| Fault::new(Fault::OUT_OF_MEMORY, "stream"))?;
        let mut state = self.state();
        let stream = PendingStream::Compute(state.computes);
        state.computes += 1;
        state.queues.push((stream, queue.0.clone()));
        Ok(StreamHandle::Host(queue))
    }

    fn alloc(&self, space: Space, bytes: usize) -> Result<Memory, Fault> {
        self.meet(FaultPoint::Allocate, "alloc")?;
        let memory = host::alloc(bytes)?;
        let mut state = self.state();
        state.counters.allocations += 1;
        match space {
            Space::Device => state.counters.live_device_bytes += bytes,
            Space::Pinned => state.counters.live_pinned_bytes += bytes,
        }
        Ok(memory)
    }

    unsafe fn free(&self, space: Space, memory: Memory) -> Result<(), Fault> {
        self.meet(FaultPoint::Free, "free")?;
        let mut state = self.state();
        state.counters.frees += 1;
        match space {
            Space::Device => state.counters.live_device_bytes -= memory.bytes,
            Space::Pinned => state.counters.live_pinned_bytes -= memory.bytes,
        }
        drop(state);
        // SAFETY: the contract of this method.
        unsafe { host::free(&memory) }
    }

    fn register(&self, span: Span) -> Result<(), Fault> {
        let registered = &mut self.state().registered;
        if registered.iter().any(|known| known.overlaps(span)) {
            return Err(Fault::new(ALREADY_KNOWN, "register"));
        }
        registered.push(span);
        Ok(())
    }

    fn unregister(&self, span: Span) -> Result<(), Fault> {
        let registered = &mut self.state().registered;
        let place = registered.iter().position(|known| *known == span);
        registered.swap_remove(place.ok_or(Fault::new(NOT_KNOWN, "unregister"))?);
        Ok(())
    }

    unsafe fn copy(&self, stream: &StreamHandle, copy: Copy, fields: &[Name]) -> Result<(), Fault> {
        self.meet(FaultPoint::Submit, "copy")?;
        self.state().counters.copies_submitted += 1;
        let queue = stream.host()?;
        queue.copy(copy, fields.iter().map(ToString::to_string).collect());
        self.work();
        Ok(())
    }

    unsafe fn copy_pitched(&self, stream: &StreamHandle, copies: &[Pitched], fields: &[&[Name]]) -> Result<(), Fault> {
        self.meet(FaultPoint::Submit, "copy")?;
        self.state().counters.copies_submitted += 1;
        stream
            .host()?
            .copy_pitched(copies.to_vec(), fields.iter().copied().flatten().map(ToString::to_string).collect());
        self.work();
        Ok(())
    }

    unsafe fn rearrange(
        &self,
        stream: &StreamHandle,
        rearrangement: Rearrangement,
        fields: &[Name],
    ) -> Result<(), Fault> {
        self.meet(FaultPoint::Launch, "rearrangement")?;
        stream.host()?.rearrange(rearrangement, fields.iter().map(ToString::to_string).collect());
        self.work();
        Ok(())
    }

    fn create_event(&self) -> Result<Event, Fault> {
        Ok(Event::Host(Arc::new(HostEvent::counted(&self.events))))
    }

    fn record(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault> {
        self.meet(FaultPoint::Record, "event record")?;
        self.state().counters.records += 1;
        let (queue, event) = (stream.host()?, event.host()?);
        queue.record(event);
        self.settle();
        Ok(())
    }

    fn query(&self, event: &Event) -> Result<Answer, Fault> {
        self.meet(FaultPoint::Query, "event query")?;
        let event = event.host()?;
        let unrecorded = u64::from(event.latest() == 0);
        {
            let counters = &mut self.state().counters;
            counters.queries += 1;
            counters.unrecorded_queries += unrecorded;
        }
        Ok(event.query())
    }

    fn wait(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault> {
        self.meet(FaultPoint::Wait, "stream wait")?;
        let (queue, event) = (stream.host()?, event.host()?);
        let unrecorded = u64::from(event.latest() == 0);
        {
            let counters = &mut self.state().counters;
            counters.waits += 1;
            counters.unrecorded_queries += unrecorded;
        }
        queue.wait(event);
        self.settle();
        Ok(())
    }

    fn released(&self, memory: &Memory) {
        if self.state().poison {
            // SAFETY: invariant 3: the block has lost its last owner and nothing pending touches it.
            unsafe { memory.ptr.write_bytes(POISON, memory.bytes) };
        }
    }
}
