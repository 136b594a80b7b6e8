//! [`EventPool`]: events that were used and wait to be used again.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::{Backend, Event, Fault};
use crate::sync::{Mutex, lock};

/// How many unused events are kept.
const KEPT: usize = 1024;

/// Unused events of one device.
#[derive(Debug, Default)]
pub(crate) struct EventPool {
    kept: Mutex<Vec<Event>>,
    made: AtomicU64,
}

impl EventPool {
    /// An event that nobody else holds.
    pub(crate) fn take(&self, backend: &dyn Backend) -> Result<Event, Fault> {
        let kept = lock(&self.kept).pop();
        kept.map_or_else(
            || {
                let event = backend.create_event()?;
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok(event)
            },
            Ok,
        )
    }

    /// How many were made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// All unused events.
    pub(crate) fn take_all(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.kept))
    }

    /// Takes an event back whose operation is marked (invariant 5).
    pub(crate) fn put(&self, event: Event) {
        let mut kept = lock(&self.kept);
        if kept.len() < KEPT {
            kept.push(event);
        }
    }
}
