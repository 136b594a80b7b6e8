//! The reactor: one thread a device that asks events whether they have fired, and marks, wakes and moves on.
//!
//! Who polls a transfer that is not there yet asks the oldest events too: where copies are short and polls many, the
//! thread need not be woken, and wakes nobody who is awake.
//!
//! What it asks for is in `entry.rs`, how long it sleeps in `pace.rs`; blocks that wait for their users are in `limbo.rs`.

mod clock;
mod entry;
mod events;
mod limbo;
mod pace;
mod waiters;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use clock::Clock;
use entry::Ended;
pub(crate) use entry::{Done, Entry, Held, drop_later, unrecorded};
pub(crate) use events::EventPool;
pub(crate) use limbo::Limbo;
use pace::{Pace, Polls, Wait};
pub(crate) use waiters::{Key, Waiters, until};

use crate::backend::os;
use crate::device::{Asked, Shared};
use crate::sync::{Condvar, Mutex, lock, spawn, wait, wait_for, yield_now};

/// What was enqueued, on its way to the queues, and how to wake the thread.
#[derive(Debug)]
pub(crate) struct Reactor {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    polls: Polls,
    /// The queues; taken out by who works on them, so that no lock is held meanwhile.
    queues: Mutex<Option<Queues>>,
}

#[derive(Debug)]
struct Inbox {
    arrived: Vec<Entry>,
    /// When the thread must look around at the latest, for the sake of what came up since its last turn.
    look_by: Duration,
    stopping: bool,
    /// How long the thread sleeps: `None` while it is awake.
    asleep_until: Option<Duration>,
}

impl Inbox {
    /// Asks the thread to look around by then. Answers whether it must be woken for that.
    fn look_by(&mut self, due: Duration) -> bool {
        self.look_by = self.look_by.min(due);
        self.asleep_until.is_some_and(|until| due < until)
    }
}

impl Default for Reactor {
    fn default() -> Self {
        let inbox = Inbox { arrived: Vec::new(), look_by: Duration::MAX, stopping: false, asleep_until: None };
        Self {
            inbox: Mutex::new(inbox),
            wake: Condvar::new(),
            polls: Polls::default(),
            queues: Mutex::new(Some(Queues::default())),
        }
    }
}

/// The queues in the hands of one thread. Dropped, they go back, also in a panic of somebody's waker.
struct InHand<'a> {
    reactor: &'a Reactor,
    queues: Queues,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        *lock(&self.reactor.queues) = Some(std::mem::take(&mut self.queues));
    }
}

/// When the thread comes back that found the queues in the hands of somebody who polls.
const HELPED: Duration = Duration::from_micros(10);

/// The entries of each stream, oldest first.
#[derive(Debug, Default)]
struct Queues {
    streams: Vec<(u64, VecDeque<Entry>)>,
    pace: Pace,
}

impl Reactor {
    /// Starts the thread, which ends when the device is gone.
    pub(crate) fn spawn(self: &Arc<Self>, device: &Arc<Shared>) -> std::io::Result<()> {
        let (reactor, device) = (self.clone(), Arc::downgrade(device));
        spawn("inflight-reactor".to_owned(), move || reactor.run(&device))
    }

    /// Takes an entry whose event is recorded.
    pub(crate) fn push(&self, device: &Shared, mut entry: Entry) {
        entry.begin(device);
        let wake = {
            let mut inbox = lock(&self.inbox);
            let due = entry.due;
            inbox.arrived.push(entry);
            inbox.look_by(due)
        };
        if wake {
            self.wake.notify_one();
        }
    }

    /// Makes the thread look around by then.
    pub(crate) fn notify_by(&self, due: Duration) {
        let wake = lock(&self.inbox).look_by(due);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Makes the thread look around now: at limbo, deadlines, or a lost device.
    pub(crate) fn notify(&self) {
        self.notify_by(Duration::ZERO);
    }

    pub(crate) fn stop(&self) {
        lock(&self.inbox).stopping = true;
        self.wake.notify_one();
    }

    fn run(&self, device: &Weak<Shared>) {
        os::sleep_exactly();
        if let Some(device) = device.upgrade() {
            device.backend.attach_thread();
        }
        while let Some(shared) = device.upgrade() {
            let wait = self.turn_caught(&shared);
            if matches!(wait, Wait::Not) {
                drop(shared);
                yield_now();
                continue;
            }
            shared.counters.reactor_cpu(os::thread_cpu_time());
            let now = shared.clock.now();
            drop(shared);
            if self.sleep(wait, now) {
                return;
            }
        }
    }

    /// A turn of the thread. A waker of the user's that panics ends neither the thread nor what others wait for.
    fn turn_caught(&self, device: &Arc<Shared>) -> Wait {
        let turn = || match self.take() {
            Some(mut held) => self.turn(&mut held.queues, device).1,
            // Somebody who polls has them: soon they are back.
            None => Wait::ForQueues,
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(turn)).unwrap_or_else(|payload| {
            let error = crate::Error::panicked("a waker", &*payload);
            tracing::error!(device = device.name, %error, "caught a panic on the reactor's thread");
            Wait::Not
        })
    }

    fn take(&self) -> Option<InHand<'_>> {
        let queues = lock(&self.queues).take()?;
        Some(InHand { reactor: self, queues })
    }

    /// Completes what is done, on the thread of somebody who polls and would have to wait. Nothing if others are at it.
    pub(crate) fn help(&self, device: &Arc<Shared>) {
        if device.backend.by_hand() {
            return;
        }
        let Some(mut held) = self.take() else { return };
        held.queues.receive(&mut lock(&self.inbox));
        let Queues { streams, pace } = &mut held.queues;
        let mut now = device.clock.now();
        self.polls.note(now);
        for (_, entries) in streams {
            ask(entries, device, pace, &mut now);
        }
        pace.found_left = false;
        drop(held);
        if device.engine.together.is_due(device) {
            device.engine.together.flush(device);
        }
    }

    /// Sleeps, but not beyond what came up meanwhile. Answers whether the thread is to end.
    fn sleep(&self, how_long: Wait, now: Duration) -> bool {
        let mut inbox = lock(&self.inbox);
        let until = match how_long {
            Wait::Not => now,
            // What came up stays to be looked at: only with the queues can that be done.
            Wait::ForQueues => now.saturating_add(HELPED),
            Wait::For(time) => now.saturating_add(time).min(inbox.look_by),
            Wait::UntilWoken => inbox.look_by,
        };
        if until > now && !inbox.stopping {
            inbox.asleep_until = Some(until);
            inbox = if until == Duration::MAX {
                wait(&self.wake, inbox)
            } else {
                wait_for(&self.wake, &self.inbox, inbox, until - now)
            };
            inbox.asleep_until = None;
        }
        inbox.stopping
    }

    /// Asks the oldest event of each stream, and those behind it as long as they have fired.
    ///
    /// Answers whether anything moved, and how long to wait before the next turn.
    fn turn(&self, queues: &mut Queues, device: &Arc<Shared>) -> (bool, Wait) {
        {
            let mut inbox = lock(&self.inbox);
            queues.receive(&mut inbox);
            // All of it is looked at now.
            inbox.look_by = Duration::MAX;
        }
        let mut moved = false;
        if device.is_lost() {
            moved |= queues.abandon(device);
        }
        let mut now = device.clock.now();
        for (_, entries) in &mut queues.streams {
            moved |= ask(entries, device, &mut queues.pace, &mut now);
        }
        queues.pace.judge(now, device);
        queues.forget_idle();
        device.adopt_orphans();
        moved |= device.limbo.reap(device);
        for overdue in device.admission.overdue(device.clock.now()) {
            tracing::warn!(
                device = device.name,
                pipeline = overdue.pipeline,
                bytes = overdue.bytes,
                waited = ?overdue.waited,
                holders = overdue.holders,
                "a batch waits for device memory that only its consumer can free"
            );
            device.counters.count_overdue();
        }
        moved |= device.engine.together.flush_what_is_due(device);
        let wait = queues.pace.wait(&queues.streams, device);
        device.drop_sources(wait.is_long());
        (moved, wait)
    }

    /// A turn on this thread. Answers whether anything moved; a turn inside a turn does nothing.
    pub(crate) fn turn_inline(&self, device: &Arc<Shared>) -> bool {
        let Some(mut held) = self.take() else { return false };
        self.turn(&mut held.queues, device).0
    }
}

/// Completes the entries of one stream that are done. The time is asked again only where it matters.
fn ask(entries: &mut VecDeque<Entry>, device: &Arc<Shared>, pace: &mut Pace, now: &mut Duration) -> bool {
    let mut moved = false;
    while let Some(entry) = entries.front_mut() {
        let asked = entry.ask(device);
        if matches!(asked, Asked::NotYet) {
            entry.asked = *now;
            break;
        }
        let Some(mut entry) = entries.pop_front() else { break };
        if matches!(asked, Asked::Fired) {
            let is_long = entry.bytes >= pace::TELLING;
            if is_long || entry.fetch.is_some() {
                *now = device.clock.now();
            }
            device.counters.noticed(now.saturating_sub(entry.asked));
            let next = entries.front();
            entry.ended = if is_long { pace.learn(&entry, next, *now, device) } else { Ended::Seen(*now) };
        }
        moved = true;
        pace.found_left |= entry.is_left_to_polls && entry.is_waited_for(device);
        match asked {
            Asked::NotYet | Asked::Fired => entry.complete(device, Ok(())),
            Asked::Unknown(error) if !device.is_lost() => entry.lose(device, error),
            Asked::Failed(error) | Asked::Unknown(error) => entry.complete(device, Err(error)),
        }
    }
    moved
}

impl Queues {
    /// Takes in what was enqueued.
    fn receive(&mut self, inbox: &mut Inbox) {
        for entry in inbox.arrived.drain(..) {
            self.push(entry);
        }
    }

    fn push(&mut self, entry: Entry) {
        match self.streams.iter_mut().find(|(stream, _)| *stream == entry.stream) {
            Some((_, entries)) => entries.push_back(entry),
            None => self.streams.push((entry.stream, VecDeque::from([entry]))),
        }
    }

    /// Forgets streams on which nothing is pending, once there are many: users' streams come and go.
    fn forget_idle(&mut self) {
        const MANY: usize = 8;
        if self.streams.len() > MANY {
            self.streams.retain(|(_, entries)| !entries.is_empty());
            self.pace.keep(|stream| self.streams.iter().any(|(of, _)| *of == stream));
        }
    }

    /// Fails everything: the device is lost.
    fn abandon(&mut self, device: &Arc<Shared>) -> bool {
        let Some(error) = device.lost() else { return false };
        let mut moved = false;
        for (_, entries) in &mut self.streams {
            for entry in entries.drain(..) {
                moved = true;
                entry.complete(device, Err(error.clone()));
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::Device;
    use crate::batch::{BatchCore, BatchOwner, GroupEvent, HostBatch};
    use crate::device::admitted;
    use crate::plan::Plan;

    /// Whether it ends patience that the thread finds a batch done which was left to polls; of the pipeline others lie there
    /// for their consumer, or none.
    fn ends_patience(others_lie_there: bool) -> bool {
        let device = Device::host().unwrap();
        let shared = device.shared();
        let pipeline = shared.admission.open();
        if others_lie_there {
            pipeline.lies();
        }
        let batch = HostBatch::from(("x", vec![1_u8; 64]));
        let plan = Plan::of(&batch, &shared.terms(None), None).unwrap();
        let _grant = block_on(admitted(shared, &pipeline, 0)).unwrap();
        let core = BatchOwner::new(BatchCore::new(shared.clone(), pipeline, &batch, plan.layout, None));
        core.queued(0, GroupEvent::Own(shared.record(&shared.copy_stream).unwrap()));
        let mut entry = Entry::new(shared, &shared.copy_stream, 64, Held::default(), Done::Group(core, 0));
        entry.is_left_to_polls = true;
        let (mut entries, mut pace, mut now) = (VecDeque::from([entry]), Pace::default(), shared.clock.now());
        while !ask(&mut entries, shared, &mut pace, &mut now) {
            yield_now();
        }
        pace.found_left
    }

    #[test]
    fn patience_ends_where_somebody_waits_and_not_where_other_batches_lie_there() {
        assert!(ends_patience(false));
        assert!(!ends_patience(true));
    }
}
