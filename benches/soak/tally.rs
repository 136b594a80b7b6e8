//! [`Tally`]: what has happened so far, counted by the tasks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many of something there were.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Changes with every batch, cancelled ones too: what the watchdog looks at.
    pub(crate) progress: Count,
    pub(crate) epochs: Count,
    /// Batches that were compared with what was sent, whole.
    pub(crate) verified: Count,
    pub(crate) bytes: Count,
    pub(crate) written: Count,
    /// Transfers that were dropped at once or under way.
    pub(crate) transfers_cancelled: Count,
    /// Waits for admission that were given up.
    pub(crate) admissions_cancelled: Count,
    /// Read-backs and tasks of a stream that were dropped under way.
    pub(crate) uses_cancelled: Count,
    /// Streams that were dropped in the middle.
    pub(crate) epochs_left: Count,
    /// Tasks that were aborted in the middle.
    pub(crate) epochs_aborted: Count,
    /// Errors that sources raised, those seen in their places, and those lost with a stream that was dropped.
    pub(crate) raised: Count,
    pub(crate) seen: Count,
    pub(crate) lost: Count,
    /// Read-backs that found no room, and were made in another way.
    pub(crate) busy: Count,
    /// What each task does now, in words.
    phases: [Mutex<String>; 4],
}

impl Tally {
    pub(crate) fn cancelled(&self) -> u64 {
        let counts = [
            &self.transfers_cancelled,
            &self.admissions_cancelled,
            &self.uses_cancelled,
            &self.epochs_left,
            &self.epochs_aborted,
        ];
        counts.into_iter().map(Count::now).sum()
    }

    pub(crate) fn phase(&self, task: usize, text: String) {
        if let Ok(mut phase) = self.phases[task].lock() {
            *phase = text;
        }
    }

    pub(crate) fn phases(&self) -> Vec<String> {
        self.phases.iter().filter_map(|phase| Some(phase.lock().ok()?.clone())).collect()
    }
}
