//! A few strands that are put together element by element, or taken apart: pictures with their channels last and first.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

use super::axes::Hop;
use super::block::Bits;
use super::tile::Sheet;
#[cfg(target_arch = "x86_64")]
use super::weave;
#[cfg(target_arch = "x86_64")]
use super::wide::has_avx2;

/// Strands at most.
pub(super) const MOST: usize = 4;

/// Copies a sheet of which one axis is so short that it is a braid. Answers whether it was.
///
/// # Safety
///
/// The sheet's elements are readable, and there is room for each of them.
pub(super) unsafe fn copy<T: Bits>(sheet: &Sheet<'_>) -> bool {
    let size = size_of::<T>().cast_signed();
    let (near, last) = (sheet.near_len, sheet.last.len);
    if sheet.near != size {
        return false;
    }
    let is_dense = |count: usize, stride: isize| stride == count.cast_signed() * size;
    macro_rules! strands {
        ($($count:literal)*) => {
            match sheet.last.hop {
                // Many strands at the source's end are few at the destination's, and the other way round.
                $(_ if last == $count && is_dense($count, sheet.pitch) => {
                    let from = std::array::from_fn(|index| sheet.src.wrapping_offset(sheet.last.at(index)));
                    // SAFETY: the caller's contract: each strand is as long as the near axis.
                    unsafe { braid::<T, $count>(from, near, sheet.dst) };
                    true
                })*
                $(Hop::Even(stride) if near == $count && is_dense($count, stride) => {
                    let to = std::array::from_fn(|index: usize| {
                        sheet.dst.wrapping_offset(index.cast_signed() * sheet.pitch)
                    });
                    // SAFETY: the caller's contract: each strand is as long as the last axis.
                    unsafe { unbraid::<T, $count>(sheet.src, last, to) };
                    true
                })*
                _ => false,
            }
        };
    }
    strands!(2 3 4)
}

/// Puts `len` elements of each strand together.
///
/// # Safety
///
/// They are readable, and `dst` has room for all of them.
unsafe fn braid<T: Bits, const N: usize>(strands: [*const u8; N], len: usize, dst: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the processor is asked, and the rest is the caller's contract.
    let done = if has_avx2() { unsafe { weave::together::<T, N>(strands, len, dst) } } else { 0 };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    for at in done..len {
        // SAFETY: one of the strands' elements.
        let together = strands.map(|strand| unsafe { strand.cast::<T>().wrapping_add(at).read_unaligned() });
        // SAFETY: there is room for it.
        unsafe { dst.cast::<[T; N]>().wrapping_add(at).write_unaligned(together) };
    }
}

/// Takes `len` elements of each strand apart.
///
/// # Safety
///
/// They are readable, and each destination has room for `len` elements.
unsafe fn unbraid<T: Bits, const N: usize>(src: *const u8, len: usize, strands: [*mut u8; N]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the processor is asked, and the rest is the caller's contract.
    let done = if has_avx2() { unsafe { weave::apart::<T, N>(src, len, strands) } } else { 0 };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    for at in done..len {
        // SAFETY: one element of each strand.
        let held = unsafe { src.cast::<[T; N]>().wrapping_add(at).read_unaligned() };
        for (element, strand) in held.into_iter().zip(strands) {
            // SAFETY: there is room for it.
            unsafe { strand.cast::<T>().wrapping_add(at).write_unaligned(element) };
        }
    }
}
