//! [`Entry`]: a recorded event, what it keeps alive, and what happens when it has fired.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Event, StreamHandle};
use crate::batch::BatchOwner;
use crate::device::{Active, Asked, Fetch, Shared};
use crate::error::{Error, Result};
use crate::memory::{Owner, Segment};
use crate::readback::ReadCore;
use crate::staging::Sent;
use crate::sync::atomic::Ordering;

/// What a copy needs until it is done (invariant 1).
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) segment: Option<Segment>,
    /// What keeps the memory of a direct copy's source, and how many bytes that are.
    pub(crate) source: Option<(Owner, usize)>,
}

/// Whose copies they are.
#[derive(Debug)]
pub(crate) enum Done {
    /// A chunk of a group, not its last.
    Chunk(BatchOwner, usize, Event),
    /// The last chunk of a group; the event is the group's.
    Group(BatchOwner, usize),
    /// Groups of several batches, whose copies went together: they share the event.
    Many(Vec<Sent>),
    /// What a copy without an event read; this one is recorded behind it.
    Orphan(Event),
    /// A read-back.
    Read(Arc<ReadCore>, Event),
}

/// When something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was looked for, and found about then.
    Seen(Duration),
    /// It was found later, and had been expected then.
    Guessed(Duration),
}

impl Ended {
    pub(super) const fn at(self) -> Duration {
        match self {
            Self::Seen(at) | Self::Guessed(at) => at,
        }
    }
}

/// Something that was enqueued and is not known to be done.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) stream: u64,
    pub(crate) bytes: usize,
    /// What it counts against the bound of pending operations.
    operations: usize,
    /// It is on the stream that carries batches to the device.
    is_upload: bool,
    /// Its time tells the link's rate.
    pub(super) is_copy: bool,
    pub(crate) since: Duration,
    /// When it was asked last and was not done.
    pub(super) asked: Duration,
    pub(super) ended: Ended,
    /// When it can be done at the earliest, or is to be asked at the latest.
    pub(crate) due: Duration,
    /// It is one of many short copies: who polls asks it.
    pub(super) is_left_to_polls: bool,
    /// A kernel fetches it.
    pub(super) fetch: Option<Fetch>,
    pub(crate) held: Held,
    pub(crate) done: Done,
}

impl Entry {
    pub(crate) fn new(device: &Shared, stream: &StreamHandle, bytes: usize, held: Held, done: Done) -> Self {
        Self::of_many(device, stream, bytes, held, done, 1)
    }

    /// An entry for so many operations that share its event.
    pub(crate) fn of_many(
        device: &Shared,
        stream: &StreamHandle,
        bytes: usize,
        held: Held,
        done: Done,
        operations: usize,
    ) -> Self {
        device.copies.fetch_add(operations, Ordering::AcqRel);
        let is_upload = stream.id() == device.copy_stream.id();
        if is_upload {
            device.uploads.fetch_add(1, Ordering::AcqRel);
        }
        Self {
            stream: stream.id(),
            bytes,
            operations,
            is_upload,
            is_copy: true,
            since: Duration::ZERO,
            asked: Duration::ZERO,
            ended: Ended::Guessed(Duration::ZERO),
            due: Duration::ZERO,
            is_left_to_polls: false,
            fetch: None,
            held,
            done,
        }
    }

    /// The same for what is no copy and only comes after some: work on what was copied, or bytes that were written in place.
    /// It tells nothing of the link's rate.
    pub(crate) fn behind_a_copy(mut self) -> Self {
        self.is_copy = false;
        self
    }

    /// The same for what a kernel fetches.
    pub(crate) fn by_a_kernel(mut self, fetch: Fetch) -> Self {
        self.fetch = Some(fetch);
        self.behind_a_copy()
    }

    /// Begins to count its time.
    pub(super) fn begin(&mut self, device: &Shared) {
        self.since = device.clock.now();
        self.asked = self.since;
        let least = device.counters.least_time(self.bytes);
        let pending = device.copies.load(Ordering::Relaxed) + self.batches() - 1;
        let patience = device.reactor.polls.patience(self.since, pending);
        // One of many short copies is not worth waking the thread for.
        self.is_left_to_polls = least < patience;
        self.due = self.since + least.max(patience);
    }

    /// Whose copies they are: so many batches'.
    fn batches(&self) -> usize {
        match &self.done {
            Done::Many(sent) => sent.len(),
            Done::Chunk(..) | Done::Group(..) | Done::Orphan(_) | Done::Read(..) => 1,
        }
    }

    /// Counts it as pending no longer.
    fn is_over(&self, device: &Arc<Shared>) {
        device.copies_are_over(self.operations);
        if self.is_upload {
            // Who completes entries looks afterwards whether the link has run dry and something waits for that.
            device.uploads.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn event(&self) -> Option<&Event> {
        match &self.done {
            Done::Chunk(_, _, event) | Done::Orphan(event) | Done::Read(_, event) => Some(event),
            Done::Group(core, group) => core.event(*group),
            Done::Many(sent) => sent.first().and_then(|sent| sent.core.event(sent.group)),
        }
    }

    /// Whether somebody may have nothing else to take meanwhile.
    pub(super) fn is_waited_for(&self, device: &Shared) -> bool {
        // Each transfer that is no pipeline's may have a task of its own that waits for it.
        let is_waited_for =
            |core: &BatchOwner| core.pipeline.id() == device.direct.id() || core.pipeline.is_waited_for();
        match &self.done {
            Done::Chunk(core, ..) | Done::Group(core, _) => is_waited_for(core),
            Done::Many(sent) => sent.iter().any(|sent| is_waited_for(&sent.core)),
            Done::Orphan(_) => false,
            Done::Read(..) => true,
        }
    }

    /// What the event answers.
    pub(crate) fn ask(&self, device: &Shared) -> Asked {
        device.counters.polls.fetch_add(1, Ordering::Relaxed);
        self.event().map_or(Asked::Fired, |event| device.ask(event))
    }

    /// The device lives and does not say whether it is done: what it may still touch is not used again.
    ///
    /// Its event goes nowhere: it may be what is at fault. What it read is followed by another one, once.
    pub(crate) fn lose(self, device: &Arc<Shared>, error: Error) {
        self.is_over(device);
        let _active = Active::new(device);
        let error = unrecorded(error);
        match self.done {
            Done::Chunk(core, ..) | Done::Group(core, _) => {
                core.quarantined.raise();
                core.fail_queued(error);
                device.orphan(self.stream, self.held);
                drop_later(device, core);
            }
            Done::Many(sent) => {
                for Sent { core, segment, .. } in sent {
                    core.quarantined.raise();
                    core.fail_queued(error.clone());
                    device.orphan(self.stream, Held { segment: Some(segment), source: None });
                    drop_later(device, core);
                }
            }
            Done::Orphan(_) => self.held.let_go(device, true),
            Done::Read(core, _) => core.lose(error),
        }
    }

    /// Lets go of what it held, marks what it stood for, and wakes who waits.
    pub(crate) fn complete(self, device: &Arc<Shared>, result: Result<()>) {
        self.is_over(device);
        if let Some(fetch) = self.fetch.filter(|_| result.is_ok()) {
            match self.ended {
                Ended::Seen(ended) => device.fetching.over(ended, self.since, fetch),
                Ended::Guessed(ended) => device.fetching.guessed_over(ended),
            }
        }
        let lost = device.is_lost();
        // Dropped last: who drains waits until the memory is back.
        let _active = Active::new(device);
        self.held.let_go(device, lost);
        match self.done {
            Done::Chunk(core, group, event) => {
                device.events.put(event);
                if let Err(error) = result {
                    core.fail_group(group, error);
                }
                drop_later(device, core);
            }
            Done::Group(core, group) => {
                core.over(group, result);
                drop_later(device, core);
            }
            Done::Many(sent) => {
                if !lost {
                    device.engine.release_all(sent.iter().map(|sent| &sent.segment));
                }
                for Sent { core, group, .. } in sent {
                    core.over(group, result.clone());
                    drop_later(device, core);
                }
            }
            Done::Orphan(event) => device.events.put(event),
            Done::Read(core, event) => {
                device.events.put(event);
                core.finish(result);
            }
        }
    }
}

impl Held {
    pub(crate) const fn is_empty(&self) -> bool {
        self.segment.is_none() && self.source.is_none()
    }

    /// Gives the chunk back and has the source dropped on a staging thread; leaks both if the device is lost.
    pub(crate) fn let_go(self, device: &Arc<Shared>, lost: bool) {
        if lost {
            let bytes = self.source.as_ref().map_or(0, |(_, bytes)| *bytes);
            device.counters.leaked.fetch_add(bytes as u64, Ordering::Relaxed);
            let _ = std::mem::ManuallyDrop::new(self);
            return;
        }
        if let Some(segment) = self.segment {
            device.engine.release(&segment);
        }
        if let Some((owner, _)) = self.source {
            device.drop_later(owner);
        }
    }
}

/// Lets go of a batch; if nobody else has it, what the user put into it is dropped on a staging thread.
pub(crate) fn drop_later(device: &Shared, core: BatchOwner) {
    if core.meta.is_some() && core.is_last() {
        device.engine.run(Box::new(move || drop(core)));
    }
}

/// The error of a copy that could not be followed to its end.
pub(crate) fn unrecorded(error: Error) -> Error {
    tracing::warn!(%error, "a copy can't be followed to its end: its block is quarantined");
    error
}
