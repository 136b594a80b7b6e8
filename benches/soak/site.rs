//! [`Site`]: a device, and what all that happens on it shares.

use std::sync::Arc;
use std::time::{Duration, Instant};

use inflight::{Device, DeviceKind, LinkModel};

use super::bank::Bank;
use super::options::{Plant, Which};
use super::tally::Tally;

/// Three of the largest batches, so that pipelines wait.
const MEMORY_BYTES: usize = 224 << 20;
/// One page-locked array for each of the two tasks, and a few that are on their way.
const PINNED_BYTES: usize = 256 << 20;
/// Room for all that two tasks read back at once: two that each hold a part of what both need would wait for ever.
const READBACK_BYTES: usize = 512 << 20;

/// A device under load.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) device: Device,
    pub(crate) bank: Bank,
    pub(crate) tally: Arc<Tally>,
    pub(crate) plant: Option<Plant>,
}

impl Site {
    /// Builds the device; the second of a run has a slow link and a small ring.
    pub(crate) fn device(which: Which, is_second: bool) -> inflight::Result<Device> {
        let mut builder = Device::builder().memory_bytes(MEMORY_BYTES).pinned_bytes(PINNED_BYTES);
        builder = builder.readback_bytes(READBACK_BYTES);
        builder = match which {
            Which::Host => builder.host(),
            Which::Cuda(ordinal) => builder.cuda(ordinal),
        };
        if is_second {
            builder = builder.staging_bytes(4 << 20);
            if which == Which::Host {
                let latency = Duration::from_micros(20);
                builder = builder.link_model(LinkModel { bytes_per_second: 4e9, latency });
            }
        }
        builder.build()
    }

    pub(crate) fn is_host(&self) -> bool {
        self.device.kind() == DeviceKind::Host
    }

    /// Waits until nothing is pending, and says what is left if that takes too long, or is not nothing.
    pub(crate) async fn settle(&self) -> Result<(), String> {
        let device = &self.device;
        let drained = tokio::time::timeout(Duration::from_secs(30), device.drain()).await;
        drained
            .map_err(|_| format!("{} was not drained in 30 s", device.name()))?
            .map_err(|error| error.to_string())?;
        // What the last operation let go of is put in its place by threads that `drain` does not wait for.
        let begun = Instant::now();
        while let Some(left) = self.left() {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(format!("{}: after everything was dropped and drained there is {left}", device.name()));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// What is still in use.
    fn left(&self) -> Option<String> {
        let stats = self.device.stats();
        let counts = [
            ("device_used", stats.device_used),
            ("limbo_blocks", stats.limbo_blocks),
            ("operations", stats.operations),
            ("pinned_used", stats.pinned_used),
            ("readback_used", stats.readback_used),
            ("quarantined", stats.device_quarantined as usize),
            ("leaked", stats.leaked as usize),
        ];
        let left: Vec<_> =
            counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
        (!left.is_empty()).then(|| left.join(", "))
    }
}
