//! [`Plan`]: where each field lies in a batch's block, and which copies bring it there.
//!
//! The block is one image of the batch: fields in order, each at a multiple of 256 bytes. A part is a stretch of it that
//! is copied from one place: gathered into staging, or straight from page-locked memory. A group is one or more parts
//! that share an event, and so become ready together.

use smallvec::SmallVec;

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
    /// Copied straight from page-locked memory.
    Direct,
}

/// A stretch of the image, copied in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) way: Way,
    pub(crate) group: usize,
    /// The fields in it: one if direct.
    pub(crate) fields: std::ops::Range<usize>,
    /// Bytes of the image, from the first field's first to the last field's last.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Part {
    pub(crate) const fn bytes(&self) -> usize {
        self.end - self.start
    }
}

/// Which copies a batch needs.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Where each field begins in the image.
    pub(crate) offsets: SmallVec<[usize; 4]>,
    /// The group of each field; `None` for fields without bytes.
    pub(crate) groups: SmallVec<[Option<usize>; 4]>,
    pub(crate) parts: SmallVec<[Part; 2]>,
    pub(crate) group_count: usize,
    /// Bytes of the image.
    pub(crate) bytes: usize,
    /// Bytes of the fields, without padding.
    pub(crate) payload: usize,
    /// Whether the submitting call may do all of it.
    pub(crate) is_small: bool,
}

impl Plan {
    /// Plans `batch` for the device that calls itself `device`.
    pub(crate) fn of(batch: &HostBatch, device: u64) -> Result<Self> {
        if let Some(field) = batch.duplicate() {
            return Err(Error::DuplicateField { field: field.to_owned(), batch: Returned::default() });
        }
        let mut plan = Self {
            offsets: SmallVec::new(),
            groups: SmallVec::new(),
            parts: SmallVec::new(),
            group_count: 0,
            bytes: 0,
            payload: 0,
            is_small: true,
        };
        let mut gathered = false;
        for (index, (name, array)) in batch.fields().iter().enumerate() {
            let bytes = byte_len(array.shape(), array.dtype()).map_err(|error| error.of_field(name))?;
            let start = plan.bytes.next_multiple_of(ALIGN);
            let end = start.checked_add(bytes).filter(|end| *end <= MOST_BYTES).ok_or_else(|| too_large(batch))?;
            plan.offsets.push(start);
            plan.payload += bytes;
            if bytes == 0 {
                plan.groups.push(None);
                continue;
            }
            plan.bytes = end;
            let direct = array.contiguous_bytes().is_some() && array.page_locked() == Some(device);
            gathered |= array.contiguous_bytes().is_none();
            plan.place(index, start, end, if direct { Way::Direct } else { Way::Staged });
        }
        let bound = if gathered { INLINE_GATHERED } else { INLINE };
        plan.is_small = plan.staged_bytes() <= bound && plan.parts.len() <= INLINE_PARTS;
        Ok(plan)
    }

    fn place(&mut self, field: usize, start: usize, end: usize, way: Way) {
        let full = self.group_count == MOST_GROUPS;
        if let Some(last) = self.parts.last_mut()
            && last.way == Way::Staged
            && way == Way::Staged
            && (full
                || (last.bytes() < SMALL && end - start < SMALL && end - last.start <= PACKED)
                || (last.fields.len() > 1 && end - start < SMALL && end - last.start <= PACKED))
        {
            last.end = end;
            last.fields.end = field + 1;
            self.groups.push(Some(last.group));
            return;
        }
        if !full {
            self.group_count += 1;
        }
        let group = self.group_count - 1;
        self.groups.push(Some(group));
        self.parts.push(Part { way, group, fields: field..field + 1, start, end });
    }

    /// Bytes that go through staging, padding between packed fields included.
    pub(crate) fn staged_bytes(&self) -> usize {
        self.parts.iter().filter(|part| part.way == Way::Staged).map(Part::bytes).sum()
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

    fn plan(sizes: &[usize]) -> Plan {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let fields = sizes.iter().zip(names).map(|(bytes, name)| (name, HostArray::from(vec![1_u8; *bytes])));
        Plan::of(&HostBatch::from_fields(fields), 1).unwrap()
    }

    #[test]
    fn small_neighbours_share_a_part_and_large_fields_have_their_own() {
        let plan = plan(&[512, 512, 1 << 20, 8, 8]);
        assert_eq!(plan.offsets.as_slice(), [0, 512, 1024, (1 << 20) + 1024, (1 << 20) + 1280]);
        assert_eq!(plan.groups.as_slice(), [Some(0), Some(0), Some(1), Some(2), Some(2)]);
        assert_eq!(plan.parts.len(), 3);
        assert_eq!(plan.bytes, (1 << 20) + 1288);
        assert_eq!(plan.payload, (1 << 20) + 1040);
        assert!(!plan.is_small);
    }

    #[test]
    fn empty_fields_need_no_copy() {
        let plan = plan(&[0, 16, 0]);
        assert_eq!(plan.groups.as_slice(), [None, Some(0), None]);
        assert_eq!((plan.parts.len(), plan.bytes, plan.is_small), (1, 16, true));
        assert_eq!(self::plan(&[0]).bytes, 0);
        assert_eq!(self::plan(&[]).group_count, 0);
    }

    #[test]
    fn two_hundred_large_fields_make_no_more_than_sixty_four_groups() {
        let fields = (0..200).map(|index| (index.to_string(), HostArray::zeros::<u8>(vec![SMALL]).unwrap()));
        let plan = Plan::of(&HostBatch::from_fields(fields), 1).unwrap();
        assert_eq!(plan.group_count, MOST_GROUPS);
        assert!(plan.groups.iter().all(|group| group.is_some_and(|group| group < MOST_GROUPS)));
        assert_eq!(plan.parts.iter().map(|part| part.fields.len()).sum::<usize>(), 200);
    }

    #[test]
    fn two_fields_of_one_name_are_refused() {
        let batch = HostBatch::new().with("a", 1_u8).with("a", 2_u8);
        assert!(matches!(Plan::of(&batch, 1), Err(Error::DuplicateField { field, .. }) if field == "a"));
    }
}
