//! [`Draft`]: where a plan's fields lie in the image, and which stretches of it are copied: small neighbours together.

use std::sync::Arc;

use super::explain::{Reason, Told};
use super::layout::{Field, Layout};
use super::relayout::{Fetches, Terms};
use super::route::{FieldRoute, Refused, Special};
use super::rows::Rows;
use super::{
    ALIGN, INLINE, INLINE_GATHERED, INLINE_PARTS, MOST_BYTES, MOST_GROUPS, PACKED, Part, Plan, SMALL, Way, sent,
};
use crate::HostArray;
use crate::batch::{Dims, HostBatch, Name};

/// Runs of so many contiguous bytes are gathered like contiguous memory.
const LONG_RUN: usize = 16 << 10;

/// Bytes of an array that a staging thread gathers at once.
///
/// What takes longer a byte goes in smaller chunks: more threads are at it on fewer bytes, which stay in their caches. With 12
/// threads on an H200 machine crops of 64³ ran at 0.69, 0.87 and 0.83 of the link with a whole, a half and a quarter, 32³ at 0.59,
/// 0.84 and 0.80, f64 to f32 at 1.1, 1.3 and 1.6 by source bytes; rows of 150 KB at 0.93, 0.91 and 0.86.
pub(super) fn chunk_of(array: &HostArray, terms: &Terms) -> usize {
    let parts = match array.contiguous_bytes() {
        _ if array.bytes() <= terms.chunk_bytes / 4 => 1,
        Some(_) => 1,
        None if !array.changes().is_empty() => 4,
        None if Rows::of(array).width() >= LONG_RUN => 1,
        None => 2,
    };
    (terms.chunk_bytes / parts).next_multiple_of(ALIGN)
}

/// A plan that is being made.
#[derive(Debug, Default)]
pub(super) struct Draft {
    layout: Layout,
    special: Vec<Option<Box<Special>>>,
    /// Some array does not lie as it will on the device.
    has_pieces: bool,
}

impl Draft {
    pub(super) fn route(&self, array: &HostArray, bytes: usize, terms: &Terms) -> Result<FieldRoute, Refused> {
        if bytes == 0 {
            return Ok(FieldRoute { way: Way::Staged, reason: Reason::Empty, special: None });
        }
        // The last group may be that of many fields, whose event is one of the copy stream.
        let may = self.layout.fields.len() < MOST_GROUPS - 1;
        let fetches = if may { terms.fetches } else { Fetches::Nothing };
        let mut route = FieldRoute::of(array, &Terms { fetches, ..*terms }, may)?;
        if terms.is_in_reach && route.way == Way::Staged {
            route.way = Way::Written;
        }
        Ok(route)
    }

    /// Gives the next field its place. `None` if no address space holds it.
    pub(super) fn add(&mut self, name: &Name, array: &HostArray, bytes: usize, route: FieldRoute) -> Option<()> {
        let (offset, end) = self.room(bytes)?;
        let FieldRoute { way, reason, special } = route;
        self.has_pieces |= array.contiguous_bytes().is_none();
        let dims = match special.as_ref().and_then(|special| special.strides.as_ref()) {
            Some(strides) => Dims::strided(array.shape(), strides),
            None => Dims::c_order(array.shape()),
        };
        let is_rearranged = special.as_ref().is_some_and(|special| special.rearranged.is_some());
        let told = Told { way, reason, is_rearranged, pieces: 0, sent_bytes: bytes };
        let layout = &mut self.layout;
        if special.is_some() {
            self.special.resize_with(layout.fields.len(), || None);
            self.special.push(special);
        }
        layout.bytes = layout.bytes.max(end);
        layout.payload += bytes;
        layout.names.push(name.clone());
        layout.fields.push(Field { dtype: array.dtype(), dims, offset, bytes, sent_at: offset, group: None, told });
        Some(())
    }

    /// The next `bytes` of the image: where they begin and end.
    fn room(&self, bytes: usize) -> Option<(usize, usize)> {
        let start = self.layout.bytes.next_multiple_of(ALIGN);
        let end = start.checked_add(bytes).filter(|end| *end <= MOST_BYTES)?;
        Some((start, if bytes == 0 { self.layout.bytes } else { end }))
    }

    /// Finds scratch memory for what is rearranged, and cuts all into parts. `None` if no address space holds it.
    pub(super) fn lay_out(&mut self, batch: &HostBatch, terms: &Terms) -> Option<()> {
        for index in 0..self.layout.fields.len() {
            let Field { offset, bytes, ref told, .. } = self.layout.fields[index];
            if bytes == 0 {
                continue;
            }
            let (way, in_place) = (told.way, !told.is_rearranged);
            let (start, end) = if in_place {
                (offset, offset + bytes)
            } else {
                let sent_bytes = sent(&self.special, batch, index).bytes();
                let (start, end) = self.room(sent_bytes)?;
                self.layout.bytes = end;
                let field = &mut self.layout.fields[index];
                (field.sent_at, field.told.sent_bytes) = (start, sent_bytes);
                (start, end)
            };
            let sent = sent(&self.special, batch, index);
            let (chunk, pieces) = match way {
                Way::Staged | Way::Written => {
                    let (chunk, bytes) = (chunk_of(sent, terms), end - start);
                    // Small ones share a chunk with neighbours.
                    (chunk, if bytes <= PACKED.min(terms.chunk_bytes) { 1 } else { bytes.div_ceil(chunk) })
                }
                Way::Direct => (end - start, 1),
                Way::Rows => {
                    let rows = Rows::of(sent);
                    (rows.chunk_bytes(), rows.pieces)
                }
                Way::Fetched => {
                    let chunk = Rows::of(sent).launch_bytes();
                    (chunk, (end - start).div_ceil(chunk))
                }
            };
            self.layout.fields[index].told.pieces = pieces;
            self.place(index, Part { way, group: 0, fields: index..index + 1, start, end, chunk }, in_place);
        }
        Some(())
    }

    fn place(&mut self, field: usize, part: Part, in_place: bool) {
        let layout = &mut self.layout;
        let full = layout.group_count == MOST_GROUPS;
        let bytes = part.bytes();
        if let Some(last) = layout.parts.last_mut()
            && last.way == part.way
            && part.way.is_gathered()
            && in_place
            && layout.fields[last.fields.start].is_in_place()
            && (full
                || (last.bytes() < SMALL && bytes < SMALL && part.end - last.start <= PACKED)
                || (last.fields.len() > 1 && bytes < SMALL && part.end - last.start <= PACKED))
        {
            last.end = part.end;
            last.fields.end = field + 1;
            layout.fields[field].group = Some(last.group);
            return;
        }
        if !full {
            layout.group_count += 1;
        }
        let group = layout.group_count - 1;
        layout.fields[field].group = Some(group);
        layout.parts.push(Part { group, ..part });
    }

    /// The plan, now that each field has its place.
    pub(super) fn finish(self, terms: &Terms) -> Plan {
        let Self { mut layout, special, has_pieces } = self;
        let bound = if has_pieces { INLINE_GATHERED } else { INLINE };
        let is_simple = layout.parts.iter().all(Part::is_one_call) && !layout.has_scratch();
        layout.is_small = is_simple && layout.gathered_bytes() <= bound && layout.parts.len() <= INLINE_PARTS;
        layout.serves_on = (!has_pieces).then_some(*terms);
        Plan { layout: Arc::new(layout), special }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array, s};

    use super::{HostArray, Terms, chunk_of};

    #[test]
    fn what_takes_longer_a_byte_goes_in_smaller_chunks() {
        let terms = Terms::of_a_gpu();
        let chunk_bytes = terms.chunk_bytes;
        let chunk = |array: &HostArray| chunk_of(array, &terms);
        let array = HostArray::from(Array::<f32, _>::zeros([64, 256, 256]));
        assert_eq!(chunk(&array), chunk_bytes);
        assert_eq!(
            chunk(&array.select_rows((0..64).rev().collect::<Vec<_>>()).unwrap()),
            chunk_bytes,
            "rows of 256 KiB"
        );
        assert_eq!(chunk(&array.slice(s![.., .., 0..128]).unwrap()), chunk_bytes / 2, "rows of 512 bytes");
        assert_eq!(chunk(&array.permuted_axes([2, 1, 0]).unwrap()), chunk_bytes / 2);
        assert_eq!(chunk(&array.cast::<f64>()), chunk_bytes / 4);
        let small = HostArray::from(Array::<f32, _>::zeros([256, 1024]));
        assert_eq!(chunk(&small.permuted_axes([1, 0]).unwrap()), chunk_bytes, "it is one chunk anyway");
    }
}
