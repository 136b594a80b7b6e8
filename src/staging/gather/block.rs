//! [`Bits`]: elements by their size, and square blocks of them that are transposed in registers.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

/// An element of which only the size matters.
pub(super) trait Bits: Copy + 'static {
    /// Elements in 16 bytes: a block has as many rows and columns.
    const SIDE: usize;

    /// Writes column `n` of the rows of `SIDE` elements at `rows` to `dst`, `n * pitch` bytes further on.
    ///
    /// # Safety
    ///
    /// There are `SIDE` rows, each with 16 readable bytes, and each of the columns has 16 writable ones.
    unsafe fn transpose(rows: &[*const u8], dst: *mut u8, pitch: isize);
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

    macro_rules! bits {
        ($($type:ty, $side:literal, $low:ident, $high:ident;)*) => {$(
            impl Bits for $type {
                const SIDE: usize = $side;

                #[inline(always)]
                unsafe fn transpose(rows: &[*const u8], dst: *mut u8, pitch: isize) {
                    // SAFETY: all zeros are a value of it.
                    let mut block: [__m128i; $side] = unsafe { std::mem::zeroed() };
                    for (line, row) in block.iter_mut().zip(rows) {
                        // SAFETY: 16 bytes of a row, by the caller's contract.
                        *line = unsafe { row.cast::<__m128i>().read_unaligned() };
                    }
                    // Each round interleaves rows half a block apart: element `j` of row `i` is then where it would be
                    // if the bits of its place in the block had been turned by one.
                    for _ in 0..$side.trailing_zeros() {
                        let rows = block;
                        for pair in 0..$side / 2 {
                            // SAFETY: every processor of this architecture has SSE2.
                            block[2 * pair] = unsafe { $low(rows[pair], rows[pair + $side / 2]) };
                            // SAFETY: as above.
                            block[2 * pair + 1] = unsafe { $high(rows[pair], rows[pair + $side / 2]) };
                        }
                    }
                    let mut dst = dst;
                    for line in block {
                        // SAFETY: 16 bytes of a column, by the caller's contract.
                        unsafe { dst.cast::<__m128i>().write_unaligned(line) };
                        dst = dst.wrapping_offset(pitch);
                    }
                }
            }
        )*};
    }

    bits! {
        u8, 16_usize, _mm_unpacklo_epi8, _mm_unpackhi_epi8;
        u16, 8_usize, _mm_unpacklo_epi16, _mm_unpackhi_epi16;
        u32, 4_usize, _mm_unpacklo_epi32, _mm_unpackhi_epi32;
        u64, 2_usize, _mm_unpacklo_epi64, _mm_unpackhi_epi64;
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod elements {
    use super::{Bits, one};

    macro_rules! bits {
        ($($type:ty),*) => {$(
            impl Bits for $type {
                const SIDE: usize = 16 / size_of::<Self>();

                unsafe fn transpose(rows: &[*const u8], dst: *mut u8, pitch: isize) {
                    for column in 0..Self::SIDE {
                        let dst = dst.wrapping_offset(pitch * column.cast_signed());
                        for (place, row) in rows[..Self::SIDE].iter().enumerate() {
                            let src = row.wrapping_add(column * size_of::<Self>());
                            // SAFETY: an element of a row, and its place in a column, by the caller's contract.
                            unsafe { one::<Self>(src, dst.wrapping_add(place * size_of::<Self>())) };
                        }
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
