//! [`Counts`]: what has happened so far, and the counters that tests read by name.

use crate::world::World;

/// Lines of text that are kept about misuse; further ones are only counted.
const LINES: usize = 64;

/// What has happened since the last reset.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) violations: u64,
    /// What the first violations were, a line each.
    pub(crate) lines: Vec<String>,
    pub(crate) peak_pending: u64,
    /// Calls that waited because too much was pending on their stream.
    pub(crate) blocked_calls: u64,
    pub(crate) pageable_copies: u64,
    pub(crate) unrecorded_queries: u64,
}

impl Counts {
    /// A rule of the driver was broken.
    pub(crate) fn violated(&mut self, line: String) {
        self.violations += 1;
        if self.lines.len() < LINES {
            self.lines.push(line);
        }
    }
}

impl World {
    /// The counter of that name, if there is one.
    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        let (device_bytes, device_blocks) = self.device.in_use();
        let (host_bytes, host_blocks) = self.host.in_use();
        let count = |number: usize| number as u64;
        Some(match name {
            "violations" => self.counts.violations,
            "pending" => self.pending(),
            "peak_pending" => self.counts.peak_pending,
            "blocked_calls" => self.counts.blocked_calls,
            "device_bytes" => count(device_bytes),
            "device_blocks" => count(device_blocks),
            "host_bytes" => count(host_bytes),
            "host_blocks" => count(host_blocks),
            "events" => count(self.events.len()),
            "streams" => count(self.streams.values().filter(|stream| stream.has_handle).count()),
            "contexts" => count(self.contexts.values().filter(|context| context.is_alive).count()),
            "modules" => count(self.modules.len()),
            "pageable_copies" => self.counts.pageable_copies,
            "unrecorded_queries" => self.counts.unrecorded_queries,
            _ => return None,
        })
    }

    /// Operations that have not completed, of all streams.
    pub(crate) fn pending(&self) -> u64 {
        self.streams.values().map(|stream| stream.queue.len() as u64).sum()
    }
}
