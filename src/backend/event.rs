//! [`Event`]: a marker in a stream that fires when all before it is done; [`HostEvent`] is the one without hardware.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Count;

use super::{Answer, Fault};
use crate::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex, lock, wait};

/// A handle on an event. Clones are the same event; who pools it sees to it that it is recorded anew only when it is free.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Host(Arc<HostEvent>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<super::cuda::CudaEvent>),
}

impl Event {
    /// Whether it is the same event.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(one), Self::Host(other)) => Arc::ptr_eq(one, other),
            #[cfg(feature = "cuda")]
            (Self::Cuda(one), Self::Cuda(other)) => Arc::ptr_eq(one, other),
            #[cfg(feature = "cuda")]
            _ => false,
        }
    }

    /// The event of a backend without hardware.
    pub(super) const fn host(&self) -> Result<&Arc<HostEvent>, Fault> {
        match self {
            Self::Host(event) => Ok(event),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => Err(Fault::new(Fault::INVALID_HANDLE, "a host event")),
        }
    }
}

/// Counts how often it was recorded and up to which record it has fired.
///
/// As on hardware, a wait is for the latest record at the time of the call, and a query asks about the latest one.
#[derive(Debug, Default)]
pub(crate) struct HostEvent {
    recorded: AtomicU64,
    fired: AtomicU64,
    /// The code with which the latest record fired; 0 if the work before it went well.
    code: AtomicI32,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
    /// Where the live events are counted, if they are.
    live: Option<Arc<Count>>,
}

impl Drop for HostEvent {
    fn drop(&mut self) {
        if let Some(live) = &self.live {
            live.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl HostEvent {
    /// An event that is counted in `live` until it is dropped.
    pub(super) fn counted(live: &Arc<Count>) -> Self {
        live.fetch_add(1, Ordering::AcqRel);
        let mut event = Self::default();
        event.live = Some(live.clone());
        event
    }

    /// Notes a record; returns its number.
    pub(crate) fn record(&self) -> u64 {
        self.code.store(0, Ordering::Relaxed);
        self.recorded.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the latest record; 0 if there was none.
    pub(super) fn latest(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    /// The record of that number was reached, after work that ended with `code`.
    pub(crate) fn fire(&self, number: u64, code: i32) {
        if number == self.latest() && code != 0 {
            self.code.store(code, Ordering::Release);
        }
        // `fetch_max`, but ThreadSanitizer does not see the order that one makes.
        let _ =
            self.fired.fetch_update(Ordering::AcqRel, Ordering::Acquire, |fired| (fired < number).then_some(number));
        // Either who sleeps is seen here, or he sees that it has fired.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.lock));
            self.changed.notify_all();
        }
    }

    pub(super) fn has_fired(&self, number: u64) -> bool {
        self.fired.load(Ordering::Acquire) >= number
    }

    /// Whether the latest record has fired.
    pub(crate) fn query(&self) -> Answer {
        if !self.has_fired(self.latest()) {
            return Answer::NotYet;
        }
        match self.code.load(Ordering::Acquire) {
            0 => Answer::Fired,
            code => Answer::Failed(Fault::new(code, "event query")),
        }
    }

    /// Blocks a stream's thread until the record of that number has fired.
    pub(crate) fn block_until(&self, number: u64) {
        if self.has_fired(number) {
            return;
        }
        let mut guard = lock(&self.lock);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !self.has_fired(number) {
            guard = wait(&self.changed, guard);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
