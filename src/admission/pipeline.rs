//! [`Pipeline`]: the name and the counters of one `to_device`.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::batch::Name;
use crate::device::PipelineStats;

/// One pipeline of a device, as all see it who count for it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    id: u64,
    name: OnceLock<Name>,
    batches: AtomicU64,
    bytes: AtomicU64,
    in_flight: AtomicUsize,
    /// Batches that have arrived, or failed, and are not taken. Below 0 for a moment where one is taken as it arrives.
    lying: AtomicIsize,
    peak: AtomicUsize,
    waits: AtomicU64,
    waited_nanos: AtomicU64,
}

impl Pipeline {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            name: OnceLock::new(),
            batches: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            lying: AtomicIsize::new(0),
            peak: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
        }
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Names it; the first name stays.
    pub(crate) fn name(&self, name: Name) {
        let _ = self.name.set(name);
    }

    pub(crate) fn display_name(&self) -> String {
        self.name.get().map_or_else(|| format!("unnamed {}", self.id), ToString::to_string)
    }

    /// Counts a batch in; returns its index.
    pub(crate) fn submitted(&self, bytes: usize) -> u64 {
        let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
        if in_flight > self.peak.load(Relaxed) {
            self.peak.fetch_max(in_flight, Relaxed);
        }
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.batches.fetch_add(1, Relaxed)
    }

    /// Batches that were submitted and are not taken.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// A batch has arrived, or failed, and lies there.
    pub(crate) fn lies(&self) {
        self.lying.fetch_add(1, Relaxed);
    }

    /// Whether no batch lies there for its consumer.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.lying.load(Relaxed) <= 0
    }

    /// A batch was taken by the consumer, or its transfer was dropped; it lay there if it `is_over`.
    pub(crate) fn taken(&self, is_over: bool) {
        self.in_flight.fetch_sub(1, Relaxed);
        if is_over {
            self.lying.fetch_sub(1, Relaxed);
        }
    }

    /// Counts a wait for admission.
    pub(crate) fn waited(&self, time: Duration) {
        self.waits.fetch_add(1, Relaxed);
        self.waited_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Adds a pipeline's counters to the row of its name, if it has one.
pub(super) fn merge(rows: &mut BTreeMap<Name, PipelineStats>, pipeline: &Pipeline, device_bytes: usize) {
    let Some(name) = pipeline.name.get() else { return };
    let row = rows.entry(name.clone()).or_insert_with(|| PipelineStats::new(name.to_string()));
    row.batches += pipeline.batches.load(Relaxed);
    row.bytes += pipeline.bytes.load(Relaxed);
    row.in_flight += pipeline.in_flight.load(Relaxed);
    row.peak_in_flight = row.peak_in_flight.max(pipeline.peak.load(Relaxed));
    row.waits += pipeline.waits.load(Relaxed);
    row.waited += Duration::from_nanos(pipeline.waited_nanos.load(Relaxed));
    row.device_bytes += device_bytes;
}
