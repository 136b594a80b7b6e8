//! [`State`]: who is admitted now, who waits, and what is kept for whom.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use super::pipeline;
use super::waiting::{Row, Ticket};
use super::{Decision, Grant, MOST_OPERATIONS, Wakers};
use crate::backend::Memory;
use crate::batch::Name;
use crate::device::PipelineStats;
use crate::error::{Error, Returned};
use crate::memory::blocks::Idle;

/// What admission knows, under its lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) limit: usize,
    pub(super) used: usize,
    pub(super) quarantined: usize,
    pub(super) peak: usize,
    pub(super) operations: usize,
    /// Bytes of `used` that were granted and have no block yet.
    pub(super) promised: usize,
    pub(super) largest: usize,
    pub(super) idle: Idle,
    /// Blocks given up to make room, to be freed before any other is allocated.
    pub(super) condemned: Vec<Memory>,
    /// Bytes of those, until they are freed.
    pub(super) dying: usize,
    pub(super) rows: BTreeMap<u64, Row>,
    pub(super) ended: BTreeMap<Name, PipelineStats>,
    pub(super) next: u64,
    /// Wakers that are no longer needed, to be dropped where no lock is held.
    pub(super) spent: Wakers,
}

impl State {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            // No address space holds more, and sums of what is within it do not wrap.
            limit: limit.min(isize::MAX as usize),
            used: 0,
            quarantined: 0,
            peak: 0,
            operations: 0,
            promised: 0,
            largest: 0,
            idle: Idle::default(),
            condemned: Vec::new(),
            dying: 0,
            rows: BTreeMap::new(),
            ended: BTreeMap::new(),
            next: 0,
            spent: Wakers::new(),
        }
    }

    pub(super) fn admit(
        &mut self,
        id: u64,
        bytes: usize,
        ticket: &mut Ticket,
        waker: Option<&Waker>,
        now: Duration,
        timeout: Option<Duration>,
    ) -> Decision {
        if bytes > self.limit {
            self.give_up(id, ticket);
            return Decision::Refused(Error::BatchTooLarge { bytes, limit: self.limit, batch: Returned::default() });
        }
        let floors: usize = self.others(id).filter_map(|row| row.floor).sum();
        let Some(row) = self.rows.get_mut(&id) else { return Decision::Wait };
        if bytes.saturating_add(floors) > self.limit {
            let pipeline = row.pipeline.display_name();
            self.give_up(id, ticket);
            let (others, limit) = (floors, self.limit);
            return Decision::Refused(Error::FloorTooLarge {
                pipeline,
                bytes,
                others,
                limit,
                batch: Returned::default(),
            });
        }
        // Who is not first in line changes nothing for those who are.
        let turn = row.is_turn_of(ticket);
        if turn {
            row.floor = Some(row.floor.unwrap_or(0).max(bytes));
        }
        if let Some(waited) = row.timed_out(ticket, now, timeout) {
            let pipeline = row.pipeline.display_name();
            self.give_up(id, ticket);
            let holders = self.holders();
            return Decision::Refused(Error::AdmissionTimeout {
                pipeline,
                bytes,
                waited,
                holders,
                batch: Returned::default(),
            });
        }
        if turn && self.operations < MOST_OPERATIONS && self.fits(id, bytes) {
            self.give_up(id, ticket);
            return Decision::Granted(self.grant(id, bytes));
        }
        if let (Some(row), Some(waker)) = (self.rows.get_mut(&id), waker) {
            self.spent.extend(row.wait(bytes, ticket, waker, now));
        }
        Decision::Wait
    }

    /// What others keep for a live pipeline, if that is known.
    pub(super) fn floor_of(&self, id: u64) -> Option<usize> {
        self.rows.get(&id).filter(|row| row.live).and_then(|row| row.floor)
    }

    fn others(&self, id: u64) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |(of, row)| **of != id && row.live).map(|(_, row)| row)
    }

    /// Whether `bytes` may be taken without touching what is kept for others.
    ///
    /// A pipeline's first batch respects the floors that are known. What goes beyond it also leaves room for pipelines
    /// whose batches nobody has seen yet: those that are made and not yet polled and, where there is none, one that may
    /// be made later, such as an evaluation loop inside the training loop.
    fn fits(&self, id: u64, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let own = self.rows.get(&id);
        let within_floor = own.is_some_and(|row| row.used.saturating_add(bytes) <= row.floor.unwrap_or(0));
        // What a pipeline had before is its own: nobody takes it by waiting for more than there is.
        let had_before = own.is_some_and(|row| row.live && row.used.saturating_add(bytes) <= row.granted);
        let live = self.others(id).count() + 1;
        let mut kept = 0_usize;
        let mut unseen = false;
        for row in self.others(id) {
            let floor = match row.floor {
                _ if had_before => row.granted,
                Some(floor) => floor,
                None if within_floor => 0,
                None => {
                    unseen = true;
                    self.largest.max(self.limit / live)
                }
            };
            kept = kept.saturating_add(floor.saturating_sub(row.used));
        }
        if !within_floor && !unseen {
            kept = kept.saturating_add(self.largest.max(bytes));
        }
        self.used.saturating_add(bytes).saturating_add(kept) <= self.limit
    }

    pub(super) fn grant(&mut self, id: u64, bytes: usize) -> Grant {
        self.operations += 1;
        if bytes == 0 {
            return Grant { pipeline: id, bytes, block: None, evicts: false };
        }
        self.largest = self.largest.max(bytes);
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        if let Some(row) = self.rows.get_mut(&id) {
            row.used += bytes;
            row.granted = row.granted.max(bytes);
        }
        let block = self.idle.take(bytes);
        if block.is_none() {
            self.promised += bytes;
        }
        let mut evicted = self.idle.shrink_to(self.limit.saturating_sub(self.used));
        let evicts = !evicted.is_empty();
        self.dying += evicted.iter().map(|memory| memory.bytes).sum::<usize>();
        self.condemned.append(&mut evicted);
        Grant { pipeline: id, bytes, block, evicts }
    }

    pub(super) fn give_up(&mut self, id: u64, ticket: &mut Ticket) {
        if let (Some(ticket), Some(row)) = (ticket.take(), self.rows.get_mut(&id)) {
            self.spent.extend(row.leave(ticket));
        }
    }

    pub(super) fn unuse(&mut self, id: u64, bytes: usize) {
        self.used -= bytes;
        if let Some(row) = self.rows.get_mut(&id) {
            row.used -= bytes;
        }
        self.forget_if_done(id);
    }

    pub(super) fn forget_if_done(&mut self, id: u64) {
        if self.rows.get(&id).is_some_and(Row::is_done)
            && let Some(row) = self.rows.remove(&id)
        {
            pipeline::merge(&mut self.ended, &row.pipeline, 0);
        }
    }

    pub(super) fn heads(&self) -> Wakers {
        self.rows.values().filter_map(Row::head).collect()
    }

    pub(super) fn head_of(&self, id: u64) -> Wakers {
        self.rows.get(&id).and_then(Row::head).into_iter().collect()
    }

    pub(super) fn holders(&self) -> String {
        let holding = self.rows.values().filter(|row| row.used > 0);
        let mut text: Vec<_> =
            holding.map(|row| format!("\"{}\" {} bytes", row.pipeline.display_name(), row.used)).collect();
        if self.quarantined > 0 {
            text.push(format!("quarantined {} bytes", self.quarantined));
        }
        if text.is_empty() { "nobody".to_owned() } else { text.join(", ") }
    }
}
