//! [`Pace`]: how long the reactor may sleep before it asks again.
//!
//! It sleeps to shortly before the oldest copy can be done at the link's measured rate, then asks without sleeping for at
//! most 25 µs. After a missed estimate it sleeps a quarter of what that was off by, at most a sixteenth of the time
//! that the copy has taken so far.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Entry;
use crate::device::Shared;

/// The longest spin.
const SPIN: Duration = Duration::from_micros(20);
/// The longer a sleep the later it ends: the last part of a long one is a short one. On an H200 machine sleeps of 1 ms
/// were 13 µs late (p99 46), those of 100 µs 4 (p99 10).
const SHORT: Duration = Duration::from_micros(120);
/// Limbo alone is asked this often at first, and at least every millisecond.
pub(super) const LIMBO: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Not,
    /// Until somebody else is done with the queues.
    ForQueues,
    For(Duration),
    UntilWoken,
}

/// With so many short copies pending, who feeds the device polls it, and asks by itself: the thread keeps out of the
/// driver's way, and looks after it this often. On an H200, at depth 8, 4 KiB batches took 8.2 µs beside a spinning
/// reactor, 4.6 when it looks every 20 or 50 µs, with 3.5 and 1.6 µs of its CPU time each.
const MANY: usize = 4;
const PATIENCE: Duration = Duration::from_micros(50);
/// The same where fewer are pending, and somebody polled a moment ago.
const LITTLE_PATIENCE: Duration = Duration::from_micros(10);
const MOMENT: Duration = Duration::from_micros(100);
/// So long after that the thread looks around without being woken, which costs the one who submits.
const LINGERS: Duration = Duration::from_millis(1);
/// Who has not polled for so long waits to be woken: patience was wrong.
const AWAY: Duration = Duration::from_micros(10);
/// And it is not tried again for so long.
const IMPATIENT: Duration = Duration::from_millis(5);

/// What is known of those who poll, as atomics: who submits asks too. Nanoseconds of the device's clock.
#[derive(Debug, Default)]
pub(super) struct Polls {
    /// When somebody last polled in vain and asked by himself; 0 if nobody ever did.
    last: AtomicU64,
    /// Until when nothing is left to polls.
    impatient_until: AtomicU64,
}

impl Polls {
    pub(super) fn note(&self, now: Duration) {
        self.last.store(nanos(now), Relaxed);
    }

    /// The thread has found something done that was left to polls, and is waited for.
    fn judge(&self, now: Duration) {
        if self.are_away(now) {
            self.impatient_until.store(nanos(now + IMPATIENT), Relaxed);
        }
    }

    /// Whether nobody has polled just now.
    fn are_away(&self, now: Duration) -> bool {
        self.ago(now).is_none_or(|ago| ago > AWAY)
    }

    fn ago(&self, now: Duration) -> Option<Duration> {
        let last = self.last.load(Relaxed);
        (last > 0).then(|| now.saturating_sub(Duration::from_nanos(last)))
    }

    /// How long a short copy may be left to polls, beside so many others.
    pub(super) fn patience(&self, now: Duration, pending: usize) -> Duration {
        if nanos(now) < self.impatient_until.load(Relaxed) {
            return Duration::ZERO;
        }
        match self.ago(now) {
            _ if pending >= MANY => PATIENCE,
            Some(ago) if ago < MOMENT => LITTLE_PATIENCE,
            _ => Duration::ZERO,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Wait {
    /// Whether there is time for what can wait.
    pub(super) const fn is_long(self) -> bool {
        match self {
            Self::Not | Self::ForQueues => false,
            Self::For(time) => time.as_micros() > 100,
            Self::UntilWoken => true,
        }
    }
}

/// Copies of this many bytes tell the link's rate.
pub(super) const TELLING: usize = 1 << 20;

/// What was seen of each stream's last completion, and of limbo.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last entry of a stream was done: the next one could not begin before.
    last: Vec<(u64, Duration)>,
    limbo: Duration,
    /// Something was done that was left to polls, and is waited for.
    pub(super) found_left: bool,
}

impl Pace {
    /// Notes that `entry` is done, and how fast the link was.
    pub(super) fn learn(&mut self, entry: &Entry, now: Duration, device: &Shared) {
        let began = self.began(entry);
        // It was not done when it was last asked.
        if entry.is_copy {
            device.counters.took(entry.bytes, entry.asked.saturating_sub(began), now.saturating_sub(began));
        }
        match self.last.iter_mut().find(|(stream, _)| *stream == entry.stream) {
            Some((_, last)) => *last = now,
            None => self.last.push((entry.stream, now)),
        }
    }

    /// Forgets the streams that are not to be kept.
    pub(super) fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.last.retain(|(stream, _)| is_kept(*stream));
    }

    fn began(&self, entry: &Entry) -> Duration {
        let last = self.last.iter().find(|(stream, _)| *stream == entry.stream);
        last.map_or(entry.since, |(_, last)| entry.since.max(*last))
    }

    /// Learns from what the thread has found, and not those who poll.
    pub(super) fn judge(&mut self, now: Duration, device: &Shared) {
        if std::mem::take(&mut self.found_left) {
            device.reactor.polls.judge(now);
        }
    }

    /// How long nothing can be due.
    pub(super) fn wait(&mut self, streams: &[(u64, VecDeque<Entry>)], device: &Shared) -> Wait {
        let now = device.clock.now();
        let oldest = streams.iter().filter_map(|(_, entries)| entries.front());
        let mut wait = oldest.map(|entry| self.wait_for(entry, now, device)).min();
        if device.limbo.count() == 0 && !device.has_orphans() {
            self.limbo = LIMBO.0;
        } else {
            let limbo = self.limbo;
            self.limbo = (limbo + limbo / 4).min(LIMBO.1);
            wait = Some(wait.map_or(limbo, |wait| wait.min(limbo)));
        }
        if wait.is_none() && device.reactor.polls.ago(now).is_some_and(|ago| ago < LINGERS) {
            wait = Some(PATIENCE);
        }
        let deadlines = [device.admission.next_deadline(), device.engine.together.next_deadline()];
        if let Some(deadline) = deadlines.into_iter().flatten().min() {
            let left = deadline.saturating_sub(now).max(Duration::from_micros(1));
            wait = Some(wait.map_or(left, |wait| wait.min(left)));
        }
        match wait {
            None => Wait::UntilWoken,
            Some(Duration::ZERO) => Wait::Not,
            Some(time) => Wait::For(time),
        }
    }

    fn wait_for(&self, entry: &Entry, now: Duration, device: &Shared) -> Duration {
        if entry.is_left_to_polls && now < entry.due && !device.reactor.polls.are_away(now) {
            return entry.due - now;
        }
        let began = self.began(entry);
        let taken = now.saturating_sub(began);
        let expected = match entry.fetch {
            Some(fetch) => device.fetching.expected(fetch.by_copies),
            None => device.counters.least_time(entry.bytes),
        };
        let spins_from = expected.saturating_sub(SPIN - SPIN / 4);
        if taken < spins_from {
            let left = spins_from - taken;
            // How long a kernel takes varies by more than a long sleep is late.
            return if left > SHORT && entry.fetch.is_none() { left - SHORT / 2 } else { left };
        }
        if taken < expected + SPIN / 2 {
            return Duration::ZERO;
        }
        // Off the mark: by little, so that it is looked for again soon; the longer it takes the less often.
        let over = taken - expected;
        (over / 4).min(taken / 16)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::sim::Simulator;

    #[test]
    fn while_somebody_polls_the_thread_looks_around_though_only_a_far_deadline_is_known() {
        let sim = Simulator::with(|builder| builder.memory_bytes(1024)).unwrap();
        let device = sim.device().shared();
        let _first = sim.device().try_transfer(("x", vec![1_u8; 64])).unwrap();
        let mut second = Box::pin(sim.device().transfer(("x", vec![1_u8; 64])));
        assert!((&mut second).now_or_never().is_none(), "it waits for room, which is worth a word after seconds");
        device.clock.advance(Duration::from_millis(1));
        let wait = || Pace::default().wait(&[], device);
        let is_far = |wait| matches!(wait, Wait::For(time) if time > Duration::from_secs(1));
        assert!(is_far(wait()));
        device.reactor.polls.note(device.clock.now());
        assert_eq!(wait(), Wait::For(PATIENCE));
        device.clock.advance(LINGERS);
        assert!(is_far(wait()));
    }
}
