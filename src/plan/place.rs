//! Where a plan's fields lie in the image, and which stretches of it are copied: small neighbours together.

use super::rows::Rows;
use super::{ALIGN, FieldPlan, MOST_BYTES, MOST_GROUPS, PACKED, Part, Plan, SMALL, Terms, Way};
use crate::batch::HostBatch;

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
                Way::Staged | Way::Written => terms.chunk_bytes,
                Way::Direct => end - start,
                Way::Rows => Rows::of(self.sent(batch, index)).chunk_bytes(),
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
