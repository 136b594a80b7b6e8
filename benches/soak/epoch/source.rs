//! Where an epoch's batches come from.

use futures::stream::{self, BoxStream, StreamExt};
use inflight::HostBatch;
use rand::Rng;

use super::super::bank::generator;
use super::super::options::Plant;
use super::super::parcel::{Fate, Parcel, Raised};
use super::Epoch;

impl Epoch {
    /// Random batches, at a random pace, with an error now and then.
    pub(super) fn source(&self) -> BoxStream<'static, Result<HostBatch, Raised>> {
        let epoch = self.clone();
        stream::unfold(0, move |number| {
            let epoch = epoch.clone();
            async move {
                if number == epoch.length || std::time::Instant::now() >= epoch.until {
                    return None;
                }
                let item = epoch.item(number).await;
                epoch.counts.given.one();
                Some((item, number + 1))
            }
        })
        .boxed()
    }

    /// The batch of that place, or the error.
    pub(super) async fn item(&self, number: u64) -> Result<HostBatch, Raised> {
        let mut random = generator(self.seed, number, 4);
        if random.random_bool(0.05) {
            tokio::time::sleep(std::time::Duration::from_micros(random.random_range(0..2000))).await;
        }
        if Fate::of(self.seed, number) == Fate::Fails {
            self.counts.raised.one();
            return Err(Raised::OnPurpose(number));
        }
        if self.site.plant == Some(Plant::Error) && random.random_bool(0.02) {
            return Err(Raised::OnPurpose(number));
        }
        let is_spoiled = self.site.plant == Some(Plant::Byte) && random.random_bool(0.2);
        Ok(Parcel::random(self.seed, number).make(&self.site, is_spoiled).await?)
    }
}
