//! One slab: finds the way in which its elements are copied, as they are stored or converted.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

use std::cmp::Reverse;

use super::ahead::LINE;
use super::axes::{Axes, Axis, Hop, Slab, each, slabs};
use super::block::by_size;
use super::convert::Converter;
use super::copy::{Walk, with_run};
use super::stretch::stretches;
use super::tile::{self, Sheet, copy as copy_sheet};

/// Bytes of elements that are held, as they are stored, before they are converted: well inside the innermost cache.
const HELD: usize = 16 << 10;
/// Elements of a run that is worth a call of its own to be converted.
const RUN: usize = 32;

/// How the elements of a slab lie.
enum Way {
    /// One behind the other along the last axis.
    Runs,
    /// Nearer along this axis than along the last.
    Tiles(usize),
    /// Apart along the last axis, and no nearer along another.
    Stretches,
}

fn way(axes: &[Axis<'_>], size: usize) -> Way {
    let Some((last, outer)) = axes.split_last() else { return Way::Stretches };
    if matches!(last.hop, Hop::Even(stride) if stride == size.cast_signed()) {
        return Way::Runs;
    }
    let strides = outer.iter().enumerate().filter_map(|(place, axis)| match axis.hop {
        Hop::Even(stride) if stride != 0 => Some((stride.unsigned_abs(), place, stride)),
        _ => None,
    });
    match strides.min() {
        Some((_, place, near)) if tile::is_farther(last, near, size) => Way::Tiles(place),
        _ => Way::Stretches,
    }
}

/// Copies a slab of elements of `size` bytes as they are stored.
///
/// # Safety
///
/// Its elements are readable, and `dst` has room for them.
pub(super) unsafe fn copy(slab: &Slab<'_>, size: usize, dst: *mut u8) {
    let (mut axes, mut size) = (slab.axes.clone(), size);
    widen(&mut axes, &mut size);
    match way(&axes, size) {
        Way::Runs => {
            let last = axes.pop().map_or(1, |axis| axis.len);
            let runs = Runs { axes: &axes, src: slab.src, dst, size };
            // SAFETY: the caller's contract, for each run.
            unsafe { with_run(last * size, runs) };
        }
        Way::Tiles(place) => sheets(&axes, place, slab.src, dst, size, |sheet| {
            // SAFETY: the caller's contract, for a part.
            by_size!(size, copy_sheet(sheet));
        }),
        // SAFETY: the caller's contract.
        Way::Stretches => by_size!(size, stretches(&axes, slab.src, dst)),
    }
}

/// Takes a last axis of few bytes for one larger element.
fn widen(axes: &mut Axes<'_>, size: &mut usize) {
    if let Some(last) = axes.last()
        && matches!(last.hop, Hop::Even(stride) if stride == size.cast_signed())
        && matches!(last.len * *size, 2 | 4 | 8)
    {
        let len = last.len;
        axes.pop();
        axes.iter_mut().for_each(|axis| axis.pitch /= len);
        *size *= len;
    }
}

/// The runs of a slab, without their axis.
struct Runs<'a> {
    axes: &'a [Axis<'a>],
    src: *const u8,
    dst: *mut u8,
    size: usize,
}

impl Walk for Runs<'_> {
    #[inline]
    fn walk(self, mut run: impl FnMut(*const u8, *mut u8)) {
        each(self.axes, self.src, self.dst, self.size, &mut run);
    }
}

/// Calls `visit` with each sheet of the last axis and that at `place`. `size` is that of the destination's elements.
fn sheets<'a>(
    axes: &[Axis<'a>],
    place: usize,
    src: *const u8,
    dst: *mut u8,
    size: usize,
    mut visit: impl FnMut(Sheet<'a>),
) {
    let mut outer: Axes<'a> = axes.into();
    let Some(last) = outer.pop() else { return };
    let near = outer.remove(place);
    let Hop::Even(stride) = near.hop else { return };
    // Any order will do; this one stays in memory that was just used.
    outer.sort_by_key(|axis| Reverse(axis.at(1).unsigned_abs()));
    let pitch = near.pitch.wrapping_mul(size).cast_signed();
    each(&outer, src, dst, size, &mut |src, dst| {
        visit(Sheet { src, near_len: near.len, near: stride, last, dst, pitch });
    });
}

/// Copies a slab and converts its elements.
///
/// # Safety
///
/// Its elements are readable and of the type that `converter` begins with, and `dst` has room for what they become.
pub(super) unsafe fn convert(slab: &Slab<'_>, converter: &Converter, dst: *mut u8) {
    let (axes, out) = (&slab.axes, converter.out());
    match (way(axes, converter.stored()), axes.split_last()) {
        (Way::Runs, Some((last, outer))) if outer.is_empty() || last.len >= RUN => {
            each(outer, slab.src, dst, out, &mut |src, dst| {
                // SAFETY: the caller's contract, for one run.
                unsafe { converter.run_ahead(src, dst, last.len) };
            });
        }
        (Way::Tiles(place), _) => sheets(axes, place, slab.src, dst, out, |sheet| {
            // SAFETY: the caller's contract, for a part.
            unsafe { convert_sheet(&sheet, converter) };
        }),
        // SAFETY: the caller's contract.
        _ => unsafe { convert_pieces(slab, converter, dst) },
    }
}

/// Copies pieces of a slab into a buffer, from which they are converted.
///
/// # Safety
///
/// As for `convert`.
unsafe fn convert_pieces(slab: &Slab<'_>, converter: &Converter, dst: *mut u8) {
    let mut held = [std::mem::MaybeUninit::<u64>::uninit(); HELD / 8];
    let held: *mut u8 = held.as_mut_ptr().cast();
    let (stored, out) = (converter.stored(), converter.out());
    let piece = HELD / stored;
    for start in (0..slab.len).step_by(piece) {
        let end = slab.len.min(start + piece);
        slabs(&slab.axes, slab.src, start..end, |part| {
            // SAFETY: the caller's contract, for some of the elements; the buffer has room for a piece.
            unsafe { copy(part, stored, held.wrapping_add(part.first * stored)) };
        });
        // SAFETY: the buffer holds the piece, and `dst` has room for the slab.
        unsafe { converter.run(held, dst.wrapping_add(start * out), end - start) };
    }
}

/// Copies parts of a sheet into a buffer, in the order that they have there, from which they are converted.
///
/// # Safety
///
/// As for `convert`.
unsafe fn convert_sheet(sheet: &Sheet<'_>, converter: &Converter) {
    let mut held = [std::mem::MaybeUninit::<u64>::uninit(); HELD / 8];
    let held: *mut u8 = held.as_mut_ptr().cast();
    let (stored, out) = (converter.stored(), converter.out());
    // As many indices of the last axis as leave room for a line of the near one.
    let width = sheet.last.len.min(HELD / LINE);
    let height = HELD / stored / width;
    for last in (0..sheet.last.len).step_by(width) {
        let width = width.min(sheet.last.len - last);
        for near in (0..sheet.near_len).step_by(height) {
            let height = height.min(sheet.near_len - near);
            let part = sheet.part(out, (near, height), (last, width));
            let pitch = (width * stored).cast_signed();
            let part_held = Sheet { dst: held, pitch, ..part };
            // SAFETY: the caller's contract, for a part; the buffer has room for it.
            by_size!(stored, copy_sheet(part_held));
            if part.pitch == (width * out).cast_signed() {
                // SAFETY: the buffer holds the part, and its rows follow each other in the destination as well.
                unsafe { converter.run(held, part.dst, width * height) };
                continue;
            }
            for row in 0..height {
                let to = part.dst.wrapping_offset(row.cast_signed() * part.pitch);
                // SAFETY: the buffer holds the row, and the destination has room for it.
                unsafe { converter.run(held.wrapping_add(row * width * stored), to, width) };
            }
        }
    }
}
