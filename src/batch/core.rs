//! [`BatchCore`]: what handles, transfer, reactor and leases of one batch share: its block, its groups' states, its uses.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::usage::{Usage, Use};
use super::{Cursor, HostBatch};
use crate::admission::{Block, Pipeline};
use crate::backend::{Event, StreamHandle};
use crate::device::{Flag, Shared};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::memory::blocks::class_of;
use crate::plan::{Field, Layout};
use crate::reactor::Waiters;
use crate::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// Where a group's copies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum GroupState {
    /// Not all of its copies are enqueued.
    Staging,
    /// All copies are enqueued and the event is recorded.
    Queued,
    /// The event has fired.
    Arrived,
    /// It will never arrive.
    Failed,
}

impl GroupState {
    const fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Staging,
            1 => Self::Queued,
            2 => Self::Arrived,
            _ => Self::Failed,
        }
    }
}

/// Fields that become ready together.
#[derive(Debug)]
struct Group {
    state: AtomicU8,
    /// Set before the state becomes Queued (invariant 5).
    event: OnceLock<GroupEvent>,
}

/// What a group's copies are followed by.
#[derive(Debug)]
pub(crate) enum GroupEvent {
    Own(Event),
    /// Groups of other batches are followed by it too.
    Shared(Arc<Event>),
}

impl GroupEvent {
    fn event(&self) -> &Event {
        match self {
            Self::Own(event) => event,
            Self::Shared(event) => event,
        }
    }

    /// The event, if nobody else needs it.
    fn into_event(self) -> Option<Event> {
        match self {
            Self::Own(event) => Some(event),
            Self::Shared(event) => Arc::into_inner(event),
        }
    }
}

/// It has arrived, or failed.
const OVER: u8 = 1;
/// Its consumer has it, or does not want it.
const TAKEN: u8 = 2;

/// One batch on the device.
#[derive(Debug)]
pub(crate) struct BatchCore {
    pub(crate) device: Arc<Shared>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) index: u64,
    pub(crate) layout: Arc<Layout>,
    groups: SmallVec<[Group; 2]>,
    /// Groups that have not arrived.
    remaining: AtomicUsize,
    /// Where the block begins; null until it is there.
    base: AtomicPtr<u8>,
    /// How many owners there are; see `owner.rs`.
    pub(super) owners: AtomicUsize,
    failure: OnceLock<Error>,
    over: Flag,
    /// Which of [`OVER`] and [`TAKEN`] it is.
    ends: AtomicU8,
    /// A copy of it was enqueued.
    pub(crate) begun: Flag,
    pub(crate) waiters: Waiters,
    pub(crate) usage: Mutex<Usage>,
    pub(crate) quarantined: Flag,
    pub(crate) meta: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) cursor: Option<Cursor>,
}

impl BatchCore {
    /// A batch that was admitted, with its block if that is there already.
    pub(crate) fn new(
        device: Arc<Shared>,
        pipeline: Arc<Pipeline>,
        batch: &HostBatch,
        layout: Arc<Layout>,
        block: Option<Block>,
    ) -> Self {
        let index = pipeline.submitted(layout.payload);
        let group = |_| Group { state: AtomicU8::new(GroupState::Staging as u8), event: OnceLock::new() };
        device.begin();
        Self {
            index,
            groups: (0..layout.group_count).map(group).collect(),
            remaining: AtomicUsize::new(layout.group_count),
            layout,
            base: AtomicPtr::new(block.as_ref().map_or(std::ptr::null_mut(), |block| block.memory.ptr)),
            owners: AtomicUsize::new(0),
            failure: OnceLock::new(),
            over: Flag::default(),
            ends: AtomicU8::new(0),
            begun: Flag::default(),
            waiters: Waiters::default(),
            usage: Mutex::new(Usage::of(block)),
            quarantined: Flag::default(),
            meta: batch.shared_meta(),
            cursor: batch.cursor(),
            device,
            pipeline,
        }
    }

    /// Gives the batch its block. Once.
    pub(crate) fn set_block(&self, block: Block) {
        let ptr = block.memory.ptr;
        lock(&self.usage).block = Some(block);
        self.base.store(ptr, Ordering::Release);
    }

    pub(crate) fn has_block(&self) -> bool {
        !self.base.load(Ordering::Acquire).is_null()
    }

    /// The size class of a block for it.
    pub(crate) fn class(&self) -> Option<usize> {
        class_of(self.layout.bytes)
    }

    /// The address of a byte of the image. Null where the batch has no bytes.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        let base = self.base.load(Ordering::Acquire);
        if base.is_null() { base } else { base.wrapping_add(offset) }
    }

    pub(crate) fn state(&self, group: Option<usize>) -> GroupState {
        let Some(group) = group else { return GroupState::Arrived };
        GroupState::of(self.groups[group].state.load(Ordering::Acquire))
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The event of a group that is Queued or Arrived.
    pub(crate) fn event(&self, group: usize) -> Option<&Event> {
        self.groups[group].event.get().map(GroupEvent::event)
    }

    fn wake(&self) {
        let woken = self.waiters.wake();
        if woken > 0 {
            self.device.counters.wakes.fetch_add(woken as u64, Ordering::Relaxed);
        }
    }

    /// A group's copies are all enqueued, and `event` is recorded behind them.
    pub(crate) fn queued(&self, group: usize, event: GroupEvent) {
        let _ = self.groups[group].event.set(event);
        self.shift(group, GroupState::Staging, GroupState::Queued);
        self.wake();
    }

    /// A group's copies were done by the time they were enqueued: nobody needs an event of it.
    pub(crate) fn arrived_at_once(&self, group: usize) {
        self.leave(group, GroupState::Staging);
    }

    /// A group's work is over: its event has fired, or it failed.
    pub(crate) fn over(&self, group: usize, result: Result<()>) {
        match result {
            Ok(()) => self.arrived(group),
            Err(error) => self.fail_group(group, error),
        }
    }

    /// A group's event has fired.
    pub(crate) fn arrived(&self, group: usize) {
        self.leave(group, GroupState::Queued);
    }

    fn leave(&self, group: usize, from: GroupState) {
        if self.shift(group, from, GroupState::Arrived) {
            self.remaining.fetch_sub(1, Ordering::AcqRel);
        }
        self.settle();
        self.wake();
    }

    /// What is not enqueued never will be. The first cause stays; groups on their way may still arrive.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
        for group in 0..self.groups.len() {
            self.shift(group, GroupState::Staging, GroupState::Failed);
        }
        self.settle();
        self.wake();
    }

    /// A copy of a group failed after it was enqueued: the group does not arrive, whatever its other copies do.
    pub(crate) fn fail_group(&self, group: usize, error: Error) {
        let _ = self.failure.set(error.clone());
        let _ = self.shift(group, GroupState::Staging, GroupState::Failed)
            || self.shift(group, GroupState::Queued, GroupState::Failed);
        self.fail(error);
    }

    /// Copies that are enqueued can't be followed to their end.
    pub(crate) fn fail_queued(&self, error: Error) {
        let _ = self.failure.set(error.clone());
        for group in 0..self.groups.len() {
            self.shift(group, GroupState::Queued, GroupState::Failed);
        }
        self.fail(error);
    }

    /// Counts the operation as over, once, when it is.
    pub(crate) fn settle(&self) {
        if (self.is_whole() || self.failure.get().is_some()) && self.over.raise() {
            if self.ends.fetch_or(OVER, Ordering::AcqRel) & TAKEN == 0 {
                self.pipeline.lies();
            }
            self.device.admission.operation_done();
            self.device.end();
        }
    }

    /// Its consumer takes it, or does not want it. Once.
    pub(crate) fn taken(&self) {
        let is_over = self.ends.fetch_or(TAKEN, Ordering::AcqRel) & OVER != 0;
        self.pipeline.taken(is_over);
    }

    fn shift(&self, group: usize, from: GroupState, to: GroupState) -> bool {
        let state = &self.groups[group].state;
        state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether all of it has arrived.
    pub(crate) fn is_whole(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }

    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Whether the first field is queued, or more.
    pub(crate) fn has_begun(&self) -> bool {
        self.layout.fields.first().is_none_or(|field| self.state(field.group) >= GroupState::Queued)
    }

    /// A use of the block by work on `stream` ends, as far as the host is concerned.
    ///
    /// If it `touched` the block, an event is recorded behind the work; if that fails, the block is quarantined.
    pub(crate) fn close_use(&self, stream: &StreamHandle, touched: bool, wrote: bool) -> Option<Error> {
        // A batch without bytes has no block that would wait for the event.
        let touched = touched && self.has_block();
        // An earlier use of the stream stays in the list meanwhile: others may come after it at any moment. Its event is
        // recorded anew, which covers the earlier work as well.
        let earlier = if touched { lock(&self.usage).ended_on(stream.id()) } else { None };
        let recorded = if touched {
            let again = earlier.as_ref().map(|used| &used.event);
            let again = again.filter(|event| self.device.backend.record(stream, event).is_ok()).cloned();
            let event = again.map_or_else(|| self.device.record(stream), Ok);
            event.map(|event| Some(Use { stream: stream.id(), event, wrote }))
        } else {
            Ok(None)
        };
        match recorded {
            Ok(used) => {
                lock(&self.usage).close(used);
                None
            }
            Err(error) => {
                self.quarantined.raise();
                if wrote || earlier.is_some_and(|used| used.wrote) {
                    // Nobody can come after what was written.
                    self.fail(error.clone());
                }
                lock(&self.usage).close_unfollowed();
                Some(error)
            }
        }
    }

    pub(crate) fn position(&self, name: &str) -> Result<usize> {
        self.layout.names.iter().position(|of| of == name).ok_or_else(|| Error::UnknownField {
            field: name.to_owned(),
            names: self.layout.names.iter().map(ToString::to_string).collect(),
        })
    }

    /// The field, if its elements are `asked`.
    pub(crate) fn typed(&self, place: usize, asked: Dtype) -> Result<&Field> {
        let field = &self.layout.fields[place];
        if field.dtype == asked {
            return Ok(field);
        }
        Err(Error::DtypeMismatch { field: Some(self.layout.names[place].to_string()), asked, found: field.dtype })
    }

    /// The error for a field whose copies can't be waited for: it failed, or is not queued.
    pub(crate) fn not_queued(&self, place: usize) -> Error {
        self.failure().cloned().unwrap_or_else(|| Error::NotQueued { field: self.layout.names[place].to_string() })
    }
}

impl BatchCore {
    /// The last owner is gone: the block goes to limbo, or nowhere.
    pub(super) fn retire(&self) {
        let mut usage = std::mem::take(&mut *lock(&self.usage));
        let Some(block) = usage.block.take() else { return };
        if self.quarantined.is_up() {
            self.device.quarantine(block);
        } else {
            self.device.limbo.retire(&self.device, block, usage.into_events());
        }
    }
}

impl Drop for BatchCore {
    fn drop(&mut self) {
        for group in &mut self.groups {
            if let Some(event) = group.event.take().and_then(GroupEvent::into_event) {
                self.device.events.put(event);
            }
        }
    }
}
