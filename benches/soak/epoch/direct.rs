//! Transfers by hand: admission is awaited, given up and asked for at once, and a few are on their way.

use std::collections::VecDeque;
use std::time::Duration;

use inflight::{ComputeStream, Device, Error, HostBatch, Result, Transfer};
use tokio::time::timeout;

use super::super::work::Wrong;
use super::Epoch;

/// On their way at most.
const MOST: usize = 8;
/// For how long admission is awaited while there is something to be freed.
const PATIENCE: Duration = Duration::from_millis(20);

impl Epoch {
    /// Answers whether all of the source was sent.
    pub(super) async fn direct(&self, compute: &ComputeStream) -> Result<bool, Wrong> {
        let mut under_way = VecDeque::new();
        let (mut number, mut taken) = (0, 0);
        while number < self.length && std::time::Instant::now() < self.until {
            self.site.tally.phase(self.task, format!("makes {number} of {self}"));
            let item = self.item(number).await;
            self.counts.given.one();
            match item {
                Err(error) => under_way.push_back((number, Err(Error::source(error)))),
                Ok(batch) => loop {
                    self.site.tally.phase(self.task, format!("sends {number} of {self}"));
                    let patience = (!under_way.is_empty()).then_some(PATIENCE);
                    if let Some(transfer) = send(&self.site.device, batch.clone(), patience).await? {
                        under_way.push_back((number, Ok(transfer)));
                        break;
                    }
                    self.site.tally.admissions_cancelled.one();
                    self.take(&mut under_way, compute, &mut taken).await?;
                },
            }
            number += 1;
            if under_way.len() >= self.depth.min(MOST) {
                self.take(&mut under_way, compute, &mut taken).await?;
            }
            if self.left_after.is_some_and(|after| taken >= after) {
                self.site.tally.epochs_left.one();
                return Ok(false);
            }
        }
        while !under_way.is_empty() {
            self.take(&mut under_way, compute, &mut taken).await?;
        }
        Ok(true)
    }

    /// Takes the oldest.
    async fn take(
        &self,
        under_way: &mut VecDeque<(u64, Result<Transfer>)>,
        compute: &ComputeStream,
        taken: &mut u64,
    ) -> Result<(), Wrong> {
        let Some((number, transfer)) = under_way.pop_front() else { return Ok(()) };
        let item = match transfer {
            Ok(transfer) => self.follow(number, transfer).await,
            Err(error) => Err(error),
        };
        *taken += 1;
        self.taken(number, item, compute).await
    }
}

/// Sends a batch: at once, or when there is room; `None` if that takes too long.
async fn send(device: &Device, batch: HostBatch, patience: Option<Duration>) -> Result<Option<Transfer>> {
    let batch = match device.try_transfer(batch) {
        Ok(transfer) => return Ok(Some(transfer)),
        Err(error @ Error::Busy { .. }) => error.take_batch().ok_or(error)?,
        Err(error) => return Err(error),
    };
    match patience {
        None => device.transfer(batch).await.map(Some),
        Some(patience) => timeout(patience, device.transfer(batch)).await.map_or(Ok(None), |sent| sent.map(Some)),
    }
}
