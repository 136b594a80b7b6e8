//! [`EventPool`]: events that were used and wait to be used again.

use crate::backend::{Backend, Event, Fault};
use crate::sync::{Mutex, lock};

/// How many unused events are kept.
const KEPT: usize = 1024;

/// Unused events of one device.
#[derive(Debug, Default)]
pub(crate) struct EventPool(Mutex<Vec<Event>>);

impl EventPool {
    /// An event that nobody else holds.
    pub(crate) fn take(&self, backend: &dyn Backend) -> Result<Event, Fault> {
        let kept = lock(&self.0).pop();
        kept.map_or_else(|| backend.create_event(), Ok)
    }

    /// All unused events.
    pub(crate) fn take_all(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.0))
    }

    /// Takes an event back whose operation is marked (invariant 5).
    pub(crate) fn put(&self, event: Event) {
        let mut kept = lock(&self.0);
        if kept.len() < KEPT {
            kept.push(event);
        }
    }
}
