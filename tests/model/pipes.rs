//! [`Pipe`]: a pipeline that is polled by hand, and when nobody may keep it waiting (invariants 10 and 11).

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Poll;

use futures::{FutureExt, Stream};
use inflight::{ToDevice, Transfer};

use crate::source::Source;
use crate::waiting::Kind;
use crate::watch::Watch;
use crate::world::World;

/// A pipeline, and what its items are to become, in order.
pub(crate) struct Pipe {
    /// Its number, which stays when others are closed.
    pub(crate) id: usize,
    pub(crate) source: Source,
    pub(crate) stream: Pin<Box<ToDevice<Source>>>,
    pub(crate) watch: Watch,
    pub(crate) items: VecDeque<Kind>,
    pub(crate) name: String,
    /// Its largest batch that was admitted: its floor is at least that.
    pub(crate) floor: usize,
    /// The device was lost, and it said so.
    pub(crate) told: bool,
    pub(crate) over: bool,
}

impl Pipe {
    /// Whether it has an item that waits for room.
    pub(crate) fn has_taken(&self) -> bool {
        self.items.len() > self.source.len()
    }
}

impl World {
    /// Polls a pipeline.
    pub(crate) fn next(&mut self, which: usize, fresh: bool) {
        let (owed, taken) = (self.owes_admission(which), self.pipes[which].has_taken());
        let pipe = &mut self.pipes[which];
        let Pipe { stream, watch, name, .. } = pipe;
        // Who waits for the source and not for the device is told of its loss when the source has something.
        let unasked = self.plain.lost.is_some() && !taken;
        match watch.poll(fresh, unasked, name, |context| stream.as_mut().poll_next(context)) {
            Poll::Pending => assert!(!owed, "{name} has its floor and waits"),
            Poll::Ready(None) => {
                assert!(pipe.told || pipe.items.is_empty(), "{name} ended before its items");
                pipe.over = true;
            }
            Poll::Ready(Some(transfer)) => {
                assert!(!pipe.told && !pipe.over, "{name} goes on after its end");
                self.yielded(which, transfer);
            }
        }
    }

    /// A pipeline has yielded a transfer: that of its next item, or the news that the device is lost.
    fn yielded(&mut self, which: usize, transfer: Transfer) {
        let pipe = &mut self.pipes[which];
        if transfer.device().is_some() {
            let kind = pipe.items.pop_front().expect("as many transfers as items");
            if let Kind::Transfer(number) = kind {
                pipe.floor = pipe.floor.max(self.plain.batches[number].image());
            }
            self.sent(kind, transfer);
            return;
        }
        let error = transfer.now_or_never().expect("nothing was submitted").unwrap_err();
        if error.is_fatal() {
            pipe.told = true;
            let victim = self.other();
            self.plain.excuse(&error, victim, None);
        } else {
            let kind = pipe.items.pop_front().expect("as many transfers as items");
            self.judge_failure(&error, &kind);
        }
    }

    /// Whether a pipeline holds nothing, and has been given as much as it asks for before: then nobody may keep it waiting.
    fn owes_admission(&self, which: usize) -> bool {
        let (pipe, stats) = (&self.pipes[which], self.device.stats());
        let Some(Kind::Transfer(number)) = pipe.items.front() else { return false };
        let holds = stats.pipeline(&pipe.name).map_or(0, |row| row.device_bytes);
        let healthy = stats.device_limit == self.sizes.memory && stats.operations < 256;
        holds == 0 && healthy && self.plain.batches[*number].image() <= pipe.floor
    }
}
