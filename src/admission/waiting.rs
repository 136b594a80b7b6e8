//! One pipeline's row in the budget, and the line of those who wait in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::{Pipeline, Wakers};

/// After this long a wait that only the consumer can end is said aloud.
const WORTH_A_WORD: Duration = Duration::from_secs(5);

/// A place in the line, kept by who waits.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<u64>);

impl Ticket {
    pub(super) fn take(&mut self) -> Option<u64> {
        self.0.take()
    }
}

/// A wait that is worth a word.
#[derive(Debug)]
pub(crate) struct Overdue {
    pub(crate) pipeline: String,
    pub(crate) bytes: usize,
    pub(crate) waited: Duration,
    pub(crate) holders: String,
}

/// A pipeline: what it keeps, what it has, who waits.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) pipeline: Arc<Pipeline>,
    /// Whether more batches may come, so that others leave it its floor.
    pub(super) live: bool,
    /// Whether the row stays when it is empty.
    pub(super) permanent: bool,
    /// The largest batch so far; `None` before the first.
    pub(super) floor: Option<usize>,
    /// The largest batch that was admitted.
    pub(super) granted: usize,
    pub(super) used: usize,
    line: VecDeque<Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    waker: Waker,
    bytes: usize,
    since: Duration,
    said: bool,
    timed_out: bool,
}

impl Row {
    pub(super) const fn new(pipeline: Arc<Pipeline>, live: bool) -> Self {
        Self { pipeline, live, permanent: false, floor: None, granted: 0, used: 0, line: VecDeque::new(), next: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        !self.live && !self.permanent && self.used == 0 && self.line.is_empty()
    }

    /// Whether nobody of this pipeline came before.
    pub(super) fn is_turn_of(&self, ticket: &Ticket) -> bool {
        self.line.front().is_none_or(|first| Some(first.ticket) == ticket.0)
    }

    /// Takes a place at the end of the line, or replaces the waker; returns the one that was there.
    pub(super) fn wait(&mut self, bytes: usize, ticket: &mut Ticket, waker: &Waker, since: Duration) -> Option<Waker> {
        if let Some(waiting) = self.line.iter_mut().find(|waiting| Some(waiting.ticket) == ticket.0) {
            return Some(std::mem::replace(&mut waiting.waker, waker.clone()));
        }
        self.next += 1;
        ticket.0 = Some(self.next);
        let waker = waker.clone();
        self.line.push_back(Waiting { ticket: self.next, waker, bytes, since, said: false, timed_out: false });
        None
    }

    /// Returns the waker, to be dropped where no lock is held.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let place = self.line.iter().position(|waiting| waiting.ticket == ticket)?;
        self.line.remove(place).map(|waiting| waiting.waker)
    }

    pub(super) fn head(&self) -> Option<Waker> {
        self.line.front().map(|waiting| waiting.waker.clone())
    }

    pub(super) fn wakers(&self) -> impl Iterator<Item = Waker> {
        self.line.iter().map(|waiting| waiting.waker.clone())
    }

    /// How long the ticket has waited, if that is longer than `timeout`.
    pub(super) fn timed_out(&self, ticket: &Ticket, now: Duration, timeout: Option<Duration>) -> Option<Duration> {
        let waiting = self.line.iter().find(|waiting| Some(waiting.ticket) == ticket.0)?;
        let waited = now.saturating_sub(waiting.since);
        (waited >= timeout?).then_some(waited)
    }

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    pub(super) fn next_deadline(&self, timeout: Option<Duration>) -> Option<Duration> {
        let deadline = |waiting: &Waiting| {
            let word = (!waiting.said).then_some(waiting.since + WORTH_A_WORD);
            // A timeout beyond all time is none.
            let end = timeout.filter(|_| !waiting.timed_out).and_then(|timeout| waiting.since.checked_add(timeout));
            word.into_iter().chain(end).min()
        };
        self.line.iter().filter_map(deadline).min()
    }

    pub(super) fn overdue(
        &mut self,
        now: Duration,
        timeout: Option<Duration>,
        holders: &str,
        overdue: &mut Vec<Overdue>,
        woken: &mut Wakers,
    ) {
        let pipeline = &self.pipeline;
        for waiting in &mut self.line {
            let waited = now.saturating_sub(waiting.since);
            if !waiting.said && waited >= WORTH_A_WORD {
                waiting.said = true;
                let (pipeline, holders) = (pipeline.display_name(), holders.to_owned());
                overdue.push(Overdue { pipeline, bytes: waiting.bytes, waited, holders });
            }
            if !waiting.timed_out && timeout.is_some_and(|timeout| waited >= timeout) {
                waiting.timed_out = true;
                woken.push(waiting.waker.clone());
            }
        }
    }
}
