//! Normalizes images: a table of each channel's 256 values is exact, and all the arithmetic there is.
#![expect(unsafe_code, reason = "buffers are read and written as elements of a type known at run time")]

use crate::batch::Normalization;

/// The tables of all channels, and which of them an element takes.
pub(super) struct Tables {
    tables: Vec<[u32; 256]>,
    /// Elements from one index of the channels' axis to the next.
    inner: usize,
    size: usize,
}

impl Tables {
    /// For an array of that shape.
    pub(super) fn new(normalization: &Normalization, shape: &[usize]) -> Self {
        let tables = (0..normalization.mean.len()).map(|channel| normalization.table(channel)).collect();
        let inner = normalization.axis.map_or(1, |axis| shape[axis + 1..].iter().product());
        Self { tables, inner, size: normalization.dtype.size() }
    }

    /// Normalizes `count` elements, the first of which is element `first` of the array.
    pub(super) fn apply(&self, first: usize, from: &[u64], to: &mut [u64], count: usize) {
        let count = count.min(size_of_val(from)).min(size_of_val(to) / self.size);
        // SAFETY: the buffer holds more bytes than `count`, and any bytes are a value of `u8`.
        let from = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<u8>(), count) };
        let values = from.iter().enumerate().map(|(place, byte)| {
            let channel = (first + place) / self.inner % self.tables.len();
            self.tables[channel][usize::from(*byte)]
        });
        if self.size == 4 {
            // SAFETY: the buffer has room for `count` elements, and is aligned for larger ones.
            let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u32>(), count) };
            to.iter_mut().zip(values).for_each(|(to, value)| *to = value);
        } else {
            // SAFETY: as above.
            let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u16>(), count) };
            // Tables of two-byte types hold no more than 16 bits.
            to.iter_mut().zip(values).for_each(|(to, value)| *to = value as u16);
        }
    }
}
