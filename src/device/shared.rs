//! [`Shared`]: one device, as all that belongs to it holds it.

use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::sources::{Kept, Sources};
use super::stats::Counters;
use super::{DeviceKind, Fetching};
use crate::admission::{Admission, Block, Grant, MOST_OPERATIONS, Pipeline};
use crate::backend::{Answer, Backend, Event, Fault, Memory, Severity, Space, StreamHandle, os};
use crate::error::{Error, Result, Returned};
use crate::lease::{Binding, LeaseStream};
use crate::memory::{Owner, Registrations};
use crate::plan::{Fetches, Relayout, Terms};
use crate::reactor::{Clock, Done, Entry, EventPool, Held, Limbo, Reactor, Waiters};
use crate::staging::{Engine, PinnedPool};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, caught, lock};

/// Everything that the handles, operations and leases of one device share.
///
/// Its threads do not hold it: they end when it is dropped (invariant 12).
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) kind: DeviceKind,
    /// This and the three streams are taken apart on a staging thread: a driver may be slow at it (invariant 12).
    pub(crate) backend: ManuallyDrop<Arc<dyn Backend>>,
    /// Where copies to the device go: our stream, or the user's with `Overlap::Off`.
    pub(crate) copy_stream: ManuallyDrop<StreamHandle>,
    /// Where copies from the device go.
    pub(crate) read_stream: ManuallyDrop<StreamHandle>,
    /// Where our kernels rearrange: our stream, or the user's with `Overlap::Off`.
    pub(crate) relayout_stream: ManuallyDrop<StreamHandle>,
    /// Where our kernels fetch.
    pub(crate) fetch_stream: ManuallyDrop<StreamHandle>,
    pub(crate) relayout: Relayout,
    /// The user's stream with `Overlap::Off`.
    pub(crate) single: Option<crate::ComputeStream>,
    pub(crate) admission: Admission,
    /// Holds the batches of `Device::transfer`.
    pub(crate) direct: Arc<Pipeline>,
    /// Holds the blocks of read-backs.
    pub(crate) reads: Arc<Pipeline>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) pinned: PinnedPool,
    pub(crate) registrations: Registrations,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) fetching: Fetching,
    pub(crate) limbo: Limbo,
    pub(crate) events: EventPool,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    /// Copies enqueued and not known to be done.
    pub(crate) copies: AtomicUsize,
    /// How many times something was recorded behind copies to the device that are not known to be done.
    pub(crate) uploads: AtomicUsize,
    /// Operations, read-backs and limbo entries that are not over; `drain` waits for none.
    active: AtomicUsize,
    pub(crate) drained: Waiters,
    /// What was enqueued without an event reads, and on which stream, until an event behind it can be recorded.
    orphans: Mutex<Vec<(u64, Held)>>,
    sources: Sources,
    lost: OnceLock<Fault>,
    forks: u64,
}

/// What is known of the work before an event.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is going on.
    NotYet,
    /// It is done.
    Fired,
    /// It is over, and failed.
    Failed(Error),
    /// Nothing: it may go on for ever, and what it touches must not be used again.
    Unknown(Error),
}

/// The parts that the builder made.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) kind: DeviceKind,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) single: Option<(crate::ComputeStream, StreamHandle)>,
    pub(crate) relayout: Relayout,
    pub(crate) admission: Admission,
    pub(crate) engine: Arc<Engine>,
    pub(crate) pinned: PinnedPool,
    pub(crate) fetching: Fetching,
}

impl Shared {
    pub(crate) fn new(id: u64, parts: Parts) -> Self {
        let by_hand = parts.backend.by_hand();
        let streams = parts.backend.streams().clone();
        let (single, shared) = parts.single.unzip();
        Self {
            id,
            name: parts.name,
            kind: parts.kind,
            copy_stream: ManuallyDrop::new(shared.clone().unwrap_or(streams.copy)),
            relayout_stream: ManuallyDrop::new(shared.clone().unwrap_or(streams.relayout)),
            fetch_stream: ManuallyDrop::new(shared.clone().unwrap_or(streams.fetch)),
            relayout: parts.relayout,
            read_stream: ManuallyDrop::new(shared.unwrap_or(streams.read)),
            backend: ManuallyDrop::new(parts.backend),
            single,
            direct: parts.admission.open_without_floor("direct"),
            reads: parts.admission.open_without_floor("read-back"),
            admission: parts.admission,
            engine: parts.engine,
            pinned: parts.pinned,
            registrations: Registrations::default(),
            reactor: Arc::new(Reactor::default()),
            fetching: parts.fetching,
            limbo: Limbo::default(),
            events: EventPool::default(),
            clock: Clock::new(by_hand),
            counters: Counters::default(),
            copies: AtomicUsize::new(0),
            uploads: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            drained: Waiters::default(),
            orphans: Mutex::default(),
            sources: Sources::default(),
            lost: OnceLock::new(),
            forks: os::fork_generation(),
        }
    }

    /// What plans of batches for it must know.
    pub(crate) fn terms(&self, relayout: Option<Relayout>) -> Terms {
        Terms {
            device: self.id,
            rearranges: self.backend.rearranges(),
            relayout: relayout.unwrap_or(self.relayout),
            chunk_bytes: self.engine.chunk_bytes(),
            // On a stream of the user's, copies are to wait for their turn.
            is_in_reach: self.backend.is_in_reach() && self.single.is_none(),
            fetches: Fetches::Nothing,
        }
    }

    /// Whether this process may use the device, and the device is there.
    pub(crate) fn check(&self) -> Result<()> {
        if os::fork_generation() != self.forks {
            return Err(Error::Forked { device: self.name.clone(), batch: Returned::default() });
        }
        self.lost().map_or(Ok(()), Err)
    }

    /// Why the device is lost, if it is.
    pub(crate) fn lost(&self) -> Option<Error> {
        let fault = self.lost.get()?;
        let (code, call, device) = (fault.code, fault.call, self.name.clone());
        Some(Error::DeviceLost { code, call, device, batch: Returned::default() })
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Turns a fault into the error to report, and tells everybody if it is the end of the device.
    ///
    /// After the first loss every error is that loss: all that waits resolves with one cause (invariant 6).
    pub(crate) fn fault(&self, fault: Fault) -> Error {
        if matches!(fault.severity(), Severity::Lost | Severity::Stop) && self.lost.set(fault).is_ok() {
            if fault.severity() == Severity::Lost {
                tracing::error!(device = self.name, code = fault.code, call = fault.call, "the device is lost");
            }
            self.reactor.notify();
            self.engine.kick();
            self.admission.wake_all();
            self.pinned.wake_all();
            self.drained.wake();
        }
        self.lost().unwrap_or_else(|| fault.into_error(&self.name))
    }

    /// A stream of the user's, if this device can work on it.
    pub(crate) fn bind<S: LeaseStream>(&self, stream: &S) -> Result<StreamHandle> {
        let binding = Binding { id: self.id, name: &self.name, backend: self.backend.as_ref() };
        stream.bind(&binding).map_err(|error| match error {
            // All that waits is to know.
            Error::DeviceLost { code, call, .. } => self.fault(Fault::new(code, call)),
            other => other,
        })
    }

    /// Takes an unused event.
    pub(crate) fn event(&self) -> Result<Event> {
        self.events.take(self.backend.as_ref()).map_err(|fault| self.fault(fault))
    }

    /// Records an unused event on `stream`.
    pub(crate) fn record(&self, stream: &StreamHandle) -> Result<Event> {
        let event = self.event()?;
        match self.backend.record(stream, &event) {
            Ok(()) => Ok(event),
            Err(fault) => {
                // It may be the event that is at fault: the next one is to be another.
                drop(event);
                Err(self.fault(fault))
            }
        }
    }

    /// Keeps what was enqueued on that stream of ours without an event reads, until an event recorded there later has fired.
    pub(crate) fn orphan(self: &Arc<Self>, stream: u64, held: Held) {
        if held.is_empty() {
            return;
        }
        if let Err(held) = self.follow(stream, held) {
            lock(&self.orphans).push((stream, held));
            self.reactor.notify();
        }
    }

    /// Records behind what reads it, if that can be done; else gives it back.
    fn follow(self: &Arc<Self>, stream: u64, held: Held) -> Result<(), Held> {
        let is_kernels = stream == self.fetch_stream.id();
        let stream: &StreamHandle = if is_kernels { &self.fetch_stream } else { &self.copy_stream };
        match self.record(stream) {
            Ok(event) => self.reactor.push(self, Entry::new(self, stream, 0, held, Done::Orphan(event))),
            Err(_) if self.is_lost() => held.let_go(self, true),
            Err(_) => return Err(held),
        }
        Ok(())
    }

    /// Has the source of a copy that is done dropped on a staging thread, with others, when the reactor has time.
    pub(crate) fn drop_later(self: &Arc<Self>, source: Owner) {
        match self.sources.keep(source, Active::new(self), self.clock.now()) {
            Kept::First(by) => self.reactor.notify_by(by),
            Kept::Beside => {}
            Kept::Many => self.drop_sources(true),
        }
    }

    /// Hands the sources that are to be dropped to a staging thread, if there `is_time` for it or it can't wait any more.
    pub(crate) fn drop_sources(&self, is_time: bool) {
        let sources = self.sources.take(is_time, || self.clock.now());
        if !sources.is_empty() {
            // One by one: a panic of one must not become a second one while it unwinds.
            let drop_one = |source| caught("the drop of a source", || drop::<(Owner, Active)>(source));
            self.engine.run(Box::new(move || sources.into_iter().for_each(drop_one)));
        }
    }

    /// Tries again to follow what could not be followed.
    pub(crate) fn adopt_orphans(self: &Arc<Self>) {
        let orphans = std::mem::take(&mut *lock(&self.orphans));
        for (stream, held) in orphans {
            if let Err(held) = self.follow(stream, held) {
                // The reactor looks after them again by and by.
                lock(&self.orphans).push((stream, held));
            }
        }
    }

    pub(crate) fn has_orphans(&self) -> bool {
        !lock(&self.orphans).is_empty()
    }

    /// Makes `stream` wait for `event`.
    pub(crate) fn wait(&self, stream: &StreamHandle, event: &Event) -> Result<()> {
        self.backend.wait(stream, event).map_err(|fault| self.fault(fault))
    }

    /// What `event` answers, now.
    pub(crate) fn ask(&self, event: &Event) -> Asked {
        match self.backend.query(event) {
            Ok(Answer::NotYet) => Asked::NotYet,
            Ok(Answer::Fired) => Asked::Fired,
            Ok(Answer::Failed(fault)) => Asked::Failed(self.fault(fault)),
            Err(fault) if fault.severity() == Severity::Later => Asked::NotYet,
            Err(fault) => Asked::Unknown(self.fault(fault)),
        }
    }

    /// Whether `event` has fired, now.
    pub(crate) fn query(&self, event: &Event) -> Result<bool> {
        match self.ask(event) {
            Asked::NotYet => Ok(false),
            Asked::Fired => Ok(true),
            Asked::Failed(error) | Asked::Unknown(error) => Err(error),
        }
    }

    /// Whether so many copies are pending that no more are enqueued: a driver would block who does (invariant 9).
    pub(crate) fn has_many_copies(&self) -> bool {
        self.copies.load(Ordering::Acquire) >= MOST_OPERATIONS
    }

    /// Whether no copy to the device is pending, or none will ever be done.
    pub(crate) fn is_idle(&self) -> bool {
        self.uploads.load(Ordering::Acquire) == 0 || self.is_lost()
    }

    /// So many copies fewer are pending: those that were held back for them go on.
    pub(crate) fn copies_are_over(self: &Arc<Self>, operations: usize) {
        if self.copies.fetch_sub(operations, Ordering::AcqRel) >= MOST_OPERATIONS {
            self.engine.kick();
            self.pinned.serve_later(self);
        }
    }

    /// Something begins that `drain` waits for.
    pub(crate) fn begin(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    /// It is over.
    pub(crate) fn end(&self) {
        if self.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.drained.wake();
        }
    }

    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// A block that nothing pending touches goes back to where the next batch finds it.
    pub(crate) fn release(&self, block: Block) {
        self.backend.released(&block.memory);
        self.admission.release(block);
        self.engine.memory_came_free();
    }

    /// A block of which nobody knows when it is free is never used again; it stays counted.
    ///
    /// On a lost device it is leaked on purpose: copies may still be going on (invariant 6).
    pub(crate) fn quarantine(&self, block: Block) {
        let counter = if self.is_lost() { &self.counters.leaked } else { &self.counters.quarantined };
        counter.fetch_add(block.memory.bytes as u64, Ordering::Relaxed);
        self.admission.quarantine(block);
        self.engine.memory_came_free();
    }

    /// Hands blocks to a staging thread to be freed.
    pub(crate) fn free_later(&self, space: Space, memory: Vec<Memory>) {
        if memory.is_empty() {
            return;
        }
        let backend = Arc::clone(&self.backend);
        self.engine.run(Box::new(move || free_all(backend.as_ref(), space, memory)));
    }

    /// Frees what was given up to make room. Before any block is allocated, so that the limit holds for what is there too.
    pub(crate) fn free_condemned(&self) {
        let condemned = self.admission.take_condemned();
        if condemned.is_empty() {
            return;
        }
        let bytes = condemned.iter().map(|memory| memory.bytes).sum();
        free_all(self.backend.as_ref(), Space::Device, condemned);
        self.admission.freed(bytes);
        self.engine.memory_came_free();
    }

    /// The same on a staging thread, if `grant` gave something up.
    pub(crate) fn free_condemned_later(self: &Arc<Self>, grant: &Grant) {
        if grant.evicts {
            let device = self.clone();
            self.engine.run(Box::new(move || device.free_condemned()));
        }
    }

    /// Runs what a thread would do, on this one, for devices that are driven by hand.
    pub(crate) fn turn(self: &Arc<Self>) {
        if !self.backend.by_hand() {
            return;
        }
        loop {
            let staged = self.engine.run_inline();
            let moved = self.reactor.turn_inline(self);
            if !staged && !moved {
                return;
            }
        }
    }

    /// Moves a clock that is moved by hand.
    pub(crate) fn advance(self: &Arc<Self>, by: Duration) {
        self.clock.advance(by);
        self.turn();
    }
}

/// Frees blocks that nobody uses; a failure is said and costs the memory.
#[expect(unsafe_code, reason = "gives blocks back")]
pub(crate) fn free_all(backend: &dyn Backend, space: Space, memory: Vec<Memory>) {
    for block in memory {
        let bytes = block.bytes;
        // SAFETY: idle blocks have no owner and no pending work, by invariant 3; they came from this backend.
        if let Err(fault) = unsafe { backend.free(space, block) } {
            tracing::warn!(code = fault.code, bytes, "a block could not be freed");
        }
    }
}

#[expect(unsafe_code, reason = "takes the fields that the last job drops")]
impl Drop for Shared {
    fn drop(&mut self) {
        let lost = self.is_lost();
        let (device, pinned, events) = (self.admission.take_all(), self.pinned.take_idle(), self.events.take_all());
        // SAFETY: taken once, here; nobody looks at the field again.
        let backend = unsafe { ManuallyDrop::take(&mut self.backend) };
        // SAFETY: as above.
        let copy_stream = unsafe { ManuallyDrop::take(&mut self.copy_stream) };
        // SAFETY: as above.
        let read_stream = unsafe { ManuallyDrop::take(&mut self.read_stream) };
        // SAFETY: as above.
        let relayout_stream = unsafe { ManuallyDrop::take(&mut self.relayout_stream) };
        // SAFETY: as above.
        let fetch_stream = unsafe { ManuallyDrop::take(&mut self.fetch_stream) };
        self.reactor.stop();
        self.engine.stop(Box::new(move |ring| {
            drop((events, copy_stream, read_stream, relayout_stream, fetch_stream));
            if !lost {
                free_all(backend.as_ref(), Space::Device, device);
                free_all(backend.as_ref(), Space::Pinned, pinned.into_iter().chain(ring).collect());
            }
        }));
    }
}

/// Something that `drain` waits for, until it is dropped.
#[derive(Debug)]
pub(crate) struct Active(Arc<Shared>);

impl Active {
    pub(crate) fn new(device: &Arc<Shared>) -> Self {
        device.begin();
        Self(device.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Numbers for devices, never used again.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A flag that is raised once.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    /// Raises it; answers whether it was down.
    pub(crate) fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
