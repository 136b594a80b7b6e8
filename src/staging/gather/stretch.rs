//! One axis whose elements do not lie one behind the other: reversed, every so many, one again and again, by a table.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

use super::ahead::{ask, blocks};
use super::axes::{Axis, Hop, each};
use super::block::{Bits, one};
use super::wide::wide;

/// Places in a table from the element that is read to the one that is asked for.
const AHEAD: usize = 16;

/// Copies the elements of all `axes`, stretch by stretch of the last.
///
/// # Safety
///
/// The elements are readable, and `dst` has room for them in the order of the axes.
pub(super) unsafe fn stretches<T: Bits>(axes: &[Axis<'_>], src: *const u8, dst: *mut u8) {
    let size = size_of::<T>();
    // Without axes there is one element.
    let Some((inner, outer)) = axes.split_last() else {
        // SAFETY: the caller's contract.
        return unsafe { one::<T>(src, dst) };
    };
    let len = inner.len;
    // Calls a copying function for each stretch.
    macro_rules! walk {
        ($copy:expr) => {
            each(outer, src, dst, size, &mut |src, dst| {
                // SAFETY: the caller's contract, for one of the stretches.
                unsafe { $copy(src, dst) }
            })
        };
    }
    // Calls one for parts of each stretch.
    macro_rules! walk_blocks {
        ($stride:ident, $copy:expr) => {
            each(outer, src, dst, size, &mut |src, dst| {
                blocks(src, $stride, len, |start, count| {
                    let src = src.wrapping_offset(start.cast_signed() * $stride);
                    // SAFETY: the caller's contract, for a part of one of the stretches.
                    unsafe { $copy(src, $stride, count, dst.wrapping_add(start * size)) }
                })
            })
        };
    }
    match inner.hop {
        Hop::Picked(table, bytes) => walk!(|src, dst| picked::<T>(src, table, bytes, dst)),
        Hop::Even(0) => walk!(|src, dst| fill::<T>(src, len, dst)),
        Hop::Even(stride) => match (stride / size.cast_signed(), stride % size.cast_signed()) {
            (-1, 0) => walk_blocks!(stride, every::<T, -1>),
            (-2, 0) => walk_blocks!(stride, every::<T, -2>),
            (2, 0) => walk_blocks!(stride, every::<T, 2>),
            (3, 0) => walk_blocks!(stride, every::<T, 3>),
            (4, 0) => walk_blocks!(stride, every::<T, 4>),
            _ => walk_blocks!(stride, apart::<T>),
        },
    }
}

wide! {
    [T: Bits, const STEP: isize] [T, STEP]
    /// Copies `len` elements that are `STEP` elements apart.
    ///
    /// # Safety
    ///
    /// All of them are readable, and `dst` has room for them.
    unsafe fn every(src: *const u8, _stride: isize, len: usize, dst: *mut u8) {
        for index in 0..len {
            let src = src.wrapping_offset(index.cast_signed() * STEP * size_of::<T>().cast_signed());
            // SAFETY: one of the elements, by the caller's contract.
            unsafe { one::<T>(src, dst.wrapping_add(index * size_of::<T>())) };
        }
    }
}

wide! {
    [T: Bits] [T]
    /// Writes one element `len` times.
    ///
    /// # Safety
    ///
    /// It is readable, and `dst` has room for so many.
    unsafe fn fill(src: *const u8, len: usize, dst: *mut u8) {
        // SAFETY: the caller's contract.
        let element = unsafe { src.cast::<T>().read_unaligned() };
        for index in 0..len {
            // SAFETY: there is room for it.
            unsafe { dst.cast::<T>().wrapping_add(index).write_unaligned(element) };
        }
    }
}

/// Copies `len` elements that are `stride` bytes apart.
///
/// # Safety
///
/// All of them are readable, and `dst` has room for them.
#[inline]
unsafe fn apart<T: Bits>(src: *const u8, stride: isize, len: usize, dst: *mut u8) {
    let (mut src, mut dst) = (src, dst);
    for _ in 0..len {
        // SAFETY: one of the elements, by the caller's contract.
        unsafe { one::<T>(src, dst) };
        src = src.wrapping_offset(stride);
        dst = dst.wrapping_add(size_of::<T>());
    }
}

/// Copies the elements that `table` names, each so many times `bytes` from `src`.
///
/// # Safety
///
/// All of them are readable, and `dst` has room for them.
#[inline]
unsafe fn picked<T: Bits>(src: *const u8, table: &[isize], bytes: isize, dst: *mut u8) {
    let mut dst = dst;
    for (index, far) in table.iter().enumerate() {
        ask(src.wrapping_offset(table.get(index + AHEAD).unwrap_or(far) * bytes));
        // SAFETY: an element that the table names, by the caller's contract.
        unsafe { one::<T>(src.wrapping_offset(far * bytes), dst) };
        dst = dst.wrapping_add(size_of::<T>());
    }
}
