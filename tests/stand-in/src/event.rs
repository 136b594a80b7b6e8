//! [`Event`] and [`Record`]: an event names its latest record; who waits keeps the record that was the latest then.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::code::Code;
use crate::refusal::Refusal;
use crate::world::World;

/// Flag of events that keep no time.
pub(crate) const NO_TIMING: u32 = 2;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) flags: u32,
    pub(crate) latest: Latest,
}

/// Where an event was recorded last.
#[derive(Clone, Debug)]
pub(crate) enum Latest {
    Never,
    /// On a stream that was being captured.
    Captured,
    Record(Arc<Record>),
}

/// One recording of an event: the operation of that number on that stream.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) stream: usize,
    pub(crate) number: u64,
    done: OnceLock<Instant>,
}

impl Record {
    pub(crate) const fn new(stream: usize, number: u64) -> Self {
        Self { stream, number, done: OnceLock::new() }
    }

    /// When it completed, if it has.
    pub(crate) fn done(&self) -> Option<Instant> {
        self.done.get().copied()
    }

    pub(crate) fn finish(&self, at: Instant) {
        let _ = self.done.set(at);
    }
}

impl World {
    /// The event of a handle, in a context without fault.
    pub(crate) fn find_event(&mut self, handle: usize) -> Result<&mut Event, Refusal> {
        let unknown = || Refusal::misuse(Code::INVALID_HANDLE, format!("{handle:#x} is no event"));
        let context = self.events.get(&handle).ok_or_else(unknown)?.context;
        self.check_context(context)?;
        self.events.get_mut(&handle).ok_or_else(unknown)
    }
}
