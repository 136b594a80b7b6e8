//! [`Stats`]: what a device has done and holds, at one moment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{DeviceKind, Shared};

/// What a device has done since it was built, and what it holds now. From [`Device::stats`](crate::Device::stats).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// What kind of device it is.
    pub kind: DeviceKind,
    /// Which GPU it is and what its driver is, on a GPU.
    #[cfg(feature = "cuda")]
    pub hardware: Option<crate::Hardware>,
    /// Bytes sent to the device, padding between packed fields included.
    pub bytes_sent: u64,
    /// Copies to the device, and chunks that were written into its memory where that is the host's.
    pub copies_sent: u64,
    /// Bytes that the staging threads copied or gathered.
    pub bytes_staged: u64,
    /// Bytes read back.
    pub bytes_read: u64,
    /// The device-memory limit in bytes; smaller than the one given by what is quarantined.
    pub device_limit: usize,
    /// Bytes of device memory in use, in size classes, limbo included.
    pub device_used: usize,
    /// The most that was in use at once.
    pub device_peak: usize,
    /// Bytes of device memory kept for the next batch, but for the 2 MiB of small blocks beside the limit.
    pub device_idle: usize,
    /// Bytes that are never used again, since an event behind their work could not be recorded.
    pub device_quarantined: u64,
    /// Device blocks allocated so far.
    pub device_allocations: u64,
    /// Bytes leaked on purpose when the device was lost.
    pub leaked: u64,
    /// Events made so far. Those that are done are used again: under an even load this stays where it is.
    pub events_made: u64,
    /// Blocks in limbo: their owners are gone, their work is not done.
    pub limbo_blocks: usize,
    /// Bytes in limbo.
    pub limbo_bytes: usize,
    /// Transfers that are not complete.
    pub operations: usize,
    /// Page-locked bytes that users hold, in size classes.
    pub pinned_used: usize,
    /// Page-locked bytes that read-backs hold, in size classes.
    pub readback_used: usize,
    /// Page-locked bytes kept for the next use; the ring is not among them.
    pub pinned_idle: usize,
    /// Waits for device memory that went on for 5 s and were warned of.
    pub overdue_waits: u64,
    /// How often the reactor asked an event.
    pub polls: u64,
    /// Wakers that completions have woken.
    pub wakes: u64,
    /// Completions that the reactor noticed.
    pub completions: u64,
    /// By how much it can have noticed them late, in sum: from the last time the answer was "not yet".
    pub lateness: Duration,
    /// CPU time of the reactor's thread, where the system tells.
    pub reactor_cpu: Option<Duration>,
    /// One row for each pipeline name.
    pub pipelines: Vec<PipelineStats>,
}

impl Stats {
    /// The row of a pipeline name.
    pub fn pipeline(&self, name: &str) -> Option<&PipelineStats> {
        self.pipelines.iter().find(|row| row.name == name)
    }
}

/// What the pipelines of one name have done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipelineStats {
    /// The name that [`ToDevice::named`](crate::ToDevice::named) gave.
    pub name: String,
    /// Batches submitted.
    pub batches: u64,
    /// Bytes of their fields, without padding.
    pub bytes: u64,
    /// Batches submitted, or arrived and not yet taken, now.
    pub in_flight: usize,
    /// The most of them at once.
    pub peak_in_flight: usize,
    /// Batches that had to wait for device memory.
    pub waits: u64,
    /// How long they waited in sum.
    pub waited: Duration,
    /// Bytes of device memory that its batches hold now, in size classes.
    pub device_bytes: usize,
}

impl PipelineStats {
    pub(crate) const fn new(name: String) -> Self {
        Self {
            name,
            batches: 0,
            bytes: 0,
            in_flight: 0,
            peak_in_flight: 0,
            waits: 0,
            waited: Duration::ZERO,
            device_bytes: 0,
        }
    }
}

/// What a copy takes beside the time of its bytes, as measured on an H200.
const LATENCY: Duration = Duration::from_micros(6);

/// A copy whose time is known so well tells the rate.
const EXACT: Duration = Duration::from_micros(5);
/// The reactor sleeps once for longer copies.
const WORTH_A_SLEEP: Duration = Duration::from_micros(40);
/// A copy of so many bytes counts as much as all that was known before.
const TELLS_ALL: u64 = 32 << 20;

/// Counts of one device, each on its own.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) copies: AtomicU64,
    pub(crate) gathered: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) allocations: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) leaked: AtomicU64,
    pub(crate) polls: AtomicU64,
    pub(crate) wakes: AtomicU64,
    completions: AtomicU64,
    lateness_nanos: AtomicU64,
    overdue: AtomicU64,
    reactor_nanos: AtomicU64,
    /// The link's measured rate in bytes a microsecond; 0 until a large copy was seen.
    rate: AtomicU64,
    /// The highest that it was.
    fastest: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
        self.copies.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_overdue(&self) {
        self.overdue.fetch_add(1, Relaxed);
    }

    /// The reactor noticed a completion that can be as old as `age`.
    pub(crate) fn noticed(&self, age: Duration) {
        self.completions.fetch_add(1, Relaxed);
        self.lateness_nanos.fetch_add(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn reactor_cpu(&self, time: Option<Duration>) {
        let nanos = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.reactor_nanos.store(nanos, Relaxed);
    }

    /// A copy of `bytes` took at least, and at most, so long.
    ///
    /// Who looks too late each time sees only how long he has slept: then the copy must be taken for a little shorter, until
    /// he looks too early and sees the truth.
    pub(crate) fn took(&self, bytes: usize, at_least: Duration, at_most: Duration) {
        let (known, expected) = (self.rate.load(Relaxed), self.least_time(bytes));
        let between = (at_least + at_most) / 2;
        let is_exact = at_most > LATENCY && at_most - at_least < EXACT;
        let time = if known == 0 {
            at_most
        } else if is_exact || expected < at_least {
            between
        } else if at_most <= LATENCY {
            // It was found with the one before, behind which it seemed to begin: copies are much shorter than expected.
            expected / 2
        } else if expected > WORTH_A_SLEEP {
            at_most.min(expected - expected / 32).max(at_least)
        } else if at_most < expected {
            at_most
        } else {
            return;
        };
        let nanos = u64::try_from(time.saturating_sub(LATENCY).as_nanos()).unwrap_or(u64::MAX).max(1);
        let seen = ((bytes as u64).saturating_mul(1000) / nanos).max(1);
        // Long copies tell the rate better: what a copy takes beside the time of its bytes matters less.
        let share = (bytes as u64).min(TELLS_ALL);
        let rate = match known {
            0 => seen,
            known => (known.saturating_mul(2 * TELLS_ALL - share) + seen.saturating_mul(share)) / (2 * TELLS_ALL),
        };
        self.rate.store(rate.max(1), Relaxed);
        if is_exact || known == 0 {
            self.fastest.fetch_max(rate, Relaxed);
        }
    }

    /// The link's rate in bytes a microsecond, 0 while it is not known: the fastest that was measured. Copies of short rows, or
    /// beside other work of the link, come slower than it.
    pub(crate) fn link_rate(&self) -> u64 {
        self.fastest.load(Relaxed)
    }

    /// How long a copy of `bytes` takes at the measured rate; nothing while the rate is not known.
    pub(crate) fn least_time(&self, bytes: usize) -> Duration {
        let nanos = (bytes as u64).saturating_mul(1000).checked_div(self.rate.load(Relaxed));
        nanos.map_or(Duration::ZERO, |nanos| LATENCY + Duration::from_nanos(nanos))
    }
}

/// Collects the numbers.
pub(crate) fn snapshot(device: &Shared) -> Stats {
    let (memory, counters) = (device.admission.bytes(), &device.counters);
    let (pinned_used, readback_used, pinned_idle) = device.pinned.bytes();
    let nanos = counters.reactor_nanos.load(Relaxed);
    Stats {
        kind: device.kind,
        #[cfg(feature = "cuda")]
        hardware: device.backend.hardware().cloned(),
        bytes_sent: counters.sent.load(Relaxed),
        copies_sent: counters.copies.load(Relaxed),
        bytes_staged: counters.gathered.load(Relaxed),
        bytes_read: counters.read.load(Relaxed),
        device_limit: memory.limit,
        device_used: memory.used,
        device_peak: memory.peak,
        device_idle: memory.idle,
        device_quarantined: counters.quarantined.load(Relaxed),
        device_allocations: counters.allocations.load(Relaxed),
        leaked: counters.leaked.load(Relaxed),
        events_made: device.events.made(),
        limbo_blocks: device.limbo.count(),
        limbo_bytes: device.limbo.bytes(),
        operations: memory.operations,
        pinned_used,
        readback_used,
        pinned_idle,
        overdue_waits: counters.overdue.load(Relaxed),
        polls: counters.polls.load(Relaxed),
        wakes: counters.wakes.load(Relaxed),
        completions: counters.completions.load(Relaxed),
        lateness: Duration::from_nanos(counters.lateness_nanos.load(Relaxed)),
        reactor_cpu: (nanos > 0).then(|| Duration::from_nanos(nanos)),
        pipelines: device.admission.pipelines(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 38_500_000;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Looks at a copy that takes `time` as the reactor does, which is late by `late`; what it then knows.
    fn look(counters: &Counters, time: Duration, late: Duration) -> (Duration, Duration) {
        let wakes = counters.least_time(MB).saturating_sub(micros(20)) + late;
        let (at_least, at_most) = if wakes < time { (time, time + micros(1)) } else { (Duration::ZERO, wakes) };
        counters.took(MB, at_least, at_most);
        (at_least, at_most)
    }

    #[test]
    fn the_rate_is_found_from_above_and_below_and_kept() {
        for first in [100, 690, 710, 5000] {
            let counters = Counters::default();
            counters.took(MB, Duration::ZERO, micros(first));
            for _ in 0..200 {
                look(&counters, micros(700), micros(5));
            }
            let mut lateness = Duration::ZERO;
            for _ in 0..100 {
                let (_, noticed) = look(&counters, micros(700), micros(5));
                lateness += noticed.saturating_sub(micros(700));
            }
            assert!(lateness / 100 < micros(5), "begun with {first} µs: late by {:?}", lateness / 100);
            let expected = counters.least_time(MB);
            assert!(expected > micros(670) && expected < micros(720), "begun with {first} µs: {expected:?}");
        }
    }

    #[test]
    fn short_copies_that_are_noticed_late_spoil_nothing() {
        let counters = Counters::default();
        counters.took(MB, micros(699), micros(700));
        for _ in 0..10_000 {
            counters.took(1 << 20, Duration::ZERO, micros(40));
        }
        let expected = counters.least_time(MB);
        assert!(expected > micros(650) && expected < micros(750), "{expected:?}");
    }
}
