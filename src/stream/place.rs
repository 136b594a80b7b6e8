//! [`Place`]: a place in the line for device memory, polled until it is granted.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::admission::{Decision, Grant, Pipeline, Ticket};
use crate::device::Shared;
use crate::error::{Error, Result};

/// Waits for admission, one batch after the other. Dropped, it leaves the line.
#[derive(Debug)]
pub(crate) struct Place {
    device: Arc<Shared>,
    pipeline: Arc<Pipeline>,
    ticket: Ticket,
    since: Option<Duration>,
}

impl Place {
    pub(crate) fn new(device: Arc<Shared>, pipeline: Arc<Pipeline>) -> Self {
        Self { device, pipeline, ticket: Ticket::default(), since: None }
    }

    pub(crate) const fn device(&self) -> &Arc<Shared> {
        &self.device
    }

    pub(crate) const fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// Asks for room for a block of `bytes`, or for none if they are 0.
    pub(crate) fn poll(&mut self, bytes: usize, context: &Context<'_>) -> Poll<Result<Grant>> {
        let at_once = if self.since.is_none() { self.ask_at_once(bytes) } else { None };
        let decided = at_once.or_else(|| self.ask(bytes, Some(context.waker())));
        let Some(decided) = decided.or_else(|| self.ask_again(bytes, context)) else { return Poll::Pending };
        if let Some(since) = self.since.take() {
            self.pipeline.waited(self.device.clock.now().saturating_sub(since));
        }
        Poll::Ready(decided)
    }

    /// Without a place in the line and without the time of day: most batches need neither.
    ///
    /// What limbo can give is looked for here, where no waker of this task is in the line: that would be woken from its
    /// own poll (invariant 7). Later the reactor looks.
    fn ask_at_once(&mut self, bytes: usize) -> Option<Result<Grant>> {
        self.ask(bytes, None).or_else(|| {
            let freed = self.device.limbo.reap(&self.device);
            if freed { self.ask(bytes, None) } else { None }
        })
    }

    fn ask(&mut self, bytes: usize, waker: Option<&Waker>) -> Option<Result<Grant>> {
        if let Err(error) = self.device.check() {
            self.leave();
            return Some(Err(error));
        }
        let device = &self.device;
        let now = waker.map_or(Duration::ZERO, |_| device.clock.now());
        match device.admission.admit(&self.pipeline, bytes, &mut self.ticket, waker, now) {
            Decision::Granted(grant) => Some(Ok(grant)),
            Decision::Refused(error) => Some(Err(error)),
            Decision::Wait => None,
        }
    }

    /// The waker is in its place: looks whether the device was lost before that.
    fn ask_again(&mut self, bytes: usize, context: &Context<'_>) -> Option<Result<Grant>> {
        if self.since.is_none() {
            self.since = Some(self.device.clock.now());
            // The reactor has a deadline to keep from now on.
            self.device.reactor.notify();
        }
        if self.device.is_lost() { self.ask(bytes, Some(context.waker())) } else { None }
    }

    fn leave(&mut self) {
        self.device.admission.leave(self.pipeline.id(), &mut self.ticket);
    }

    /// The cause, if the device is of no use any more.
    pub(crate) fn lost(&self) -> Option<Error> {
        self.device.check().err()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}
