//! Bytes that lie one behind the other: the one place that says how they are copied.
#![expect(unsafe_code, reason = "reads and writes memory by address")]

/// Copies a stretch of any length.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `bytes` bytes, and they don't overlap.
pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
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
