//! [`Together`]: small batches that wait for each other, and then go in one call.
//!
//! What a call of the driver costs is more than what a few KiB take on the link. A batch that is submitted while others are
//! on their way, or have arrived and are not taken yet, is staged at once and waits. All that wait are enqueued, in order,
//! when there are enough of them, when somebody polls a transfer that is not there, and when the link has run dry and as many
//! wait as their pipeline has before them; after [`HOLD`] a staging thread is asked to do it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::send;
use crate::admission::Pipeline;
use crate::backend::{Event, Fault, Pitched};
use crate::batch::{BatchOwner, GroupEvent, HostBatch};
use crate::device::Shared;
use crate::error::Error;
use crate::memory::Segment;
use crate::plan::operations;
use crate::reactor::{Done, Entry, Held};
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{IS_MODEL, Mutex, caught, lock};

/// So many bytes are enough for a call, however few batches they are: who copies them into the ring takes longer than it.
const ENOUGH: usize = 256 << 10;
/// How long they wait at most, unless a test drives the device. In a model, where no time goes by, it is over at once.
const HOLD: Duration = if IS_MODEL { Duration::ZERO } else { Duration::from_micros(200) };

/// A small batch that is staged, in one part.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(super) core: BatchOwner,
    pub(super) batch: HostBatch,
    pub(super) group: usize,
    pub(super) fields: Range<usize>,
    /// Bytes of the image.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) segment: Segment,
}

/// What is kept of a parcel that is on its way.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) core: BatchOwner,
    pub(crate) group: usize,
    pub(crate) segment: Segment,
}

/// The small batches of a device that wait to be enqueued.
#[derive(Debug)]
pub(crate) struct Together {
    /// How many go in one call.
    most: usize,
    /// How long they wait on an idle link; without it they don't.
    hold: Option<Duration>,
    state: Mutex<State>,
    /// How many wait.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    parcels: Vec<Parcel>,
    /// How many bytes wait.
    bytes: usize,
    /// Since when the first of them waits.
    since: Duration,
    /// A thread is enqueueing: nobody else may, so that order is kept.
    sending: bool,
    /// A thread was asked to.
    asked: bool,
}

/// Whether a pipeline is about to run out of batches that do not wait: of those in flight, so many do.
const fn is_short(waiting: usize, in_flight: usize) -> bool {
    2 * waiting >= in_flight
}

impl Together {
    /// So many in one call at most; with 1 none waits. On a device that is driven by hand none waits on an idle link.
    pub(crate) fn new(most: usize, by_hand: bool) -> Self {
        Self { most, hold: (!by_hand).then_some(HOLD), state: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    /// Whether a small batch of one part, of this pipeline, is to wait here.
    pub(super) fn takes(&self, device: &Shared, pipeline: &Pipeline) -> bool {
        let has_others = || self.hold.is_some() && !is_short(1, pipeline.in_flight());
        self.most > 1 && (device.uploads.load(Ordering::Relaxed) > 0 || self.has_waiting() || has_others())
    }

    /// Takes a parcel, and enqueues all that wait if they are enough. Answers whether they were.
    pub(super) fn post(&self, device: &Arc<Shared>, parcel: Parcel) -> bool {
        let (count, bytes, is_short, since) = {
            let mut state = lock(&self.state);
            if state.parcels.is_empty() {
                state.since = device.clock.now();
            }
            state.bytes += parcel.bytes();
            state.parcels.push(parcel);
            self.waiting.store(state.parcels.len(), Ordering::Release);
            (state.parcels.len(), state.bytes, self.is_short(&state), state.since)
        };
        // Who finds the link dry looks for what waits, after a fence as well: one of the two sees the other.
        fence(Ordering::SeqCst);
        let is_enough = count >= self.most || bytes >= ENOUGH;
        if is_enough || (is_short && device.is_idle()) {
            self.flush(device);
        } else if let (1, Some(hold)) = (count, self.hold) {
            device.reactor.notify_by(since + hold);
        }
        is_enough
    }

    /// Whether the last one's pipeline is short. Others that are poll what waits, and so send it.
    fn is_short(&self, state: &State) -> bool {
        let in_flight = state.parcels.last().map_or(0, |last| last.core.pipeline.in_flight());
        self.hold.is_none() || is_short(state.parcels.len(), in_flight)
    }

    /// Whether nothing waits and nothing is being enqueued.
    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.parcels.is_empty() && !state.sending
    }

    /// Whether something waits.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Whether something waits that is to be enqueued now, and nobody was asked to.
    pub(crate) fn is_due(&self, device: &Shared) -> bool {
        let is_idle = device.is_idle();
        fence(Ordering::SeqCst);
        self.has_waiting() && self.is_due_in(&lock(&self.state), device, is_idle)
    }

    fn is_due_in(&self, state: &State, device: &Shared, is_idle: bool) -> bool {
        let is_late = || self.hold.is_some_and(|hold| device.clock.now() >= state.since + hold);
        !state.parcels.is_empty()
            && !state.asked
            && !state.sending
            && (device.is_lost() || (is_idle && self.is_short(state)) || is_late())
    }

    /// Asks a staging thread to enqueue what is due. Answers whether there was anything.
    pub(crate) fn flush_what_is_due(&self, device: &Arc<Shared>) -> bool {
        let is_idle = device.is_idle();
        fence(Ordering::SeqCst);
        if !self.has_waiting() {
            return false;
        }
        {
            let mut state = lock(&self.state);
            if !self.is_due_in(&state, device, is_idle) {
                return false;
            }
            state.asked = true;
        }
        let flushed = device.clone();
        device.engine.run(Box::new(move || flushed.engine.together.flush(&flushed)));
        true
    }

    /// When somebody must look whether something is due, though nothing happens before.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let hold = self.hold.filter(|_| self.has_waiting())?;
        let state = lock(&self.state);
        (!state.parcels.is_empty() && !state.asked && !state.sending).then(|| state.since + hold)
    }

    /// Enqueues what waits, unless another thread is at it: then that one does.
    pub(crate) fn flush(&self, device: &Arc<Shared>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut parcels = {
            let mut state = lock(&self.state);
            state.asked = false;
            if state.sending || state.parcels.is_empty() {
                return;
            }
            state.sending = true;
            self.take(&mut state)
        };
        let mut enqueued = SmallVec::<[Enqueued; 1]>::new();
        {
            let _inside = device.backend.enter();
            loop {
                enqueued.push(enqueue(device, parcels));
                let mut state = lock(&self.state);
                if state.parcels.is_empty() {
                    state.sending = false;
                    break;
                }
                parcels = self.take(&mut state);
            }
        }
        // Values of the user's are dropped and his wakers woken where nobody waits for this thread.
        enqueued.into_iter().for_each(|enqueued| enqueued.settle(device));
    }

    fn take(&self, state: &mut State) -> Vec<Parcel> {
        let taken: Vec<_> = if state.parcels.len() > self.most {
            state.parcels.drain(..self.most).collect()
        } else {
            std::mem::replace(&mut state.parcels, Vec::with_capacity(self.most))
        };
        state.bytes -= taken.iter().map(Parcel::bytes).sum::<usize>();
        self.waiting.store(state.parcels.len(), Ordering::Release);
        taken
    }
}

/// Parcels that were enqueued, or failed to be.
struct Enqueued {
    parcels: Vec<Parcel>,
    operations: usize,
    outcome: Outcome,
}

enum Outcome {
    /// The event fires when all of them are done.
    Followed(Event),
    /// Nothing of them is pending.
    Refused(Error),
    /// Some may be pending.
    Broken(Error),
    /// They are pending, and nothing tells when they are done.
    Unrecorded(Error),
}

/// Enqueues parcels in one call, and records one event behind them.
fn enqueue(device: &Shared, parcels: Vec<Parcel>) -> Enqueued {
    if let Some(error) = device.lost() {
        return Enqueued { parcels, operations: 0, outcome: Outcome::Refused(error) };
    }
    let (copied, calls, operations) = copy(device, &parcels);
    let outcome = match copied.map_err(|fault| device.fault(fault)) {
        Err(error) if calls == 1 => Outcome::Refused(error),
        Err(error) => Outcome::Broken(error),
        Ok(()) => {
            device.counters.sent(parcels.iter().map(Parcel::bytes).sum());
            match device.record(&device.copy_stream) {
                Ok(event) => Outcome::Followed(event),
                Err(error) => Outcome::Unrecorded(crate::reactor::unrecorded(error)),
            }
        }
    };
    Enqueued { parcels, operations, outcome }
}

impl Enqueued {
    /// Tells everybody what became of the parcels.
    fn settle(self, device: &Arc<Shared>) {
        let Self { parcels, operations, outcome } = self;
        match outcome {
            Outcome::Followed(event) => {
                let bytes = parcels.iter().map(Parcel::bytes).sum();
                let (held, done) = (Held::default(), Done::Many(follow(parcels, event)));
                let stream = &device.copy_stream;
                device.reactor.push(device, Entry::of_many(device, stream, bytes, held, done, operations));
            }
            Outcome::Refused(error) => parcels.into_iter().for_each(|parcel| parcel.refuse(device, &error)),
            Outcome::Broken(error) => parcels.into_iter().for_each(|parcel| parcel.fail(&error)),
            Outcome::Unrecorded(error) => {
                for parcel in parcels {
                    parcel.core.quarantined.raise();
                    parcel.fail(&error);
                }
            }
        }
    }
}

/// The copies of the parcels: one for those that lie side by side here and there.
fn merged(device: &Shared, parcels: &[Parcel]) -> SmallVec<[Pitched; 8]> {
    let mut copies = SmallVec::<[Pitched; 8]>::new();
    let mut before: Option<&Parcel> = None;
    for parcel in parcels {
        let copy = parcel.copy(device);
        match copies.last_mut() {
            Some(last) if before.is_some_and(|before| before.is_beside(parcel, device)) => {
                // What lies between the two is the end of the first one's block, and of its segment.
                last.width = copy.src.addr() - last.src.addr() + copy.width;
                last.pitch = last.width;
            }
            _ => copies.push(copy),
        }
        before = Some(parcel);
    }
    copies
}

#[expect(unsafe_code, reason = "copies are enqueued by address")]
fn copy(device: &Shared, parcels: &[Parcel]) -> (Result<(), Fault>, usize, usize) {
    let copies = merged(device, parcels);
    let names: SmallVec<[_; 16]> =
        parcels.iter().map(|parcel| &parcel.core.layout.names[parcel.fields.clone()]).collect();
    // SAFETY: invariant 1: each block belongs to its batch and each segment to its parcel, and both go into an entry which
    // the reactor keeps until the event behind the copies has fired. Without an event they are quarantined and kept.
    let copied = unsafe { device.backend.copy_pitched(&device.copy_stream, &copies, &names) };
    (copied, copies.len(), operations(&copies, device.backend.takes_many()))
}

/// Marks the parcels as queued behind `event`.
///
/// What the user put into them is dropped before anybody can learn that they are done: who drains waits for it.
fn follow(parcels: Vec<Parcel>, event: Event) -> Vec<Sent> {
    let event = Arc::new(event);
    let follow = |parcel: Parcel| {
        let Parcel { core, batch, group, segment, .. } = parcel;
        caught("the drop of a source", || drop(batch));
        if !core.begun.is_up() {
            core.begun.raise();
        }
        core.queued(group, GroupEvent::Shared(event.clone()));
        Sent { core, group, segment }
    };
    parcels.into_iter().map(follow).collect()
}

impl Parcel {
    fn copy(&self, device: &Shared) -> Pitched {
        let width = self.bytes();
        let (dst, src) = (self.core.address(self.start), device.engine.address(self.segment.offset).cast_const());
        Pitched { dst, src, width, rows: 1, pitch: width, planes: 1, height: 1 }
    }

    const fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// Whether the next parcel begins where block and segment of this one end.
    fn is_beside(&self, next: &Self, device: &Shared) -> bool {
        let (block, next_block) = (self.core.address(0), next.core.address(0));
        let bytes = self.segment.bytes;
        // A segment as long as the block: what follows it belongs to the next one.
        (self.start, next.start) == (0, 0)
            && self.core.class() == Some(bytes)
            && next.segment.offset == self.segment.offset + bytes
            && next_block == block.wrapping_add(bytes)
            && device.admission.is_in_arena(block)
            && device.admission.is_in_arena(next_block)
    }

    /// Its copy was not enqueued.
    fn refuse(self, device: &Arc<Shared>, error: &Error) {
        Held { segment: Some(self.segment), source: None }.let_go(device, device.is_lost());
        self.core.fail(error.clone().with_batch(self.batch));
    }

    /// Its copy may be pending: both ends are kept until that is over.
    fn fail(self, error: &Error) {
        self.core.begun.raise();
        send::keep(&self.core, Held { segment: Some(self.segment), source: None }, self.group);
        self.core.fail(error.clone());
        caught("the drop of a source", || drop(self.batch));
    }
}
