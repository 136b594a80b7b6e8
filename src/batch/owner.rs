//! [`BatchOwner`]: a share in a batch's memory. When the last one is gone the block goes to limbo (invariant 3).
//!
//! Handles, leases, transfers and pending copies are owners. Work that was queued on a stream is not: as on hardware, what
//! keeps the memory for it is the event behind it.

use std::ops::Deref;
use std::sync::Arc;

use super::BatchCore;
use crate::sync::atomic::Ordering;

/// A share in a batch's memory.
#[derive(Debug)]
pub(crate) struct BatchOwner(Arc<BatchCore>);

impl BatchOwner {
    pub(crate) fn new(core: BatchCore) -> Self {
        core.owners.store(1, Ordering::Relaxed);
        Self(Arc::new(core))
    }

    /// What is known of the batch, without a share in its memory.
    pub(crate) fn core(&self) -> Arc<BatchCore> {
        self.0.clone()
    }

    /// Whether nobody else has a share.
    pub(crate) fn is_last(&self) -> bool {
        self.0.owners.load(Ordering::Acquire) == 1
    }
}

impl Clone for BatchOwner {
    fn clone(&self) -> Self {
        self.0.owners.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Deref for BatchOwner {
    type Target = BatchCore;

    fn deref(&self) -> &BatchCore {
        &self.0
    }
}

impl Drop for BatchOwner {
    fn drop(&mut self) {
        if self.0.owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.retire();
        }
    }
}
