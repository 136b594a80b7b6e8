//! Walks an array in logical order, one stretch of its innermost axis at a time.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

use std::ops::Range;

use smallvec::SmallVec;

use crate::HostArray;
use crate::batch::Step;

/// An axis, or several that lie in memory as if they were one.
struct Axis<'a> {
    len: usize,
    step: &'a Step,
}

/// The array's axes without those of length 1, neighbours joined where one stride walks both.
fn axes(array: &HostArray) -> SmallVec<[Axis<'_>; 4]> {
    let mut joined: SmallVec<[Axis<'_>; 4]> = SmallVec::new();
    for (len, step) in array.shape().iter().zip(array.steps()).filter(|(len, _)| **len != 1) {
        if let (Some(outer), Step::Strided(inner)) = (joined.last_mut(), step)
            && let Step::Strided(stride) = *outer.step
            && isize::try_from(*len).ok().and_then(|len| inner.checked_mul(len)) == Some(stride)
        {
            outer.len *= len;
            outer.step = step;
            continue;
        }
        joined.push(Axis { len: *len, step });
    }
    joined
}

/// Writes elements `range` of the logical order, as they are stored, to `dst`.
///
/// # Safety
///
/// `dst` is valid for writes of as many stored elements as the range has, and nobody else touches them meanwhile.
pub(super) unsafe fn copy(array: &HostArray, range: Range<usize>, dst: *mut u8) {
    let size = array.stored().size();
    let base = array.as_ptr();
    let mut axes = axes(array);
    let inner = axes.pop();
    let inner_len = inner.as_ref().map_or(1, |axis| axis.len);
    let mut index = start(&axes, range.start / inner_len);
    let mut offset: isize = axes.iter().zip(&index).map(|(axis, index)| axis.step.at(*index)).sum();
    let mut place = range.start % inner_len;
    let mut left = range.len();
    let mut dst = dst;
    loop {
        let count = left.min(inner_len - place);
        match inner.as_ref().map(|axis| axis.step) {
            Some(Step::Strided(stride)) => {
                let first = offset + stride * place.cast_signed();
                // SAFETY: element `first` and those that follow by `stride` are elements of the array, which its owner
                // keeps; `dst` has room for `count` more, by the caller's contract.
                unsafe { strided(base.wrapping_offset(first * size.cast_signed()), *stride, size, count, dst) };
            }
            Some(Step::Indexed(table)) => {
                let src = base.wrapping_offset(offset * size.cast_signed());
                // SAFETY: as above, for the elements that the table names.
                unsafe { indexed(src, &table[place..place + count], size, dst) };
            }
            None => {
                // SAFETY: as above, for the one element.
                unsafe { strided(base.wrapping_offset(offset * size.cast_signed()), 1, size, 1, dst) };
            }
        }
        left -= count;
        if left == 0 {
            return;
        }
        dst = dst.wrapping_add(count * size);
        place = 0;
        offset += advance(&axes, &mut index);
    }
}

/// The index of the outer axes at which the `number`-th stretch begins.
fn start(axes: &[Axis<'_>], mut number: usize) -> SmallVec<[usize; 4]> {
    let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, axes.len());
    for (index, axis) in index.iter_mut().zip(axes).rev() {
        *index = number % axis.len;
        number /= axis.len;
    }
    index
}

/// Moves to the next stretch; answers by how many elements.
fn advance(axes: &[Axis<'_>], index: &mut [usize]) -> isize {
    let mut moved = 0;
    for (index, axis) in index.iter_mut().zip(axes).rev() {
        let before = axis.step.at(*index);
        *index += 1;
        if *index < axis.len {
            return moved + axis.step.at(*index) - before;
        }
        *index = 0;
        moved -= before;
    }
    moved
}

/// Copies `count` elements that are `stride` apart.
///
/// # Safety
///
/// All of them are readable, and `dst` has room for them.
unsafe fn strided(src: *const u8, stride: isize, size: usize, count: usize, dst: *mut u8) {
    /// # Safety
    ///
    /// As for `strided`.
    unsafe fn each<T>(src: *const u8, stride: isize, count: usize, dst: *mut u8) {
        let (mut src, mut dst) = (src.cast::<T>(), dst.cast::<T>());
        for _ in 0..count {
            // SAFETY: one of the `count` elements, by the caller's contract; it may lie unaligned.
            let element = unsafe { src.read_unaligned() };
            // SAFETY: as above.
            unsafe { dst.write_unaligned(element) };
            src = src.wrapping_offset(stride);
            dst = dst.wrapping_add(1);
        }
    }
    if stride == 1 {
        // SAFETY: the elements lie one behind the other.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, count * size) };
        return;
    }
    match size {
        // SAFETY: the caller's contract, for each of the sizes.
        1 => unsafe { each::<u8>(src, stride, count, dst) },
        // SAFETY: as above.
        2 => unsafe { each::<u16>(src, stride, count, dst) },
        // SAFETY: as above.
        4 => unsafe { each::<u32>(src, stride, count, dst) },
        // SAFETY: as above.
        _ => unsafe { each::<u64>(src, stride, count, dst) },
    }
}

/// Copies the elements that `table` names, each so far from `src`.
///
/// # Safety
///
/// All of them are readable, and `dst` has room for them.
unsafe fn indexed(src: *const u8, table: &[isize], size: usize, dst: *mut u8) {
    /// # Safety
    ///
    /// As for `indexed`.
    unsafe fn each<T>(src: *const u8, table: &[isize], dst: *mut u8) {
        let (src, mut dst) = (src.cast::<T>(), dst.cast::<T>());
        for far in table {
            // SAFETY: an element that the table names, by the caller's contract; it may lie unaligned.
            let element = unsafe { src.wrapping_offset(*far).read_unaligned() };
            // SAFETY: as above.
            unsafe { dst.write_unaligned(element) };
            dst = dst.wrapping_add(1);
        }
    }
    match size {
        // SAFETY: the caller's contract, for each of the sizes.
        1 => unsafe { each::<u8>(src, table, dst) },
        // SAFETY: as above.
        2 => unsafe { each::<u16>(src, table, dst) },
        // SAFETY: as above.
        4 => unsafe { each::<u32>(src, table, dst) },
        // SAFETY: as above.
        _ => unsafe { each::<u64>(src, table, dst) },
    }
}
