//! How a sequence ends: all go on to their end with nobody starving, or all is dropped; and then nothing is left.

use std::any::Any;

use futures::FutureExt;

use crate::waiting::Kind;
use crate::world::World;

/// Transfers of one pipeline that its consumer keeps under way.
const DEPTH: usize = 3;
/// Far more rounds than all there is to do takes.
const ROUNDS: usize = 20_000;

impl World {
    /// Lets go of what users hold, and lets consumers consume what is on its way, polled only when woken.
    pub(crate) fn run_to_the_end(&mut self) {
        self.hold(false);
        self.leases.clear();
        self.batches.clear();
        self.pins.clear();
        self.check();
        self.forgotten.clear();
        self.pipes.iter().for_each(|pipe| pipe.source.end());
        for round in 0..ROUNDS {
            let mut moved = false;
            for which in (0..self.waiting.len()).rev() {
                if self.waiting[which].watch.is_due() {
                    moved |= self.poll(which, round % 3 == 0);
                }
            }
            self.batches.clear();
            self.pins.clear();
            for which in 0..self.pipes.len() {
                let pipe = &self.pipes[which];
                if !pipe.over && pipe.watch.is_due() && self.under_way(which) < DEPTH {
                    self.next(which, round % 5 == 0);
                    moved = true;
                }
            }
            let is_over = self.waiting.is_empty() && self.pipes.iter().all(|pipe| pipe.over);
            if is_over {
                return;
            }
            moved |= !self.pending().is_empty();
            // The one that is done next changes from round to round.
            self.complete((round * 7 % 11) as u8, false);
            assert!(moved || self.anybody_is_due(), "nothing moves any more: {}", self.stuck());
        }
        panic!("no end in sight: {}", self.stuck());
    }

    fn anybody_is_due(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.watch.is_due())
            || self.pipes.iter().any(|pipe| !pipe.over && pipe.watch.is_due())
    }

    fn under_way(&self, which: usize) -> usize {
        let of = |number: usize| self.plain.batches[number].pipeline == Some(self.pipes[which].id);
        self.waiting
            .iter()
            .filter(|waiting| matches!(waiting.kind, Kind::Transfer(number) | Kind::Early(number) if of(number)))
            .count()
    }

    fn stuck(&self) -> String {
        let waiting: Vec<_> = self.waiting.iter().map(|waiting| format!("{:?}", waiting.kind)).collect();
        let pipes: Vec<_> = self.pipes.iter().filter(|pipe| !pipe.over).map(|pipe| &pipe.name).collect();
        format!("{waiting:?}, {pipes:?}, {:?}", self.device.stats())
    }

    /// Drops everything, some of it while copies are pending, completes those, and looks whether anything is left.
    pub(crate) fn leave_nothing(mut self) {
        self.hold(false);
        self.waiting.clear();
        self.pipes.clear();
        self.batches.clear();
        self.leases.clear();
        self.pins.clear();
        self.sim.complete_all();
        self.left.clear();
        self.check();
        self.forgotten.clear();
        self.slices.clear();
        self.streams.clear();
        // Answers of "ask again" may be left to be met.
        for _ in 0..4 {
            self.sim.complete_all();
        }
        let stats = self.device.stats();
        let left = (stats.device_used, stats.limbo_blocks, stats.operations, stats.readback_used, stats.pinned_used);
        let lost = self.device.drain().now_or_never().expect("nothing is pending, so it is drained").is_err();
        if lost {
            // What was submitted is leaked on purpose.
            assert_eq!((left.0, left.1, left.2), (0, 0, 0), "{stats:?}");
            return;
        }
        // An event that could not be asked, and one behind it neither: nobody knows whether the copy still reads its source.
        let kept = self.plain.was_injected(35) && stats.leaked > 0;
        assert_eq!((left.0, left.1, left.2), (0, 0, 0), "{stats:?}");
        if !kept {
            assert_eq!((left.3, left.4), (0, 0), "{stats:?}");
            assert_eq!(self.yard.alive(), 0, "all sources were let go of");
        }
        let lacking = self.sizes.memory - stats.device_limit;
        assert_eq!(lacking as u64, stats.device_quarantined, "{stats:?}");
        if self.plain.calls_are_fine() {
            assert_eq!((lacking, stats.leaked), (0, 0), "{stats:?}");
        }
        self.device.trim();
        let counters = self.sim.counters();
        // The end of the device may have struck when nobody asked any more: then nothing is freed.
        if !self.plain.was_injected(37) && !self.plain.was_lost_by_injection() {
            // Where small batches lie side by side their memory stays, and what is quarantined may be a part of it.
            let beside = if self.sizes.together > 1 { 2 << 20 } else { 0 };
            let left = counters.live_device_bytes as u64 - beside;
            let is_all = left == stats.device_quarantined || (beside > 0 && left < stats.device_quarantined);
            assert!(is_all, "{counters:?}");
            let pinned = counters.live_pinned_bytes as u64 - self.sizes.staging as u64;
            assert!(kept || pinned == stats.leaked, "{counters:?}");
        }
    }

    /// The device's own handles go first: what others hold stays as it was, and is let go of in any order.
    pub(crate) fn drop_the_device_first(mut self) {
        self.hold(false);
        self.sim.complete_all();
        self.check();
        let Self { sim, device, waiting, pipes, batches, leases, pins, forgotten, plain, yard, .. } = self;
        // Nobody drives what still waits to be staged.
        let stats = device.stats();
        // What twice could not be followed to its end is leaked on purpose.
        let healthy =
            plain.lost.is_none() && !plain.was_lost_by_injection() && stats.operations == 0 && stats.leaked == 0;
        drop((sim, device));
        for (number, batch) in &batches {
            for (field, bytes) in plain.batches[*number].fields.iter().enumerate() {
                if let Ok(view) = batch.field(&format!("{number}.{field}")).unwrap().as_host::<u8>() {
                    assert!(view.iter().eq(bytes), "{number}.{field} holds something else");
                }
            }
        }
        let all: [Box<dyn Any>; 6] = [
            Box::new(pins),
            Box::new(leases),
            Box::new(pipes),
            Box::new(batches),
            Box::new(waiting),
            Box::new(forgotten),
        ];
        all.into_iter().for_each(drop);
        assert!(!healthy || yard.alive() == 0, "sources outlive all who could send them");
    }
}
