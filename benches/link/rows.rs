//! Shuffled images from pageable memory: rows of a large array by their indices. Other jobs send the same images.

use inflight::{Device, HostArray};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::check::check;
use super::compute::Compute;
use super::job::Job;
use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig};

/// Shape of an image.
pub(crate) const IMAGE: [usize; 3] = [3, 224, 224];
const IMAGE_BYTES: usize = IMAGE[0] * IMAGE[1] * IMAGE[2];

/// How often a run sends all of them: what a pipeline takes to begin is to weigh as little as in training.
pub(crate) const EPOCHS: usize = 4;

/// Many images, and the order in which they are sent.
pub(crate) struct Images {
    pub(crate) array: HostArray,
    order: Vec<usize>,
    /// Images of a batch.
    pub(crate) batch: usize,
}

impl Images {
    pub(crate) fn new(rig: &Rig) -> Outcome<Self> {
        let pool = rig.bytes();
        let count = pool.len() / IMAGE_BYTES;
        Ok(Self::of(rig, pool.array(0, &[count, IMAGE[0], IMAGE[1], IMAGE[2]])?))
    }

    /// An array whose bytes are those of the pool.
    pub(crate) fn of(rig: &Rig, array: HostArray) -> Self {
        let mut order: Vec<usize> = (0..array.shape()[0]).collect();
        order.shuffle(&mut StdRng::seed_from_u64(1));
        Self { array, order, batch: rig.size(256, 32) }
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes of a batch.
    pub(crate) const fn bytes(&self) -> usize {
        self.batch * IMAGE_BYTES
    }

    /// Shape of a batch.
    pub(crate) const fn shape(&self) -> [usize; 4] {
        [self.batch, IMAGE[0], IMAGE[1], IMAGE[2]]
    }

    /// Where an element of a batch lies behind its first.
    pub(crate) fn place(&self, at: &[usize]) -> usize {
        at.iter().zip(self.shape()).fold(0, |place, (index, len)| place * len + index)
    }

    fn indices(&self, number: usize) -> &[usize] {
        let first = number * self.batch % self.len();
        &self.order[first..first + self.batch]
    }

    /// A batch of shuffled images.
    pub(crate) fn shuffled(&self, number: usize) -> inflight::Result<HostArray> {
        self.array.select_rows(self.indices(number))
    }

    /// What an element of a shuffled batch is.
    pub(crate) fn expected(&self, number: usize, at: &[usize]) -> u8 {
        let row = self.indices(number)[at[0]];
        u8::at(row * IMAGE_BYTES + self.place(&[0, at[1], at[2], at[3]]))
    }

    /// Sends all, shuffled.
    pub(crate) fn measure(
        &self,
        rig: &Rig,
        (name, device): (&str, &Device),
        beside: Option<&Compute>,
        reaches: &[Reach],
    ) -> Outcome<()> {
        let count = EPOCHS * self.len() / self.batch;
        let job = Job { beside, reaches, ..Job::new(name, device, count, self.bytes()) };
        job.run(rig, &|number| self.shuffled(number), |last| {
            check(rig, last, &self.shape(), |at| self.expected(count - 1, at))
        })
    }
}

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let images = Images::new(rig)?;
    rig.title(&format!("shuffled batches of {} × {IMAGE:?} u8 from pageable memory", images.batch));
    let device = rig.device_with(1 << 30)?;
    images.measure(rig, ("rows", &device), None, &[Reach::OfLink(0.90)])
}
