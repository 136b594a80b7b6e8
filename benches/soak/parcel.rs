//! [`Parcel`]: a batch that is sent, which travels along as its metadata; and [`Fate`], what becomes of each.

use std::sync::Arc;
use std::time::Duration;

use inflight::{Error, HostBatch, Result};
use rand::Rng;

use super::bank::generator;
use super::field::Field;
use super::site::Site;

/// The largest batch.
const MOST: usize = 64 << 20;

/// The fields' names.
pub(crate) const NAMES: [&str; 4] = ["raw", "labels", "weights", "mask"];

/// A batch's place in its epoch, and its fields.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) number: u64,
    pub(crate) fields: Vec<Field>,
}

/// What becomes of a batch, known from its place alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    /// The source raises an error in its place.
    Fails,
    /// What would have it is dropped at once.
    Dropped,
    /// What would have it is dropped after so long, if it is not there by then.
    TimesOut(Duration),
}

/// What sources raise.
#[derive(Debug)]
pub(crate) enum Raised {
    /// For the batch of that place.
    OnPurpose(u64),
    /// The batch could not be made.
    ByDevice(Error),
}

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OnPurpose(number) => write!(f, "batch {number} can't be read, on purpose"),
            Self::ByDevice(error) => write!(f, "a batch can't be made: {error}"),
        }
    }
}

impl std::error::Error for Raised {}

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        Self::ByDevice(error)
    }
}

impl Fate {
    /// One in a hundred fails, five are cancelled.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut random = generator(seed, number, 1);
        match random.random_range(0..200) {
            0 | 1 => Self::Fails,
            2..=6 => Self::Dropped,
            7..=11 => Self::TimesOut(Duration::from_micros(random.random_range(0..3000))),
            _ => Self::Arrives,
        }
    }
}

impl Parcel {
    pub(crate) fn random(seed: u64, number: u64) -> Arc<Self> {
        let mut random = generator(seed, number, 2);
        let bytes = match random.random_range(0..400) {
            0..8 => 0,
            8 => MOST,
            _ => (MOST as f64).powf(random.random::<f64>()) as usize,
        };
        let count = random.random_range(1..=NAMES.len());
        let (mut left, mut fields) = (bytes, Vec::with_capacity(count));
        for place in 1..=count {
            let share = if place == count { left } else { random.random_range(0..=left) };
            left -= share;
            let may_be_pinned = !fields.iter().any(Field::is_pinned);
            fields.push(Field::random(&mut random, share, may_be_pinned));
        }
        Arc::new(Self { number, fields })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.fields.iter().map(Field::bytes).sum()
    }

    /// The names of its fields, and the fields.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &Field)> {
        NAMES.into_iter().zip(&self.fields)
    }

    /// The batch to send; with a byte that is another, if it is to be spoiled and can be.
    pub(crate) async fn make(self: Arc<Self>, site: &Site, is_spoiled: bool) -> Result<HostBatch> {
        let mut batch = HostBatch::new();
        for (name, field) in self.named() {
            batch = batch.with(name, field.make(&site.bank, &site.device, is_spoiled).await?);
        }
        Ok(batch.with_meta(self.clone()))
    }
}
