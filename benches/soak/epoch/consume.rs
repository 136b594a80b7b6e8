//! The consumer of an epoch's stream: every place holds what was sent in it, or the error that was raised there.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, TryFutureExt, ready};
use futures::stream::{Stream, StreamExt};
use inflight::{BatchStreamExt, ComputeStream, Depth, DeviceBatch, Error, HostArray, HostBatch, Result, Transfer};
use rand::Rng;
use tokio::time::timeout;

use super::super::bank::generator;
use super::super::cell::{Cell, Written};
use super::super::field::Field;
use super::super::options::Plant;
use super::super::parcel::{Fate, Parcel, Raised};
use super::super::work::{Arrived, Wrong, typed};
use super::{Epoch, Way};

/// A batch, or `None` where what would have had it was dropped.
type Followed = BoxFuture<'static, Result<Option<DeviceBatch>>>;

impl Epoch {
    /// Each transfer as its fate wants it.
    pub(super) fn followed(&self, transfers: impl Stream<Item = Transfer>) -> impl Stream<Item = Followed> {
        let epoch = self.clone();
        transfers.enumerate().map(move |(number, transfer)| epoch.follow(number as u64, transfer))
    }

    pub(super) fn follow(&self, number: u64, transfer: Transfer) -> Followed {
        match Fate::of(self.seed, number) {
            Fate::Dropped => {
                drop(transfer);
                ready(Ok(None)).boxed()
            }
            Fate::TimesOut(after) => async move {
                // Made in this order, the transfer is asked at least once.
                timeout(after, transfer).await.map_or(Ok(None), |arrived| arrived.map(Some))
            }
            .boxed(),
            Fate::Arrives | Fate::Fails if self.way == Way::Early => transfer.early().map_ok(Some).boxed(),
            Fate::Arrives | Fate::Fails => transfer.map_ok(Some).boxed(),
        }
    }

    /// Takes all that the stream yields; answers whether it ended.
    pub(super) async fn consume(
        &self,
        batches: impl Stream<Item = Result<Option<DeviceBatch>>>,
        compute: &ComputeStream,
        depth: Option<&Depth>,
    ) -> Result<bool, Wrong> {
        let mut batches = std::pin::pin!(batches);
        let mut number = 0;
        while let Some(item) = batches.next().await {
            self.taken(number, item, compute).await?;
            number += 1;
            if Some(number) == self.left_after {
                self.site.tally.epochs_left.one();
                return Ok(false);
            }
            if let (Some(depth), 0) = (depth, number % 7) {
                depth.set(generator(self.seed, number, 5).random_range(1..=64))?;
            }
        }
        Ok(true)
    }

    /// What came in a place is what belongs there, and is used.
    pub(super) async fn taken(
        &self,
        number: u64,
        item: Result<Option<DeviceBatch>>,
        compute: &ComputeStream,
    ) -> Result<(), Wrong> {
        self.site.tally.phase(self.task, format!("uses {number} of {self}"));
        let mut random = generator(self.seed, number, 6);
        match item {
            Ok(None) => self.site.tally.transfers_cancelled.one(),
            Err(error) => self.expect_error(number, &error)?,
            Ok(Some(batch)) => {
                let parcel = self.parcel(number, batch.meta::<Arc<Parcel>>())?;
                if self.site.plant == Some(Plant::Leak) && random.random_bool(0.05) {
                    Box::leak(Box::new(batch.clone()));
                }
                let arrived = Arrived { site: &self.site, compute, batch, parcel };
                let used = arrived.used(&mut random, self.way == Way::Early).await;
                used.map_err(|error| format!("{self}: {error}"))?;
            }
        }
        self.site.tally.phase(self.task, format!("waits for {} of {self}", number + 1));
        self.counts.taken.one();
        self.site.tally.progress.one();
        Ok(())
    }

    /// The batches come home again, some are not waited for.
    pub(super) async fn read_back(&self, transfers: impl Stream<Item = Transfer>) -> Result<bool, Wrong> {
        let epoch = self.clone();
        let home = transfers.buffered(self.depth).read_back().enumerate().map(move |(number, read)| {
            match Fate::of(epoch.seed, number as u64) {
                Fate::Dropped => ready(Ok(None)).boxed(),
                Fate::TimesOut(after) => {
                    async move { timeout(after, read).await.map_or(Ok(None), |home| home.map(Some)) }.boxed()
                }
                Fate::Arrives | Fate::Fails => read.map_ok(Some).boxed(),
            }
        });
        let mut home = std::pin::pin!(home.buffered(2));
        let mut number = 0;
        while let Some(item) = home.next().await {
            self.site.tally.phase(self.task, format!("takes {number} of {self}"));
            match item {
                Ok(None) => self.site.tally.uses_cancelled.one(),
                Err(error) => self.expect_error(number, &error)?,
                Ok(Some(batch)) => self.came_home(number, &batch)?,
            }
            number += 1;
            self.counts.taken.one();
            self.site.tally.progress.one();
            if Some(number) == self.left_after {
                self.site.tally.epochs_left.one();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn came_home(&self, number: u64, batch: &HostBatch) -> Result<(), Wrong> {
        let parcel = self.parcel(number, batch.meta::<Arc<Parcel>>())?;
        for (name, field) in parcel.named() {
            if !typed!(field, is_array, (self, batch.field(name)?, field)?) {
                return Err(
                    format!("{self}: batch {number}, \"{name}\" came home with other elements: {field:?}").into()
                );
            }
        }
        self.site.tally.verified.one();
        self.site.tally.bytes.add(parcel.bytes() as u64);
        Ok(())
    }

    /// The parcel that travelled along, which must be the one of this place.
    fn parcel(&self, number: u64, found: Option<&Arc<Parcel>>) -> Result<Arc<Parcel>, Wrong> {
        match found {
            Some(parcel) if parcel.number == number => Ok(parcel.clone()),
            other => Err(format!("{self}: in place {number} there is {:?}", other.map(|parcel| parcel.number)).into()),
        }
    }

    /// The error is the one that was raised for this place.
    pub(super) fn expect_error(&self, number: u64, error: &Error) -> Result<(), Wrong> {
        let is_ours = matches!(error.source_as(), Some(Raised::OnPurpose(raised)) if *raised == number);
        if is_ours && Fate::of(self.seed, number) == Fate::Fails {
            self.counts.seen.one();
            return Ok(());
        }
        Err(format!("{self}: in place {number} there is an error that nobody raised: {error}").into())
    }
}

fn is_array<T: Cell>(epoch: &Epoch, array: &HostArray, field: &Field) -> Result<bool> {
    let found = array.to_array::<T>()?;
    Ok(field.is(&epoch.site.bank, found.as_slice().unwrap_or_default(), Written::Nothing))
}
