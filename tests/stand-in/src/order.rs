//! Whether memory that is freed is still in use: what is pending touches it, and the free is not queued behind that.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::operation::Work;
use crate::world::World;

impl World {
    /// For each stream the newest operation that is surely over when `stream` gets to what is queued on it next: by its
    /// own order, and by the events that it waits for.
    fn over_before(&self, stream: usize) -> BTreeMap<usize, u64> {
        let mut over = BTreeMap::new();
        let mut open = vec![(stream, u64::MAX)];
        while let Some((stream, upto)) = open.pop() {
            let known = over.entry(stream).or_insert(0);
            if *known >= upto {
                continue;
            }
            *known = upto;
            let queue = self.streams.get(&stream).map(|stream| &stream.queue);
            for operation in queue.into_iter().flatten().filter(|operation| operation.number <= upto) {
                if let Work::Wait(record) = &operation.work
                    && record.done().is_none()
                {
                    open.push((record.stream, record.number));
                }
            }
        }
        over
    }

    /// Counts a violation where pending operations touch memory that is freed: on `behind` in stream order, at once
    /// where that is `None`.
    pub(crate) fn check_unused(&mut self, range: &Range<u64>, behind: Option<usize>) {
        let over = behind.map(|stream| self.over_before(stream)).unwrap_or_default();
        let mut users = Vec::new();
        for (handle, stream) in &self.streams {
            let upto = over.get(handle).copied().unwrap_or(0);
            for operation in stream.queue.iter().filter(|operation| operation.number > upto) {
                if operation.work.touches(range) {
                    users.push(format!("a {} on stream {handle:#x}", operation.work.name()));
                }
            }
        }
        if let Some(first) = users.first() {
            let more = if users.len() > 1 { format!(" and {} more", users.len() - 1) } else { String::new() };
            let (start, bytes) = (range.start, range.end - range.start);
            self.counts.violated(format!("{bytes} bytes at {start:#x} freed while in use by {first}{more}"));
        }
    }

    /// Host memory goes: pending operations that touch it leave it alone from now on.
    pub(crate) fn forget_host(&mut self, range: &Range<u64>) {
        for operation in self.streams.values_mut().flat_map(|stream| &mut stream.queue) {
            operation.work.forget_host(range);
        }
    }
}
