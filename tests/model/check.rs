//! What must be so after each step, whatever the step was.

use std::collections::BTreeSet;

use futures::FutureExt;
use inflight::Error;
use inflight::sim::{Pending, PendingStream};

use crate::plain::{Victim, named};
use crate::waiting::{Kind, is_of_the_moment};
use crate::world::World;

impl World {
    pub(crate) fn check(&mut self) {
        let pending = self.pending();
        self.plain.check_order(&pending);
        self.left.retain(|left| {
            pending.iter().any(|op| op.stream == PendingStream::Compute(left.stream) && op.id <= left.last)
        });
        self.check_budgets(&pending);
        self.check_memory(&pending);
        self.check_batches();
        self.check_loss();
    }

    fn check_budgets(&mut self, pending: &[Pending]) {
        let (stats, counters, sizes) = (self.device.stats(), self.sim.counters(), self.sizes);
        assert!(stats.device_limit <= sizes.memory, "{stats:?}");
        assert!(stats.device_used + stats.device_idle <= sizes.memory, "{stats:?}");
        assert!(stats.pinned_used <= sizes.pinned && stats.readback_used <= sizes.readback, "{stats:?}");
        assert!(stats.operations <= 256, "{stats:?}");
        // What could not be freed is nobody's any more, and what is never used again beside the limit.
        if !self.plain.was_injected(37) && self.plain.lost.is_none() {
            assert!(counters.live_device_bytes <= sizes.memory, "{counters:?}");
            let pinned = sizes.staging + sizes.pinned + sizes.readback;
            assert!(counters.live_pinned_bytes as u64 <= pinned as u64 + stats.leaked, "{counters:?}");
        }
        assert_eq!(counters.unrecorded_queries, 0, "an event was asked before it was recorded");
        let copies = pending.iter().filter(|op| op.stream == PendingStream::Copy);
        assert!(copies.count() <= 257, "the driver would block");
        // A copy and what waits for it have an event each, batches that are held one for each group and stream.
        let held = self.batches.len() + self.waiting.len() + self.leases.len() + self.forgotten.len() + self.left.len();
        self.peak = self.peak.max(pending.len() + 6 * held);
        assert!(counters.live_events <= self.peak + 64, "{counters:?}, {held} things held");
    }

    /// Batches whose memory must be there: somebody holds them, or work on them is pending.
    fn holders(&self, pending: &[Pending]) -> BTreeSet<usize> {
        let mut held: BTreeSet<usize> = self.batches.iter().map(|(number, _)| *number).collect();
        held.extend(self.leases.iter().map(|leased| leased.number));
        if self.plain.calls_are_fine() {
            held.extend(self.forgotten.iter().filter_map(|(number, _)| *number));
            held.extend(self.left.iter().map(|left| left.number));
            held.extend(
                pending
                    .iter()
                    .flat_map(|op| op.fields.iter().filter_map(|field| named(field)))
                    .map(|(number, _)| number),
            );
            held.extend(self.waiting.iter().filter(|waiting| waiting.flies).filter_map(
                |waiting| match waiting.victim {
                    Victim::Batch(number) => Some(number),
                    Victim::Other(_) => None,
                },
            ));
        }
        held
    }

    /// Memory of batches that are held is counted; where nothing is pending, no other is.
    fn check_memory(&self, pending: &[Pending]) {
        if self.plain.lost.is_some() || self.plain.was_lost_by_injection() {
            return;
        }
        let held = self.holders(pending);
        let (used, reads) = (self.device.stats().device_used, self.device.stats().readback_used);
        let least: usize = held.iter().map(|number| self.plain.batches[*number].bytes()).sum();
        assert!(least <= used, "{held:?} hold {least} bytes, and {used} are counted");
        // Reads that wait for others to be let go of keep their batches.
        let quiet = pending.is_empty() && reads == 0 && !self.held && self.plain.calls_are_fine();
        if quiet {
            let class = |image: usize| if image == 0 { 0 } else { (image + image / 8 + 256).max(1024) };
            let ready = self.waiting.iter().filter_map(|waiting| match waiting.kind {
                Kind::Ready(number) => Some(number),
                _ => None,
            });
            let all: BTreeSet<usize> = held.into_iter().chain(ready).collect();
            let most: usize = all.iter().map(|number| class(self.plain.batches[*number].image())).sum();
            let writes = self.waiting.iter().filter(|waiting| matches!(waiting.kind, Kind::Write(..))).count();
            let writes = writes * class(self.sizes.slice);
            assert!(used <= most + writes, "nothing is pending, {all:?} hold at most {most} bytes, {used} are counted");
            assert_eq!(self.device.stats().limbo_blocks, 0, "nothing is pending");
        }
    }

    /// Bytes of batches that are there are those of the model.
    fn check_batches(&mut self) {
        let mut errors = Vec::new();
        for (number, batch) in &self.batches {
            for (field, bytes) in self.plain.batches[*number].fields.iter().enumerate() {
                let name = format!("{number}.{field}");
                match batch.field(&name).unwrap().as_host::<u8>() {
                    Ok(view) => assert!(view.iter().eq(bytes), "{name} holds something else"),
                    Err(error) if is_of_the_moment(&error) => {}
                    Err(error) => errors.push((*number, error)),
                }
            }
        }
        for (number, error) in errors {
            self.plain.excuse(&error, Victim::Batch(number), None);
        }
    }

    /// If the device is lost, all are told at once, and of one cause (invariant 6).
    fn check_loss(&mut self) {
        let Some(Err(error)) = self.device.drain().now_or_never() else {
            assert!(self.plain.lost.is_none(), "it was lost, and is not");
            return;
        };
        let victim = self.other();
        let known = self.plain.lost.is_some();
        self.plain.excuse(&error, victim, None);
        let refused = self.device.try_transfer(("x", 1_u8)).unwrap_err();
        assert!(matches!(refused, Error::DeviceLost { .. }), "{refused}");
        if known {
            return;
        }
        self.sim.pending();
        // Work on a host stream is told when the stream gets there; staging that stands still tells nobody anything.
        for waiting in self.waiting.iter().filter(|_| !self.held) {
            assert!(
                waiting.watch.is_due() || matches!(waiting.kind, Kind::Task { .. }),
                "{:?} is not told",
                waiting.kind
            );
        }
        for pipe in self.pipes.iter().filter(|pipe| pipe.has_taken()) {
            assert!(pipe.watch.is_due(), "{} is not told", pipe.name);
        }
    }
}
