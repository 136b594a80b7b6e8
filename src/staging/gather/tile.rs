//! Transposed parts of an array: the axis along which memory runs is not the last one. Both are walked in tiles, so that
//! a cache line that was read is used whole, and one that is written is written whole.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

use smallvec::SmallVec;

use super::ahead::{LINE, ask};
use super::axes::{Axis, Hop};
use super::block::{Bits, one};
use super::braid;

/// Elements in a line, of the smallest size.
const MOST: usize = LINE;
/// Bytes along the near axis that are read before the next rows are: enough for the processor to see a stream, and
/// few enough places to write at for the translation of their addresses to be remembered.
const STREAM: usize = 2048;

/// Two axes of an array: the near one, along which its memory runs, and the last one, along which the destination does.
#[derive(Clone, Copy)]
pub(super) struct Sheet<'a> {
    pub(super) src: *const u8,
    pub(super) near_len: usize,
    /// Bytes from one index of the near axis to the next.
    pub(super) near: isize,
    pub(super) last: Axis<'a>,
    pub(super) dst: *mut u8,
    /// Bytes of the destination from one index of the near axis to the next.
    pub(super) pitch: isize,
}

impl Sheet<'_> {
    /// The same with the near axis walked forwards through memory.
    fn forwards(self) -> Self {
        if self.near >= 0 {
            return self;
        }
        let end = self.near_len.cast_signed() - 1;
        Self {
            src: self.src.wrapping_offset(end * self.near),
            dst: self.dst.wrapping_offset(end * self.pitch),
            near: -self.near,
            pitch: -self.pitch,
            ..self
        }
    }

    /// Some of its indices: `near_len` from `near` on, `last_len` from `last` on.
    pub(super) fn part(&self, size: usize, (near, near_len): (usize, usize), (last, last_len): (usize, usize)) -> Self {
        let (moved, axis) = self.last.part(last..last + last_len);
        Self {
            src: self.src.wrapping_offset(near.cast_signed() * self.near + moved),
            near_len,
            last: axis,
            dst: self.dst.wrapping_offset(near.cast_signed() * self.pitch).wrapping_add(last * size),
            ..*self
        }
    }
}

/// Copies a sheet.
///
/// # Safety
///
/// Its elements are readable, and there is room for each of them.
pub(super) unsafe fn copy<T: Bits>(sheet: Sheet<'_>) {
    let sheet = sheet.forwards();
    // SAFETY: the caller's contract.
    if unsafe { braid::copy::<T>(&sheet) } {
        return;
    }
    let size = size_of::<T>();
    let line = LINE / size;
    let stream = STREAM / size;
    for near in (0..sheet.near_len).step_by(stream) {
        let near_len = stream.min(sheet.near_len - near);
        let part = |last: usize| {
            let len = line.min(sheet.last.len.saturating_sub(last));
            sheet.part(size, (near, near_len), (last.min(sheet.last.len), len))
        };
        for last in (0..sheet.last.len).step_by(line) {
            // SAFETY: the caller's contract, for a part.
            unsafe { rows::<T>(&part(last), &part(last + line)) };
        }
    }
}

/// The addresses of the rows of a sheet, of which a line of the destination has the elements.
fn places(sheet: &Sheet<'_>) -> SmallVec<[*const u8; MOST]> {
    (0..sheet.last.len).map(|index| sheet.src.wrapping_offset(sheet.last.at(index))).collect()
}

/// Copies a sheet with no more rows than a line of the destination has elements, and asks for those of the `next`.
///
/// # Safety
///
/// As for `copy`.
#[inline]
unsafe fn rows<T: Bits>(sheet: &Sheet<'_>, next: &Sheet<'_>) {
    let size = size_of::<T>();
    let (rows, next_rows) = (places(sheet), places(next));
    let blocks = if sheet.near == size.cast_signed() { sheet.near_len / T::SIDE * T::SIDE } else { 0 };
    let line = LINE / size;
    let every = LINE.div_ceil(sheet.near.unsigned_abs());
    for near in (0..sheet.near_len).step_by(line) {
        let end = sheet.near_len.min(near + line);
        for place in (near..end).step_by(every) {
            next_rows.iter().for_each(|row| ask(row.wrapping_offset(place.cast_signed() * sheet.near)));
        }
        for (group, rows) in rows.chunks(T::SIDE).enumerate() {
            let dst = sheet.dst.wrapping_add(group * T::SIDE * size);
            let whole = if rows.len() == T::SIDE { end.min(blocks).max(near) } else { near };
            for near in (near..whole).step_by(T::SIDE) {
                // SAFETY: a block of whole rows and columns of the sheet, by the caller's contract.
                unsafe { block::<T>(rows, sheet, near, dst) };
            }
            // SAFETY: as above, for what is left of these rows.
            unsafe { elements::<T>(rows, sheet, (whole, end), dst) };
        }
    }
}

/// Transposes a block from index `near` on.
///
/// # Safety
///
/// The rows have a whole block from there on, and the destination has room for it.
#[inline(always)]
unsafe fn block<T: Bits>(rows: &[*const u8], sheet: &Sheet<'_>, near: usize, dst: *mut u8) {
    let mut places = [std::ptr::null(); 16];
    for (place, row) in places[..T::SIDE].iter_mut().zip(rows) {
        *place = row.wrapping_add(near * size_of::<T>());
    }
    let dst = dst.wrapping_offset(near.cast_signed() * sheet.pitch);
    // SAFETY: the caller's contract.
    unsafe { T::transpose(&places[..T::SIDE], dst, sheet.pitch) };
}

/// Copies indices `near..end` of some rows one by one.
///
/// # Safety
///
/// As for `copy`.
#[inline]
unsafe fn elements<T: Bits>(rows: &[*const u8], sheet: &Sheet<'_>, (near, end): (usize, usize), dst: *mut u8) {
    for near in near..end {
        let from = near.cast_signed() * sheet.near;
        let mut dst = dst.wrapping_offset(near.cast_signed() * sheet.pitch);
        for row in rows {
            // SAFETY: an element of the sheet and its place, by the caller's contract.
            unsafe { one::<T>(row.wrapping_offset(from), dst) };
            dst = dst.wrapping_add(size_of::<T>());
        }
    }
}

/// Whether a sheet's last axis walks memory in longer steps than an axis of `near` bytes, so that tiles help.
pub(super) fn is_farther(last: &Axis<'_>, near: isize, size: usize) -> bool {
    match last.hop {
        Hop::Even(0) => last.len <= braid::MOST && near.unsigned_abs() == size,
        Hop::Even(stride) => near.unsigned_abs() < stride.unsigned_abs(),
        Hop::Picked(..) => near.unsigned_abs() < LINE,
    }
}
