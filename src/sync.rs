//! The one place that names the synchronisation primitives, and what a poisoned lock means here: nothing; and wakes tasks.
//!
//! What is shared between threads to agree on something uses these, so that `models/` can run the same code under loom and
//! shuttle, which decide who goes on. Mere counters use the standard library's atomics: they decide nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

#[cfg(not(all(test, any(inflight_loom, inflight_shuttle))))]
mod primitives {
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use std::thread::{Builder, yield_now};
}
#[cfg(all(test, inflight_loom))]
mod primitives {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use loom::thread::{Builder, yield_now};
}
#[cfg(all(test, inflight_shuttle))]
mod primitives {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use shuttle::thread::{Builder, yield_now};
}

use primitives::Builder;
pub(crate) use primitives::{Condvar, Mutex, MutexGuard, atomic, yield_now};

/// Whether a model checker runs the threads: then nothing may depend on the time.
pub(crate) const IS_MODEL: bool = cfg!(all(test, any(inflight_loom, inflight_shuttle)));

/// Locks, whatever became of a thread that held the lock before: no invariant of ours is broken between two statements
/// under a lock, since nothing that can panic is called there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits to be notified. As with all such waits, it may end for no reason.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits to be notified, but not for longer than `time`. `guard` is of `mutex`.
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    if IS_MODEL {
        // Time goes by when the others have had their turn.
        drop(guard);
        yield_now();
        return lock(mutex);
    }
    condvar.wait_timeout(guard, time).unwrap_or_else(std::sync::PoisonError::into_inner).0
}

/// Starts a thread that nobody joins.
pub(crate) fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    Builder::new().name(name).spawn(work).map(drop)
}

/// Wakes a task. Its waker is the user's: if it panics, nobody else who waits is to miss a wake-up.
pub(crate) fn wake(waker: Waker) {
    caught("a waker", || waker.wake());
}

/// Runs code of the user's where a panic must not go on: it is said, and ends nothing.
pub(crate) fn caught(what: &'static str, code: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        let error = crate::Error::panicked(what, &*payload);
        tracing::error!(%error, "caught a panic");
    }
}
