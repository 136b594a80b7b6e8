//! [`Plan`]: where each field lies in a batch's block, and which copies bring it there. All of it but the arrays is a
//! [`Layout`], which batches alike share.
//!
//! The block is one image of the batch: fields in order, each at a multiple of 256 bytes; behind them scratch memory for
//! what is rearranged on the device. A part is a stretch of it that is copied from one place: gathered into staging, or
//! straight from page-locked memory. A group is one or more parts that share an event, and so become ready together.
//!
//! `route.rs` decides for each field, with `order.rs` (how its memory is ordered) and `rows.rs` (which copies rows need);
//! `place.rs` says where each lies and what is copied together; `layout.rs` is what comes of it; `explain.rs` tells it.

mod explain;
mod layout;
mod order;
mod place;
mod relayout;
mod route;
mod rows;

use std::sync::Arc;

pub use explain::{Explanation, FieldExplanation, Route};
pub(crate) use layout::{Field, Layout};
use place::Draft;
pub use relayout::Relayout;
pub(crate) use relayout::{Fetches, Terms};
pub(crate) use route::Rearranged;
use route::{Refused, Special};
pub(crate) use rows::{Rows, operations};

use crate::HostArray;
use crate::batch::HostBatch;
use crate::error::{Error, Result, Returned};
use crate::staging::pinned::byte_len;

/// Fields begin at multiples of this many bytes.
pub(crate) const ALIGN: usize = 256;
/// Neighbours below this many bytes are copied together.
const SMALL: usize = 64 << 10;
/// No group of small neighbours grows beyond this many bytes.
const PACKED: usize = 256 << 10;
/// No address space holds more.
const MOST_BYTES: usize = isize::MAX as usize;
/// Groups a batch has at most: a lease keeps one bit for each.
pub(crate) const MOST_GROUPS: usize = 64;
/// Bytes that are staged where the batch is submitted if they are contiguous: handing over to a thread costs more.
const INLINE: usize = 64 << 10;
/// The same for what must be gathered piece by piece.
const INLINE_GATHERED: usize = 16 << 10;
/// Parts that are enqueued where the batch is submitted.
const INLINE_PARTS: usize = 8;

/// How the bytes of a part get into the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Gathered into staging, then copied.
    Staged,
    /// Gathered into the block itself: the device's memory is the host's.
    Written,
    /// Copied straight from page-locked memory.
    Direct,
    /// Copied straight from page-locked memory, row by row.
    Rows,
    /// The same by a kernel.
    Fetched,
}

impl Way {
    /// Whether the host gathers it, chunk by chunk.
    pub(crate) const fn is_gathered(self) -> bool {
        matches!(self, Self::Staged | Self::Written)
    }
}

/// A stretch of the image, copied in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) way: Way,
    pub(crate) group: usize,
    /// The fields in it: one if direct or rearranged.
    pub(crate) fields: std::ops::Range<usize>,
    /// Bytes of the image, from the first field's first to the last field's last.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Bytes that are copied at once: a chunk of staging, some rows, or all.
    pub(crate) chunk: usize,
}

impl Part {
    pub(crate) const fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// Whether one call of a driver brings it, once it is staged if it has to be.
    const fn is_one_call(&self) -> bool {
        match self.way {
            Way::Staged | Way::Written | Way::Direct => true,
            Way::Fetched => self.bytes() <= self.chunk,
            Way::Rows => false,
        }
    }
}

/// Which copies a batch needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) layout: Arc<Layout>,
    /// Fields that are sent in another way than they are given; none, or one for each.
    pub(crate) special: Vec<Option<Box<Special>>>,
}

impl Plan {
    /// Plans `batch` on a device's terms, as an earlier one like it if `last` serves both.
    pub(crate) fn of(batch: &HostBatch, terms: &Terms, last: Option<&Arc<Layout>>) -> Result<Self> {
        if let Some(layout) = last.filter(|last| last.serves(batch, terms)) {
            return Ok(Self { layout: layout.clone(), special: Vec::new() });
        }
        if let Some(field) = batch.duplicate() {
            return Err(Error::DuplicateField { field: field.to_owned(), batch: Returned::default() });
        }
        let mut draft = Draft::default();
        for (name, array) in batch.fields() {
            let bytes = byte_len(array.shape(), array.dtype()).map_err(|error| error.of_field(name))?;
            let route = draft.route(array, bytes, terms).map_err(|refused| refused.of_field(name))?;
            draft.add(name, array, bytes, route).ok_or_else(|| too_large(batch))?;
        }
        draft.lay_out(batch, terms).ok_or_else(|| too_large(batch))?;
        Ok(draft.finish(terms))
    }

    /// The array that is sent for a field.
    pub(crate) fn sent<'a>(&'a self, batch: &'a HostBatch, field: usize) -> &'a HostArray {
        sent(&self.special, batch, field)
    }

    /// What the device does with a part once it is there.
    pub(crate) fn rearranged(&self, part: &Part) -> Option<(&Field, &Rearranged)> {
        let field = part.fields.start;
        Some((&self.layout.fields[field], self.special.get(field)?.as_ref()?.rearranged.as_ref()?))
    }
}

/// The array that is sent for a field, given those that are sent in another way.
fn sent<'a>(special: &'a [Option<Box<Special>>], batch: &'a HostBatch, field: usize) -> &'a HostArray {
    let special = special.get(field).and_then(Option::as_ref);
    special.map_or(&batch.fields()[field].1, |special| &special.sent)
}

impl Refused {
    fn of_field(self, field: &str) -> Error {
        let reason = match self {
            Self::Forbidden => "its memory is in another order, and Relayout::Forbid keeps the host from changing it",
            Self::NoKernels => "Relayout::Device asks for a kernel, and the device has none",
        };
        Error::Relayout { field: field.to_owned(), reason, batch: Returned::default() }
    }
}

/// The error for fields that are too large together.
fn too_large(batch: &HostBatch) -> Error {
    Error::BatchTooLarge { bytes: batch.bytes(), limit: MOST_BYTES, batch: Returned::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostArray;

    fn offsets(plan: &Plan) -> Vec<usize> {
        plan.layout.fields.iter().map(|field| field.offset).collect()
    }

    fn groups(plan: &Plan) -> Vec<Option<usize>> {
        plan.layout.fields.iter().map(|field| field.group).collect()
    }

    fn plan(sizes: &[usize]) -> Plan {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let fields = sizes.iter().zip(names).map(|(bytes, name)| (name, HostArray::from(vec![1_u8; *bytes])));
        Plan::of(&HostBatch::from_fields(fields), &Terms::of_a_gpu(), None).unwrap()
    }

    #[test]
    fn small_neighbours_share_a_part_and_large_fields_have_their_own() {
        let plan = plan(&[512, 512, 1 << 20, 8, 8]);
        assert_eq!(offsets(&plan), [0, 512, 1024, (1 << 20) + 1024, (1 << 20) + 1280]);
        assert_eq!(groups(&plan), [Some(0), Some(0), Some(1), Some(2), Some(2)]);
        let layout = plan.layout;
        assert_eq!((layout.parts.len(), layout.bytes, layout.payload), (3, (1 << 20) + 1288, (1 << 20) + 1040));
        assert!(!layout.is_small);
    }

    #[test]
    fn empty_fields_need_no_copy() {
        let plan = plan(&[0, 16, 0]);
        assert_eq!(groups(&plan), [None, Some(0), None]);
        let layout = plan.layout;
        assert_eq!((layout.parts.len(), layout.bytes, layout.is_small), (1, 16, true));
        assert_eq!(self::plan(&[0]).layout.bytes, 0);
        assert_eq!(self::plan(&[]).layout.group_count, 0);
    }

    #[test]
    fn two_hundred_large_fields_make_no_more_than_sixty_four_groups() {
        let fields = (0..200).map(|index| (index.to_string(), HostArray::zeros::<u8>(vec![SMALL]).unwrap()));
        let plan = Plan::of(&HostBatch::from_fields(fields), &Terms::of_a_gpu(), None).unwrap().layout;
        assert_eq!(plan.group_count, MOST_GROUPS);
        assert!(plan.fields.iter().all(|field| field.group.is_some_and(|group| group < MOST_GROUPS)));
        assert_eq!(plan.parts.iter().map(|part| part.fields.len()).sum::<usize>(), 200);
    }

    #[test]
    fn two_fields_of_one_name_are_refused() {
        let batch = HostBatch::new().with("a", 1_u8).with("a", 2_u8);
        assert!(
            matches!(Plan::of(&batch, &Terms::of_a_gpu(), None), Err(Error::DuplicateField { field, .. }) if field == "a")
        );
    }
}
