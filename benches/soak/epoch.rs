//! [`Epoch`]: one pass over a random source by one task, in one of the ways in which a pipeline can be written.

#[path = "epoch/consume.rs"]
mod consume;
#[path = "epoch/direct.rs"]
mod direct;
#[path = "epoch/source.rs"]
mod source;

use std::sync::Arc;
use std::time::Instant;

use futures::stream::StreamExt;
use inflight::{BatchStreamExt, Depth};
use rand::Rng;

use super::bank::generator;
use super::site::Site;
use super::tally::Count;
use super::work::Wrong;

/// How the pipeline is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Buffered,
    BufferedBy,
    Early,
    Prefetched,
    /// All goes home again, in order.
    ReadBack,
    /// By hand: transfers, and who waits for them.
    Direct,
}

const WAYS: [Way; 6] = [Way::Buffered, Way::BufferedBy, Way::Early, Way::Prefetched, Way::ReadBack, Way::Direct];

/// One pass, and what was counted in it. Clones are the same pass.
#[derive(Clone)]
pub(crate) struct Epoch {
    site: Site,
    task: usize,
    seed: u64,
    way: Way,
    depth: usize,
    length: u64,
    /// After so many batches the stream is dropped.
    left_after: Option<u64>,
    /// The source ends then.
    until: Instant,
    counts: Arc<Counts>,
}

/// What an epoch's source and consumer have seen.
#[derive(Debug, Default)]
struct Counts {
    /// What the source gave, errors too.
    given: Count,
    taken: Count,
    raised: Count,
    seen: Count,
}

impl Epoch {
    pub(crate) fn random(site: &Site, task: usize, seed: u64, until: Instant) -> Self {
        let mut random = generator(seed, 0, 3);
        let depth = 64_f64.powf(random.random::<f64>()).round() as usize;
        let length = random.random_range(2..120);
        let left_after = random.random_bool(0.05).then(|| random.random_range(1..=length));
        let way = WAYS[random.random_range(0..WAYS.len())];
        Self { site: site.clone(), task, seed, way, depth, length, left_after, until, counts: Arc::default() }
    }

    /// Runs it to its end, or until it leaves its stream.
    pub(crate) async fn run(self) -> Result<(), Wrong> {
        let device = &self.site.device;
        let compute = device.compute_stream()?;
        let name = format!("task {}", self.task);
        let ended = match self.way {
            Way::Direct => self.direct(&compute).await?,
            Way::ReadBack => self.read_back(self.source().to_device(device).named(name)).await?,
            Way::Buffered | Way::Early => {
                let transfers = self.source().to_device(device).named(name);
                self.consume(self.followed(transfers).buffered(self.depth), &compute, None).await?
            }
            Way::BufferedBy => {
                let depth = Depth::new(self.depth)?;
                let transfers = self.source().to_device(device).named(name);
                self.consume(self.followed(transfers).buffered_by(&depth), &compute, Some(&depth)).await?
            }
            Way::Prefetched => {
                let transfers = self.source().prefetch(1 + self.depth / 4)?.to_device(device).named(name);
                self.consume(self.followed(transfers).buffered(self.depth), &compute, None).await?
            }
        };
        let Counts { given, taken, raised, seen } = &*self.counts;
        if ended && (given.now(), raised.now()) != (taken.now(), seen.now()) {
            return Err(format!("{self}: a stream ended, and not all that its source gave came out").into());
        }
        Ok(())
    }

    /// Adds what was counted to the run's counts. What was raised and not seen was lost with a stream that was dropped.
    pub(crate) fn close(&self) {
        let (tally, raised, seen) = (&self.site.tally, self.counts.raised.now(), self.counts.seen.now());
        tally.epochs.one();
        tally.raised.add(raised);
        tally.seen.add(seen);
        tally.lost.add(raised.saturating_sub(seen));
    }
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { site, seed, way, depth, length, left_after, counts, .. } = self;
        let device = site.device.name();
        write!(
            f,
            "{way:?} on {device}, depth {depth}, {length} batches, left after {left_after:?}, seed {seed}, {counts:?}"
        )
    }
}
