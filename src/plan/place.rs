//! Where a plan's fields lie in the image, and which stretches of it are copied: small neighbours together.

use super::rows::Rows;
use super::{ALIGN, FieldPlan, MOST_BYTES, MOST_GROUPS, PACKED, Part, Plan, SMALL, Terms, Way};
use crate::HostArray;
use crate::batch::HostBatch;

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

impl Plan {
    /// The next `bytes` of the image: where they begin and end.
    pub(super) fn room(&self, bytes: usize) -> Option<(usize, usize)> {
        let start = self.bytes.next_multiple_of(ALIGN);
        let end = start.checked_add(bytes).filter(|end| *end <= MOST_BYTES)?;
        Some((start, if bytes == 0 { self.bytes } else { end }))
    }

    /// Finds scratch memory for what is rearranged, and cuts all into parts. `None` if no address space holds it.
    pub(super) fn lay_out(&mut self, batch: &HostBatch, terms: &Terms) -> Option<()> {
        for index in 0..self.fields.len() {
            let FieldPlan { offset, bytes, ref route, .. } = self.fields[index];
            if bytes == 0 {
                continue;
            }
            let (way, in_place) = (route.way, self.fields[index].is_in_place());
            let (start, end) = if in_place {
                (offset, offset + bytes)
            } else {
                let sent_bytes = self.sent(batch, index).bytes();
                let (start, end) = self.room(sent_bytes)?;
                self.bytes = end;
                let field = &mut self.fields[index];
                (field.sent_at, field.sent_bytes) = (start, sent_bytes);
                (start, end)
            };
            let chunk = match way {
                Way::Staged | Way::Written => chunk_of(self.sent(batch, index), terms),
                Way::Direct => end - start,
                Way::Rows => Rows::of(self.sent(batch, index)).chunk_bytes(),
                Way::Fetched => Rows::of(self.sent(batch, index)).launch_bytes(),
            };
            self.place(index, Part { way, group: 0, fields: index..index + 1, start, end, chunk }, in_place);
        }
        Some(())
    }

    fn place(&mut self, field: usize, part: Part, in_place: bool) {
        let full = self.group_count == MOST_GROUPS;
        let bytes = part.bytes();
        if let Some(last) = self.parts.last_mut()
            && last.way == part.way
            && part.way.is_gathered()
            && in_place
            && self.fields[last.fields.start].is_in_place()
            && (full
                || (last.bytes() < SMALL && bytes < SMALL && part.end - last.start <= PACKED)
                || (last.fields.len() > 1 && bytes < SMALL && part.end - last.start <= PACKED))
        {
            last.end = part.end;
            last.fields.end = field + 1;
            self.fields[field].group = Some(last.group);
            return;
        }
        if !full {
            self.group_count += 1;
        }
        let group = self.group_count - 1;
        self.fields[field].group = Some(group);
        self.parts.push(Part { group, ..part });
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array, s};

    use super::{HostArray, Terms, chunk_of};
    use crate::Relayout;
    use crate::backend::Rearranges;
    use crate::plan::Fetches;

    #[test]
    fn what_takes_longer_a_byte_goes_in_smaller_chunks() {
        let chunk_bytes = 4 << 20;
        let terms = Terms {
            device: 1,
            rearranges: Rearranges::Not,
            relayout: Relayout::Auto,
            chunk_bytes,
            is_in_reach: false,
            fetches: Fetches::Nothing,
        };
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
