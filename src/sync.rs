//! The one place that names the synchronisation primitives, and what a poisoned lock means here: nothing; and wakes tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Locks, whatever became of a thread that held the lock before: no invariant of ours is broken between two statements
/// under a lock, since nothing that can panic is called there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Wakes a task. Its waker is the user's: if it panics, nobody else who waits is to miss a wake-up.
pub(crate) fn wake(waker: Waker) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        let error = crate::Error::panicked("a waker", &*payload);
        tracing::error!(%error, "caught a panic");
    }
}
