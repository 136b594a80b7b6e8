//! [`Usage`]: a batch's block, who uses it now, and the events of those who did.

use smallvec::SmallVec;

use crate::admission::Block;
use crate::backend::{Event, StreamHandle};
use crate::error::{Error, Result};

/// Work that was queued on a stream and touches the block.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// Our number of the stream.
    pub(crate) stream: u64,
    pub(crate) event: Event,
    pub(crate) wrote: bool,
}

/// Open leases and ended ones.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Taken out when the last owner is gone.
    pub(super) block: Option<Block>,
    open: usize,
    exclusive: bool,
    ended: SmallVec<[Use; 2]>,
}

impl Usage {
    /// That of a batch that has its block, or none yet.
    pub(super) fn of(block: Option<Block>) -> Self {
        Self { block, ..Self::default() }
    }

    /// One more reader.
    pub(crate) fn open(&mut self) -> Result<()> {
        if self.exclusive {
            return Err(Error::Borrowed { reason: "the batch is in use by a lease that writes to it" });
        }
        self.open += 1;
        Ok(())
    }

    /// The only reader becomes a writer.
    pub(crate) fn make_exclusive(&mut self) -> Result<()> {
        if self.open != 1 {
            return Err(Error::Borrowed {
                reason: "the batch has other leases or reads, so this one can't write to it",
            });
        }
        self.exclusive = true;
        Ok(())
    }

    /// A reader or writer is done; the event of its work is `used`.
    pub(crate) fn close(&mut self, used: Option<Use>) {
        self.open -= 1;
        self.exclusive = false;
        let Some(used) = used else { return };
        match self.ended.iter_mut().find(|ended| ended.stream == used.stream) {
            Some(ended) => *ended = Use { wrote: ended.wrote || used.wrote, ..used },
            None => self.ended.push(used),
        }
    }

    /// The ended use of `stream`, whose event may be recorded again.
    pub(crate) fn ended_on(&self, stream: u64) -> Option<Use> {
        self.ended.iter().find(|used| used.stream == stream).cloned()
    }

    /// Ended uses that work on `stream` must come after: those of other streams that wrote, or all of them.
    pub(crate) fn before(&self, stream: &StreamHandle, all: bool) -> SmallVec<[Event; 2]> {
        let ahead = self.ended.iter().filter(|used| (all || used.wrote) && used.stream != stream.id());
        ahead.map(|used| used.event.clone()).collect()
    }

    /// Events of writers, whatever their stream.
    pub(crate) fn writers(&self) -> SmallVec<[Event; 2]> {
        self.ended.iter().filter(|used| used.wrote).map(|used| used.event.clone()).collect()
    }

    pub(crate) fn into_events(self) -> SmallVec<[Event; 2]> {
        self.ended.into_iter().map(|used| used.event).collect()
    }
}
