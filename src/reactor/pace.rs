//! [`Pace`]: how long the reactor may sleep before it asks again.
//!
//! It sleeps to shortly before the oldest copy can be done at the link's measured rate, then asks without sleeping for at
//! most 25 µs. After a missed estimate it sleeps a quarter of what that was off by, at most a sixteenth of the time
//! that the copy has taken so far. Where a long copy follows, the link has work meanwhile: then it asks a little before the
//! oldest should be done and a little after, and does not spin.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Entry;
use super::entry::Ended;
use crate::device::Shared;

/// The longest spin.
const SPIN: Duration = Duration::from_micros(20);
/// The longer a sleep the later it ends: the last part of a long one is a short one. On an H200 machine sleeps of 1 ms
/// were 13 µs late (p99 46), those of 100 µs 4 (p99 10).
const SHORT: Duration = Duration::from_micros(120);
/// A copy may be noticed late by such a part of the time that the one behind it takes, and by so much at most. On an H200
/// the thread took 45 µs of processor time for each of a row of long copies when all were watched closely.
const LATE_SHARE: u32 = 8;
const LATEST: Duration = Duration::from_micros(50);
/// One of so many is watched closely nevertheless: it tells the rate.
const WATCHED: u32 = 16;
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
    streams: Vec<Seen>,
    limbo: Duration,
    /// Something was done that was left to polls, and is waited for.
    pub(super) found_left: bool,
}

/// What was seen of a stream's long entries.
#[derive(Debug)]
struct Seen {
    stream: u64,
    /// When the last one was done: the next could not begin before.
    last: Duration,
    count: u32,
}

/// How long an entry takes, about; nothing while that is not known.
fn expected(entry: &Entry, device: &Shared) -> Duration {
    match entry.fetch {
        Some(fetch) => device.fetching.expected(fetch.by_copies),
        None => device.counters.least_time(entry.bytes),
    }
}

/// How long the thread may sleep for what should have been done: the longer it takes, the longer.
fn back_off(taken: Duration, expected: Duration) -> Duration {
    (taken.saturating_sub(expected) / 4).min(taken / 16)
}

impl Pace {
    /// Learns from an entry that is found to be done `now`, with `next` behind it, how fast the link was.
    ///
    /// Answers when it was done, as far as that is known.
    pub(super) fn learn(&mut self, entry: &Entry, next: Option<&Entry>, now: Duration, device: &Shared) -> Ended {
        let (began, expected) = (self.began(entry), expected(entry, device));
        // It was not done when it was last asked.
        let (at_least, at_most) = (entry.asked.saturating_sub(began), now.saturating_sub(began));
        // Who asks late on purpose learns only whether it took longer or shorter than expected.
        let is_guess = self.may_be_late(entry, next, device).is_some() && at_least <= expected && expected <= at_most;
        if entry.is_copy && !is_guess {
            device.counters.took(entry.bytes, at_least, at_most);
        }
        let ended = if is_guess { Ended::Guessed(began + expected) } else { Ended::Seen(now) };
        match self.streams.iter_mut().find(|seen| seen.stream == entry.stream) {
            Some(seen) => (seen.last, seen.count) = (ended.at(), seen.count.wrapping_add(1)),
            None => self.streams.push(Seen { stream: entry.stream, last: ended.at(), count: 1 }),
        }
        ended
    }

    /// Forgets the streams that are not to be kept.
    pub(super) fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.streams.retain(|seen| is_kept(seen.stream));
    }

    fn seen(&self, entry: &Entry) -> Option<&Seen> {
        self.streams.iter().find(|seen| seen.stream == entry.stream)
    }

    fn began(&self, entry: &Entry) -> Duration {
        self.seen(entry).map_or(entry.since, |seen| entry.since.max(seen.last))
    }

    /// How much later than it is done an entry may be noticed, with `next` behind it. `None` if it is watched closely.
    fn may_be_late(&self, entry: &Entry, next: Option<&Entry>, device: &Shared) -> Option<Duration> {
        let tells = entry.is_copy || entry.fetch.is_some();
        let is_turn = || self.seen(entry).is_none_or(|seen| seen.count % WATCHED == 0);
        let is_watched = entry.bytes < TELLING || tells && is_turn();
        let late = (expected(next.filter(|_| !is_watched)?, device) / LATE_SHARE).min(LATEST);
        (late > SPIN).then_some(late)
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
        let oldest = streams.iter().filter_map(|(_, entries)| Some((entries.front()?, entries.get(1))));
        let mut wait = oldest.map(|(entry, next)| self.wait_for(entry, next, now, device)).min();
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

    fn wait_for(&self, entry: &Entry, next: Option<&Entry>, now: Duration, device: &Shared) -> Duration {
        if entry.is_left_to_polls && now < entry.due && !device.reactor.polls.are_away(now) {
            return entry.due - now;
        }
        let began = self.began(entry);
        let taken = now.saturating_sub(began);
        let expected = expected(entry, device);
        if let Some(late) = self.may_be_late(entry, next, device) {
            let left = expected.saturating_sub(late / 2).saturating_sub(taken);
            return if left.is_zero() { late.max(back_off(taken, expected)) } else { left };
        }
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
        back_off(taken, expected)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;
    use crate::reactor::{Done, Held};
    use crate::sim::Simulator;

    const LONG: usize = 40_000_000;

    /// A link on which copies of [`LONG`] bytes lie one behind the other, as the reactor sees it.
    struct Line {
        sim: Simulator,
        pace: Pace,
        pending: Vec<(u64, VecDeque<Entry>)>,
        /// When the one before was done.
        done: Duration,
    }

    impl Line {
        /// One whose copies are expected to take so many microseconds.
        fn new(micros: u64) -> Self {
            let sim = Simulator::with(|builder| builder).unwrap();
            let time = Duration::from_micros(micros);
            sim.device().shared().counters.took(LONG, time, time);
            Self { sim, pace: Pace::default(), pending: Vec::new(), done: Duration::ZERO }
        }

        fn device(&self) -> &Arc<Shared> {
            self.sim.device().shared()
        }

        fn pend(&mut self, bytes: &[usize]) {
            let device = self.device();
            let done = || Done::Orphan(device.record(&device.copy_stream).unwrap());
            let entry = |bytes: &usize| Entry::new(device, &device.copy_stream, *bytes, Held::default(), done());
            self.pending = vec![(device.copy_stream.id(), bytes.iter().map(entry).collect())];
        }

        /// What is waited where copies of so many bytes are pending.
        fn wait(&mut self, bytes: &[usize]) -> Wait {
            self.pend(bytes);
            let device = self.sim.device().shared();
            self.pace.wait(&self.pending, device)
        }

        /// The first of two copies takes `time`. Answers how late that is noticed, and after how many questions.
        fn copy(&mut self, time: Duration) -> (Duration, u32) {
            self.pend(&[LONG, LONG]);
            let device = self.sim.device().shared();
            let mut entry = self.pending[0].1.pop_front().unwrap();
            entry.asked = device.clock.now();
            self.done += time;
            for questions in 0.. {
                let now = device.clock.now();
                if now >= self.done {
                    self.pace.learn(&entry, self.pending[0].1.front(), now, device);
                    return (now - self.done, questions);
                }
                entry.asked = now;
                self.pending[0].1.push_front(entry);
                let wait = self.pace.wait(&self.pending, device);
                entry = self.pending[0].1.pop_front().unwrap();
                device.clock.advance(match wait {
                    // Whoever sleeps wakes late.
                    Wait::For(time) => time + Duration::from_micros(4),
                    _ => Duration::from_micros(1),
                });
            }
            unreachable!()
        }
    }

    #[test]
    fn what_has_a_long_copy_behind_it_is_not_watched_closely_but_one_of_sixteen() {
        let mut line = Line::new(800);
        let closely = line.wait(&[LONG]);
        assert_eq!(line.wait(&[LONG, LONG]), closely, "the first tells the rate");
        assert!(line.copy(Duration::from_micros(800)).0 <= Duration::from_micros(1));
        let closely = line.wait(&[LONG]);
        assert_ne!(line.wait(&[LONG, LONG]), closely);
        assert_eq!(line.wait(&[LONG, LONG / 8]), closely, "the link would soon be idle");
        let asked: Vec<_> = (0..160).map(|_| line.copy(Duration::from_micros(800)).1).collect();
        let few = asked.iter().filter(|questions| **questions <= 4).count();
        assert!((140..160).contains(&few), "{asked:?}");
    }

    #[test]
    fn however_fast_the_link_turns_out_to_be_nothing_is_noticed_much_too_late() {
        for percent in [25, 70, 90, 97, 100, 103, 110, 150, 400, 1000] {
            let mut line = Line::new(800);
            let late: Vec<_> = (0..400).map(|_| line.copy(Duration::from_micros(8 * percent)).0).collect();
            let worst = late.iter().skip(32).max().unwrap();
            assert!(*worst <= 2 * LATEST, "{percent} %: {worst:?}");
            let sum: Duration = late.iter().skip(32).sum();
            assert!(sum / 368 <= LATEST, "{percent} %: {:?} in the mean", sum / 368);
            let (found, highest) = (line.device().counters.link_rate(), LONG as u64 / (8 * percent.min(100)));
            assert!(found <= highest + highest / 10, "{percent} %: {found} bytes a microsecond, of {highest}");
        }
    }

    #[test]
    fn who_waits_for_long_asks_less_often() {
        let mut line = Line::new(800);
        line.copy(Duration::from_micros(800));
        let (late, questions) = line.copy(Duration::from_secs(1));
        assert!(questions < 300, "{questions}");
        assert!(late < Duration::from_millis(70), "{late:?}");
    }

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
