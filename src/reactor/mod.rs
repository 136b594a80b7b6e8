//! The reactor: one thread a device that asks events whether they have fired, and marks, wakes and moves on.
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
pub(crate) use entry::{Done, Entry, Held, unrecorded};
pub(crate) use events::EventPool;
pub(crate) use limbo::Limbo;
use pace::{Pace, Wait};
pub(crate) use waiters::{Key, Waiters, until};

use crate::backend::os;
use crate::device::Shared;
use crate::sync::{Condvar, Mutex, lock};

/// What was enqueued, on its way to the reactor's thread, and how to wake it.
#[derive(Debug, Default)]
pub(crate) struct Reactor {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    /// The queues of a device that is driven by hand, which has no thread to own them.
    by_hand: Mutex<Option<Queues>>,
}

#[derive(Debug, Default)]
struct Inbox {
    arrived: Vec<Entry>,
    notified: bool,
    stopping: bool,
    /// How long the thread sleeps: `None` while it is awake.
    asleep_until: Option<Duration>,
}

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
        std::thread::Builder::new().name("inflight-reactor".to_owned()).spawn(move || reactor.run(&device)).map(drop)
    }

    /// Takes an entry whose event is recorded.
    pub(crate) fn push(&self, device: &Shared, mut entry: Entry) {
        entry.begin(device);
        let wake = {
            let mut inbox = lock(&self.inbox);
            let due = entry.due;
            inbox.arrived.push(entry);
            inbox.asleep_until.is_some_and(|until| due < until)
        };
        if wake {
            self.notify();
        }
    }

    /// Makes the thread look around: at limbo, deadlines, or a lost device.
    pub(crate) fn notify(&self) {
        lock(&self.inbox).notified = true;
        self.wake.notify_one();
    }

    pub(crate) fn stop(&self) {
        lock(&self.inbox).stopping = true;
        self.wake.notify_one();
    }

    fn run(&self, device: &Weak<Shared>) {
        os::sleep_exactly();
        let mut queues = Queues::default();
        loop {
            let wait = match device.upgrade() {
                Some(shared) => {
                    let wait = self.turn(&mut queues, &shared).1;
                    shared.counters.reactor_cpu(os::thread_cpu_time());
                    let (wait, now) = (wait, shared.clock.now());
                    drop(shared);
                    if matches!(wait, Wait::Not) {
                        std::thread::yield_now();
                        continue;
                    }
                    (wait, now)
                }
                None => (Wait::UntilWoken, Duration::ZERO),
            };
            if self.sleep(wait.0, wait.1) {
                return;
            }
        }
    }

    /// Sleeps unless something came in meanwhile. Answers whether the thread is to end.
    fn sleep(&self, wait: Wait, now: Duration) -> bool {
        let mut inbox = lock(&self.inbox);
        if inbox.stopping {
            return true;
        }
        if inbox.notified || !inbox.arrived.is_empty() {
            inbox.notified = false;
            return false;
        }
        match wait {
            Wait::Not => return false,
            Wait::For(time) => {
                inbox.asleep_until = Some(now + time);
                let woken = self.wake.wait_timeout(inbox, time);
                inbox = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
            Wait::UntilWoken => {
                inbox.asleep_until = Some(Duration::MAX);
                inbox = self.wake.wait(inbox).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
        inbox.asleep_until = None;
        inbox.notified = false;
        inbox.stopping
    }

    /// Asks the oldest event of each stream, and those behind it as long as they have fired.
    ///
    /// Answers whether anything moved, and how long to wait before the next turn.
    fn turn(&self, queues: &mut Queues, device: &Arc<Shared>) -> (bool, Wait) {
        for entry in std::mem::take(&mut lock(&self.inbox).arrived) {
            queues.push(entry);
        }
        let mut moved = false;
        if device.is_lost() {
            moved |= queues.abandon(device);
        }
        for (_, entries) in &mut queues.streams {
            moved |= ask(entries, device, &mut queues.pace);
        }
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
        (moved, queues.pace.wait(&queues.streams, device))
    }

    /// A turn on this thread. Answers whether anything moved; a turn inside a turn does nothing.
    pub(crate) fn turn_inline(&self, device: &Arc<Shared>) -> bool {
        let Some(mut queues) = ({
            let mut kept = lock(&self.by_hand);
            kept.get_or_insert_default();
            kept.take()
        }) else {
            return false;
        };
        let moved = self.turn(&mut queues, device).0;
        *lock(&self.by_hand) = Some(queues);
        moved
    }
}

/// Completes the entries of one stream that are done.
fn ask(entries: &mut VecDeque<Entry>, device: &Arc<Shared>, pace: &mut Pace) -> bool {
    let mut moved = false;
    while let Some(entry) = entries.front_mut() {
        let now = device.clock.now();
        let fired = entry.ask(device);
        if matches!(fired, Ok(false)) {
            entry.asked = now;
            break;
        }
        if let Some(entry) = entries.pop_front() {
            if fired.is_ok() {
                let now = device.clock.now();
                device.counters.noticed(now.saturating_sub(entry.asked));
                pace.learn(&entry, now, device);
            }
            moved = true;
            entry.complete(device, fired.map(drop));
        }
    }
    moved
}

impl Queues {
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
