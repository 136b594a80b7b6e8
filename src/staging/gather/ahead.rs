//! Memory that will be read soon is asked for: where more than a plain copy is done with each cache line, too few of them
//! would be on their way at a time, and the processor would wait for most.
#![cfg_attr(all(target_arch = "x86_64", not(miri)), expect(unsafe_code, reason = "the instruction is only offered so"))]

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Bytes between one asking and the next.
const BLOCK: usize = 1024;
/// The least elements between one asking and the next.
const LEAST: usize = 16;
/// Blocks from the one that is read to the one that is asked for.
const AHEAD: usize = 2;

/// Asks for the cache line at an address. It need not be one of an array: nothing is read.
#[inline(always)]
pub(super) fn ask(src: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: an instruction of every processor of this architecture, without effect on what memory holds.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(src.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = src;
}

/// Calls `visit` with the first element and the number of those of each block of `len` elements, `stride` bytes apart and
/// beginning at `src`, and asks for blocks ahead of it.
#[inline]
pub(super) fn blocks(src: *const u8, stride: isize, len: usize, mut visit: impl FnMut(usize, usize)) {
    let apart = stride.unsigned_abs().max(1);
    let block = (BLOCK / apart).max(LEAST);
    let every = LINE.div_ceil(apart);
    for start in (0..len).step_by(block) {
        let from = start + AHEAD * block;
        for place in (from..len.min(from + block)).step_by(every) {
            ask(src.wrapping_offset(place.cast_signed() * stride));
        }
        visit(start, block.min(len - start));
    }
}
