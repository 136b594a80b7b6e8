//! Transposed parts of an array: the axis along which memory runs is not the last one. Both are walked in tiles, so that
//! a cache line that was read is used whole, and one that is written is written whole.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

use std::mem::MaybeUninit;

use super::ahead::LINE;
use super::axes::{Axis, Hop};
use super::block::{Bits, one};
use super::braid;
use super::copy::fixed;
#[cfg(target_arch = "x86_64")]
use super::wide::has_avx2;

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
    let strip = Strip { rows: &[], near: sheet.near, dst: sheet.dst, pitch: sheet.pitch };
    let stream = STREAM / size_of::<T>();
    let line = LINE / size_of::<T>();
    for near in (0..sheet.near_len).step_by(stream) {
        let end = sheet.near_len.min(near + stream);
        for last in (0..sheet.last.len).step_by(line) {
            let count = line.min(sheet.last.len - last);
            let mut rows = [sheet.src; MOST];
            for (index, row) in rows[..count].iter_mut().enumerate() {
                *row = row.wrapping_offset(sheet.last.at(last + index));
            }
            let strip = Strip { rows: &rows[..count], dst: sheet.dst.wrapping_add(last * size_of::<T>()), ..strip };
            // SAFETY: the caller's contract, for a part.
            unsafe { lines::<T>(strip, near, end) };
        }
    }
}

/// Rows of a sheet that a line of the destination has elements of.
#[derive(Clone, Copy)]
struct Strip<'a> {
    rows: &'a [*const u8],
    near: isize,
    dst: *mut u8,
    pitch: isize,
}

impl Strip<'_> {
    /// The place of the first row's element at an index of the near axis.
    #[inline(always)]
    fn place(&self, near: usize) -> *mut u8 {
        self.dst.wrapping_offset(near.cast_signed() * self.pitch)
    }
}

/// Copies indices `near..end` of a strip, on the processor at hand.
///
/// # Safety
///
/// As for `copy`.
unsafe fn lines<T: Bits>(strip: Strip<'_>, near: usize, end: usize) {
    /// # Safety
    ///
    /// As for `lines`, on a processor that has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2<T: Bits>(strip: Strip<'_>, near: usize, end: usize) {
        // SAFETY: the caller's contract.
        unsafe { squares::<T, true>(strip, near, end) };
    }

    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor was asked, and the rest is the caller's contract.
        return unsafe { avx2::<T>(strip, near, end) };
    }
    // SAFETY: the caller's contract.
    unsafe { squares::<T, false>(strip, near, end) };
}

/// Does it for a line of the source in each row at a time, so that both lines are whole.
///
/// # Safety
///
/// As for `lines`, and if `TWO` the processor has AVX2.
#[inline(always)]
unsafe fn squares<T: Bits, const TWO: bool>(strip: Strip<'_>, near: usize, end: usize) {
    let line = LINE / size_of::<T>();
    let is_dense = strip.near == size_of::<T>().cast_signed();
    for near in (near..end).step_by(line) {
        let end = end.min(near + line);
        if is_dense && strip.rows.len() == line && end - near == line {
            // SAFETY: the caller's contract, for as many indices as there are rows.
            unsafe { square::<T, TWO>(strip, near) };
            continue;
        }
        let whole = if is_dense { near + (end - near) / T::SIDE * T::SIDE } else { near };
        for (group, rows) in strip.rows.chunks(T::SIDE).enumerate() {
            let part = Strip { rows, dst: strip.dst.wrapping_add(group * 16), ..strip };
            let from = if rows.len() == T::SIDE { whole } else { near };
            for near in (near..from).step_by(T::SIDE) {
                // SAFETY: a block of whole rows and columns, by the caller's contract.
                unsafe { T::transpose(rows, near * size_of::<T>(), part.place(near), strip.pitch) };
            }
            // SAFETY: the caller's contract, for what is left of these rows.
            unsafe { elements::<T>(part, from, end) };
        }
    }
}

/// A square of whole lines.
#[repr(align(64))]
struct Square([MaybeUninit<u8>; MOST * LINE]);

/// Transposes a square: by way of a buffer, since lines of the destination whose addresses are alike push each other out
/// of the innermost cache before their second half is written.
///
/// # Safety
///
/// As for `squares`, for as many indices from `near` on as there are rows.
#[inline(always)]
unsafe fn square<T: Bits, const TWO: bool>(strip: Strip<'_>, near: usize) {
    let mut held = Square([MaybeUninit::uninit(); MOST * LINE]);
    let held: *mut u8 = held.0.as_mut_ptr().cast();
    let (line, pitch) = (LINE / size_of::<T>(), LINE.cast_signed());
    let width = if TWO { 2 * T::SIDE } else { T::SIDE };
    for (group, rows) in strip.rows.chunks_exact(width).enumerate() {
        for column in (0..line).step_by(T::SIDE) {
            let to = held.wrapping_add(column * LINE + group * width * size_of::<T>());
            let at = (near + column) * size_of::<T>();
            if TWO {
                // SAFETY: whole rows and columns, by the caller's contract, and the buffer has room for all of them.
                unsafe { T::transpose_two(rows, at, to, pitch) };
            } else {
                // SAFETY: as above.
                unsafe { T::transpose(rows, at, to, pitch) };
            }
        }
    }
    for row in 0..line {
        // SAFETY: a line of the buffer, which was written above, and its place, by the caller's contract.
        unsafe { fixed::<LINE>(held.wrapping_add(row * LINE), strip.place(near + row)) };
    }
}

/// Copies indices `near..end` one by one.
///
/// # Safety
///
/// As for `lines`.
#[inline]
unsafe fn elements<T: Bits>(strip: Strip<'_>, near: usize, end: usize) {
    for near in near..end {
        let from = near.cast_signed() * strip.near;
        let mut dst = strip.place(near);
        for row in strip.rows {
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
