//! [`Clock`]: the time that waits and timeouts are measured in, real or set by a test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sync::IS_MODEL;

/// Time since the device was built.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The system's.
    Real(Instant),
    /// Nanoseconds, moved by the simulator.
    ByHand(AtomicU64),
}

impl Clock {
    pub(crate) fn new(by_hand: bool) -> Self {
        if by_hand || IS_MODEL { Self::ByHand(AtomicU64::new(0)) } else { Self::Real(Instant::now()) }
    }

    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Real(start) => start.elapsed(),
            Self::ByHand(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Moves a clock that is moved by hand.
    pub(crate) fn advance(&self, by: Duration) {
        if let Self::ByHand(nanos) = self {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            // At the end of time it stops: it must not begin anew.
            let _ = nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_add(by)));
        }
    }
}
