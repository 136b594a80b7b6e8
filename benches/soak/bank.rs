//! The bytes that are sent: one large random piece, of which every field is a window, so that what arrives can be compared.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// Larger than the largest batch, so that views that skip rows find enough.
const BYTES: usize = 96 << 20;

/// The random bytes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bank(Arc<Vec<u8>>);

/// A part of the bank, sent without a copy of it being made.
pub(crate) struct Window {
    bank: Bank,
    offset: usize,
    bytes: usize,
}

impl Bank {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = vec![0; BYTES];
        StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
        Self(Arc::new(bytes))
    }

    pub(crate) fn bytes(&self, offset: usize, bytes: usize) -> &[u8] {
        &self.0[offset..][..bytes]
    }

    pub(crate) fn window(&self, offset: usize, bytes: usize) -> Window {
        Window { bank: self.clone(), offset, bytes }
    }

    /// The last offset at which that many bytes begin; `None` if there are not so many.
    pub(crate) fn last_offset(bytes: usize) -> Option<usize> {
        BYTES.checked_sub(bytes)
    }
}

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        self.bank.bytes(self.offset, self.bytes)
    }
}

/// A generator for one purpose of one place, the same in every run of a seed.
pub(crate) fn generator(seed: u64, place: u64, purpose: u64) -> StdRng {
    StdRng::seed_from_u64(
        seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03),
    )
}
