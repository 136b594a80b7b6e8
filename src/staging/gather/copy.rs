//! Bytes that lie one behind the other: the one place that says how they are copied.
#![expect(unsafe_code, reason = "reads and writes memory by address")]

use super::ahead::LINE;

/// Copies a stretch of any length.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `bytes` bytes, and they don't overlap.
pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
}

/// Copies a long stretch that is not read again soon, past the caches: memory need not be read before it is written.
///
/// On two cores of a Xeon with AVX-512 that was 1.4 times as fast as `memcpy` (`benches/overhead.rs`). What a copy engine reads
/// next is better left in the caches: on an H200 machine staging was slower by a tenth with it.
///
/// # Safety
///
/// As for `copy`.
pub(super) unsafe fn copy_past_caches(src: *const u8, dst: *mut u8, bytes: usize) {
    let ahead = dst.align_offset(LINE).min(bytes);
    let lines = (bytes - ahead) / LINE;
    // SAFETY: the caller's contract, for the part before the first whole line.
    unsafe { copy(src, dst, ahead) };
    for line in 0..lines {
        let at = ahead + line * LINE;
        // SAFETY: as above, for a line, which begins where lines begin.
        unsafe { write_line(src.wrapping_add(at), dst.wrapping_add(at)) };
    }
    // What is told to other threads afterwards is not to overtake the lines.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    let rest = ahead + lines * LINE;
    // SAFETY: as above, for the part behind the last whole line.
    unsafe { copy(src.wrapping_add(rest), dst.wrapping_add(rest), bytes - rest) };
}

/// Writes a whole line of memory.
///
/// # Safety
///
/// As for `copy`, and `dst` is a multiple of the line's length.
#[inline(always)]
unsafe fn write_line(src: *const u8, dst: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        for at in (0..LINE).step_by(size_of::<__m128i>()) {
            let (src, dst) = (src.wrapping_add(at), dst.wrapping_add(at));
            // SAFETY: the caller's contract, for a part; every processor of this architecture has the instruction.
            let part = unsafe { _mm_loadu_si128(src.cast()) };
            // SAFETY: as above.
            unsafe { _mm_stream_si128(dst.cast(), part) };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's contract.
    unsafe {
        fixed::<LINE>(src, dst);
    }
}

/// Calls `walk` with what copies a run of `bytes` bytes, chosen once for all runs. For the shortest, a call of `memcpy`
/// takes as long as the copy.
///
/// # Safety
///
/// `walk` passes only what `copy` may be called with.
pub(super) unsafe fn with_run(bytes: usize, walk: impl Walk) {
    macro_rules! sizes {
        ($($size:literal)*) => {
            match bytes {
                // SAFETY: the caller's contract; the run has as many bytes.
                $($size => walk.walk(|src, dst| unsafe { fixed::<$size>(src, dst) }),)*
                // SAFETY: as above, and there are more than 16 of them.
                17..=32 => walk.walk(|src, dst| unsafe { ends::<16>(src, dst, bytes) }),
                // SAFETY: as above, and there are more than 32 of them.
                33..=64 => walk.walk(|src, dst| unsafe { ends::<32>(src, dst, bytes) }),
                // SAFETY: as above.
                _ => walk.walk(|src, dst| unsafe { copy(src, dst, bytes) }),
            }
        };
    }
    sizes!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
}

/// Something that copies many runs of one length.
pub(super) trait Walk {
    /// Calls `run` with the source and destination of each.
    fn walk(self, run: impl FnMut(*const u8, *mut u8));
}

/// Copies `N` bytes.
///
/// # Safety
///
/// As for `copy`.
#[inline(always)]
pub(super) unsafe fn fixed<const N: usize>(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's contract.
    let bytes = unsafe { src.cast::<[u8; N]>().read() };
    // SAFETY: the caller's contract.
    unsafe { dst.cast::<[u8; N]>().write(bytes) };
}

/// Copies `N` to `2 * N` bytes: the first `N` and the last.
///
/// # Safety
///
/// As for `copy`.
#[inline(always)]
unsafe fn ends<const N: usize>(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract; there are `N` bytes.
    unsafe { fixed::<N>(src, dst) };
    let last = bytes - N;
    // SAFETY: as above, up to the last byte.
    unsafe { fixed::<N>(src.wrapping_add(last), dst.wrapping_add(last)) };
}
