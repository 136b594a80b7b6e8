//! [`Layout`]: all of a plan but the arrays: where each field lies, and what is copied how.

use smallvec::SmallVec;

use super::explain::{Explanation, Told};
use super::{Part, Terms, Way};
use crate::HostArray;
use crate::batch::{Dims, HostBatch, Name};
use crate::dtype::Dtype;

/// Where a field lies on the device and as what, and how it gets there.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) dtype: Dtype,
    pub(crate) dims: Dims,
    /// Where it begins in the image.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Where what is sent of it begins: elsewhere if it is rearranged on the device.
    pub(crate) sent_at: usize,
    /// `None` for a field without bytes: it is there at once.
    pub(crate) group: Option<usize>,
    /// Which way it goes, and why.
    pub(crate) told: Told,
}

/// How a batch lies on the device, and which copies bring it there. Batches alike share one.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) names: SmallVec<[Name; 4]>,
    pub(crate) fields: SmallVec<[Field; 4]>,
    pub(crate) parts: SmallVec<[Part; 2]>,
    pub(crate) group_count: usize,
    /// Bytes of the image, scratch memory included.
    pub(crate) bytes: usize,
    /// Bytes of the fields, without padding.
    pub(crate) payload: usize,
    /// Whether the submitting call may do all of it.
    pub(crate) is_small: bool,
    /// The terms that it was made on, where shapes and types of the arrays decide all the rest: they are contiguous.
    pub(super) serves_on: Option<Terms>,
}

impl Layout {
    /// Whether it is what would be planned for this batch too.
    pub(super) fn serves(&self, batch: &HostBatch, terms: &Terms) -> bool {
        let fields = batch.fields();
        self.serves_on.as_ref() == Some(terms)
            && fields.len() == self.fields.len()
            && fields
                .iter()
                .zip(&self.names)
                .zip(&self.fields)
                .all(|(((given, array), name), field)| given == name && field.is_like(array, terms.device))
    }

    /// Whether something is rearranged on the device.
    pub(crate) fn has_scratch(&self) -> bool {
        !self.fields.iter().all(Field::is_in_place)
    }

    /// Bytes that the host gathers, padding between packed fields included.
    pub(super) fn gathered_bytes(&self) -> usize {
        self.parts.iter().filter(|part| part.way.is_gathered()).map(Part::bytes).sum()
    }

    /// What becomes of some fields.
    pub(crate) fn explain(&self, places: impl Iterator<Item = usize>) -> Explanation {
        let fields = places.map(|place| self.fields[place].told.of(&self.names[place])).collect();
        Explanation { fields, device_bytes: self.bytes }
    }
}

impl Field {
    /// Whether it is sent to where it is to lie.
    pub(crate) const fn is_in_place(&self) -> bool {
        !self.told.is_rearranged
    }

    /// Whether a contiguous array takes the same way to the same place as the one that this was made for.
    fn is_like(&self, array: &HostArray, device: u64) -> bool {
        let is_direct = self.told.way == Way::Direct;
        array.dtype() == self.dtype
            && array.shape() == self.dims.shape.as_slice()
            && (self.bytes == 0 || (array.page_locked() == Some(device)) == is_direct)
            && array.is_contiguous()
    }
}
