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
    /// The work of some use can't be followed to its end: who writes could not come after it.
    unfollowed: bool,
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
        if self.unfollowed {
            return Err(Error::Borrowed { reason: "earlier work on the batch can't be followed to its end" });
        }
        self.exclusive = true;
        Ok(())
    }

    /// A reader or writer is done; the event of its work is `used`.
    ///
    /// Two uses of one stream that end at once, on two threads, are each recorded before either is noted here. Both events
    /// stay: which of them covers the other's work is not known.
    pub(crate) fn close(&mut self, used: Option<Use>) {
        self.open -= 1;
        self.exclusive = false;
        let Some(used) = used else { return };
        match self.ended.iter_mut().find(|ended| ended.event.is(&used.event)) {
            Some(ended) => ended.wrote |= used.wrote,
            None => self.ended.push(used),
        }
    }

    /// A use is over of which nobody knows when its work is.
    pub(crate) fn close_unfollowed(&mut self) {
        self.unfollowed = true;
        self.close(None);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::HostEvent;

    fn used(event: &Event, wrote: bool) -> Option<Use> {
        Some(Use { stream: 1, event: event.clone(), wrote })
    }

    #[test]
    fn invariant_03_two_uses_of_one_stream_that_end_at_once_are_both_waited_for() {
        let (one, two) = (Event::Host(Arc::new(HostEvent::default())), Event::Host(Arc::new(HostEvent::default())));
        let mut usage = Usage::default();
        usage.open().unwrap();
        usage.open().unwrap();
        // Neither found an ended use of the stream whose event it could record again; the later one is noted first.
        usage.close(used(&two, false));
        usage.close(used(&one, false));
        assert_eq!(usage.into_events().iter().filter(|event| event.is(&one) || event.is(&two)).count(), 2);
    }

    #[test]
    fn an_event_that_was_recorded_again_is_there_once() {
        let event = Event::Host(Arc::new(HostEvent::default()));
        let mut usage = Usage::default();
        for wrote in [true, false] {
            usage.open().unwrap();
            usage.close(used(&event, wrote));
        }
        assert_eq!((usage.writers().len(), usage.into_events().len()), (1, 1));
    }
}
