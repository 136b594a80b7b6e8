//! [`Bits`]: elements by their size, and square blocks of them that are transposed in registers.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

/// An element of which only the size matters.
pub(super) trait Bits: Copy + 'static {
    /// Elements in 16 bytes: a block has as many rows and columns.
    const SIDE: usize;

    /// Writes the columns of `SIDE` rows, 16 bytes of each from `at` on, to `dst`, each column `pitch` bytes after the one
    /// before.
    ///
    /// # Safety
    ///
    /// There are `SIDE` rows, each with 16 readable bytes at `at`, and each of the columns has 16 writable ones.
    unsafe fn transpose(rows: &[*const u8], at: usize, dst: *mut u8, pitch: isize);

    /// The same for twice as many rows: two blocks side by side.
    ///
    /// # Safety
    ///
    /// There are twice `SIDE` rows, each with 16 readable bytes at `at`, each of the columns has 32 writable ones, and the
    /// processor has AVX2.
    unsafe fn transpose_two(rows: &[*const u8], at: usize, dst: *mut u8, pitch: isize);
}

/// One element, wherever it lies.
///
/// # Safety
///
/// It is readable, and `dst` is writable for it.
#[inline(always)]
pub(super) unsafe fn one<T: Bits>(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's contract.
    let element = unsafe { src.cast::<T>().read_unaligned() };
    // SAFETY: the caller's contract.
    unsafe { dst.cast::<T>().write_unaligned(element) };
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;

    use super::Bits;

    macro_rules! interleave {
        ($block:ident, $side:literal, $low:ident, $high:ident) => {
            // Each round interleaves rows half a block apart. An element's row and column are the upper and lower half of
            // the bits of its place; each round turns them by one.
            for _ in 0..$side.trailing_zeros() {
                let rows = $block;
                for pair in 0..$side / 2 {
                    $block[2 * pair] = $low(rows[pair], rows[pair + $side / 2]);
                    $block[2 * pair + 1] = $high(rows[pair], rows[pair + $side / 2]);
                }
            }
        };
    }

    /// Sixteen bytes, wherever they lie.
    ///
    /// # Safety
    ///
    /// They are readable.
    #[inline(always)]
    unsafe fn load(src: *const u8) -> __m128i {
        // SAFETY: the caller's contract.
        unsafe { src.cast::<__m128i>().read_unaligned() }
    }

    macro_rules! bits {
        ($($type:ty, $side:literal, $low:ident, $high:ident, $low_two:ident, $high_two:ident;)*) => {$(
            impl Bits for $type {
                const SIDE: usize = $side;

                #[inline]
                #[target_feature(enable = "sse2")]
                unsafe fn transpose(rows: &[*const u8], at: usize, dst: *mut u8, pitch: isize) {
                    // SAFETY: 16 bytes of a row, by the caller's contract.
                    let mut block: [_; $side] = std::array::from_fn(|row| unsafe { load(rows[row].wrapping_add(at)) });
                    interleave!(block, $side, $low, $high);
                    let mut dst = dst;
                    for line in block {
                        // SAFETY: 16 bytes of a column, by the caller's contract.
                        unsafe { dst.cast::<__m128i>().write_unaligned(line) };
                        dst = dst.wrapping_offset(pitch);
                    }
                }

                #[inline]
                #[target_feature(enable = "avx2")]
                unsafe fn transpose_two(rows: &[*const u8], at: usize, dst: *mut u8, pitch: isize) {
                    let mut block = [_mm256_setzero_si256(); $side];
                    for (row, line) in block.iter_mut().enumerate() {
                        // SAFETY: 16 bytes of a row, by the caller's contract.
                        let low = unsafe { load(rows[row].wrapping_add(at)) };
                        // SAFETY: as above.
                        let high = unsafe { load(rows[row + $side].wrapping_add(at)) };
                        *line = _mm256_set_m128i(high, low);
                    }
                    interleave!(block, $side, $low_two, $high_two);
                    let mut dst = dst;
                    for line in block {
                        // SAFETY: 32 bytes of a column, by the caller's contract.
                        unsafe { dst.cast::<__m256i>().write_unaligned(line) };
                        dst = dst.wrapping_offset(pitch);
                    }
                }
            }
        )*};
    }

    bits! {
        u8, 16_usize, _mm_unpacklo_epi8, _mm_unpackhi_epi8, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8;
        u16, 8_usize, _mm_unpacklo_epi16, _mm_unpackhi_epi16, _mm256_unpacklo_epi16, _mm256_unpackhi_epi16;
        u32, 4_usize, _mm_unpacklo_epi32, _mm_unpackhi_epi32, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32;
        u64, 2_usize, _mm_unpacklo_epi64, _mm_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64;
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod elements {
    use super::{Bits, one};

    macro_rules! bits {
        ($($type:ty),*) => {$(
            impl Bits for $type {
                const SIDE: usize = 16 / size_of::<Self>();

                unsafe fn transpose(rows: &[*const u8], at: usize, dst: *mut u8, pitch: isize) {
                    for column in 0..Self::SIDE {
                        let dst = dst.wrapping_offset(pitch * column.cast_signed());
                        for (place, row) in rows[..Self::SIDE].iter().enumerate() {
                            let src = row.wrapping_add(at + column * size_of::<Self>());
                            // SAFETY: an element of a row, and its place in a column, by the caller's contract.
                            unsafe { one::<Self>(src, dst.wrapping_add(place * size_of::<Self>())) };
                        }
                    }
                }

                unsafe fn transpose_two(rows: &[*const u8], at: usize, dst: *mut u8, pitch: isize) {
                    for (half, rows) in rows.chunks(Self::SIDE).enumerate() {
                        // SAFETY: the caller's contract, for one of the blocks.
                        unsafe { Self::transpose(rows, at, dst.wrapping_add(half * 16), pitch) };
                    }
                }
            }
        )*};
    }

    bits!(u8, u16, u32, u64);
}

/// Calls a function that is generic over [`Bits`] for elements of `$size` bytes.
macro_rules! by_size {
    ($size:expr, $function:ident($($argument:expr),*)) => {
        match $size {
            // SAFETY: the caller's contract, for each of the sizes.
            1 => unsafe { $function::<u8>($($argument),*) },
            // SAFETY: as above.
            2 => unsafe { $function::<u16>($($argument),*) },
            // SAFETY: as above.
            4 => unsafe { $function::<u32>($($argument),*) },
            // SAFETY: as above.
            _ => unsafe { $function::<u64>($($argument),*) },
        }
    };
}

pub(super) use by_size;
