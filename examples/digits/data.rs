//! The digits: loaded from NumPy's format, split and shuffled by a seed.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use inflight::HostArray;
use ndarray::{ArcArray1, ArcArray2, Array1, Array2, Array3};
use ndarray_npy::NpzReader;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Pixels of an image.
pub(crate) const PIXELS: usize = 64;
/// Bytes of a row as it is sent: pixels as `f32`, and a label.
pub(crate) const ROW_BYTES: usize = PIXELS * 4 + 1;

/// All images and labels, and which rows are for training and which for the test.
pub(crate) struct Digits {
    /// Pixels from 0 to 16, a row an image.
    images: ArcArray2<u8>,
    labels: ArcArray1<u8>,
    pub(crate) train: Vec<usize>,
    pub(crate) test: Vec<usize>,
    seed: u64,
}

impl Digits {
    /// Loads the file, or the same from where the crate lies, and keeps a fifth of the rows for the test.
    pub(crate) fn load(path: &str, seed: u64) -> Result<Self, Box<dyn Error>> {
        let path = Path::new(path);
        let path = if path.exists() { path.to_owned() } else { Path::new(env!("CARGO_MANIFEST_DIR")).join(path) };
        let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut archive = NpzReader::new(file)?;
        let images: Array3<u8> = archive.by_name("images")?;
        let labels: Array1<u8> = archive.by_name("labels")?;
        let count = images.dim().0;
        if count != labels.len() || images.len() != count * PIXELS {
            return Err(format!("images of shape {:?} and {} labels don't fit", images.shape(), labels.len()).into());
        }
        let images: Array2<u8> = images.into_shape_with_order((count, PIXELS))?;
        let mut rows: Vec<_> = (0..count).collect();
        rows.shuffle(&mut StdRng::seed_from_u64(seed));
        let test = rows.split_off(count - count / 5);
        Ok(Self { images: images.into_shared(), labels: labels.into_shared(), train: rows, test, seed })
    }

    /// Gives every row a label drawn anew: what is left to learn is nothing.
    pub(crate) fn permute_labels(&mut self) {
        let mut random = StdRng::seed_from_u64(self.seed ^ 0x5eed);
        self.labels.mapv_inplace(|_| random.random_range(0..10));
    }

    /// Images and labels, shared and not copied.
    pub(crate) fn arrays(&self) -> (HostArray, HostArray) {
        (self.images.clone().into(), self.labels.clone().into())
    }

    /// The training rows in the order of an epoch.
    pub(crate) fn shuffled(&self, epoch: usize) -> Vec<usize> {
        let mut order = self.train.clone();
        order.shuffle(&mut StdRng::seed_from_u64(self.seed.wrapping_add(1 + epoch as u64)));
        order
    }
}
