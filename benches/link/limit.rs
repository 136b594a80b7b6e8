//! [`Link`]: what a job on large arrays is held against, page-locked copies by the driver, or `memcpy` on the host.

use std::cell::RefCell;

use super::raw::Raw;
use super::rig::{Outcome, Rig, timed};

/// Bytes of a copy on a GPU: a batch of 256 images.
const COPY: usize = 38_535_168;
/// Copies of a measurement at most: more bytes take as much longer.
const COPIES: usize = 64;

/// The link alone.
pub(crate) enum Link {
    /// The driver's copies, four at a time.
    Raw(Raw),
    /// From one buffer to another.
    Memcpy(Vec<u8>, RefCell<Vec<u8>>),
}

impl Link {
    pub(crate) fn new(rig: &Rig) -> Outcome<Self> {
        let bytes = rig.size(COPY, COPY / 8);
        let link = match &rig.context {
            Some(context) => Self::Raw(Raw::new(context, bytes, 4)?),
            None => Self::Memcpy(vec![1; bytes], RefCell::new(vec![0; bytes])),
        };
        link.copies(4)?;
        Ok(link)
    }

    /// How long so many bytes take, in seconds.
    pub(crate) fn seconds(&self, bytes: usize) -> Outcome<f64> {
        let each = match self {
            Self::Raw(raw) => raw.bytes(),
            Self::Memcpy(from, _) => from.len(),
        };
        let count = bytes.div_ceil(each).clamp(4, COPIES);
        Ok(self.copies(count)? * bytes as f64 / (count * each) as f64)
    }

    fn copies(&self, count: usize) -> Outcome<f64> {
        match self {
            Self::Raw(raw) => raw.uploads(count),
            Self::Memcpy(from, to) => {
                let mut to = to.borrow_mut();
                let copies = || {
                    for _ in 0..count {
                        to.copy_from_slice(std::hint::black_box(from));
                        std::hint::black_box(&mut to);
                    }
                    Ok(())
                };
                Ok(timed(copies)?.0)
            }
        }
    }
}
