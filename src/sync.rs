//! The one place that names the synchronisation primitives, and what a poisoned lock means here: nothing.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Locks, whatever became of a thread that held the lock before: no invariant of ours is broken between two statements
/// under a lock, since nothing that can panic is called there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
