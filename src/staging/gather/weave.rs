//! Braids in registers: 16 bytes of each strand at a time, every byte put where it belongs by a shuffle.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

use std::arch::x86_64::{__m128i, _mm_or_si128, _mm_setzero_si128, _mm_shuffle_epi8};
use std::marker::PhantomData;

use super::ahead::ask;
use super::block::Bits;

/// Bytes from what is read to what is asked for.
const AHEAD: usize = 1024;

/// For each byte of each register that is made, its place in each of those that it is made of: beyond them all where it is
/// in another.
type Shuffles<const N: usize> = [[[u8; 16]; N]; N];

/// The shuffles for elements of one size.
struct Braid<T, const N: usize>(PhantomData<T>);

impl<T, const N: usize> Braid<T, N> {
    const TOGETHER: Shuffles<N> = shuffles(size_of::<T>(), true);
    const APART: Shuffles<N> = shuffles(size_of::<T>(), false);
}

const fn shuffles<const N: usize>(size: usize, together: bool) -> Shuffles<N> {
    let mut shuffles = [[[0x80; 16]; N]; N];
    let mut byte = 0;
    while byte < 16 * N {
        // This byte of the braid, and where it is in its strand.
        let (element, part) = (byte / size, byte % size);
        let (strand, place) = (element % N, element / N * size + part);
        if together {
            shuffles[byte / 16][strand][byte % 16] = low(place);
        } else {
            shuffles[strand][byte / 16][place] = low(byte % 16);
        }
        byte += 1;
    }
    shuffles
}

const fn low(place: usize) -> u8 {
    place.to_le_bytes()[0]
}

#[inline]
#[target_feature(enable = "avx2")]
fn shuffled<const N: usize>(from: [__m128i; N], shuffles: &Shuffles<N>) -> [__m128i; N] {
    let mut made = [_mm_setzero_si128(); N];
    for (made, shuffles) in made.iter_mut().zip(shuffles) {
        for (from, shuffle) in from.iter().zip(shuffles) {
            // SAFETY: as many bytes, of which any are a value.
            let shuffle = unsafe { std::mem::transmute::<[u8; 16], __m128i>(*shuffle) };
            *made = _mm_or_si128(*made, _mm_shuffle_epi8(*from, shuffle));
        }
    }
    made
}

/// Puts elements of each strand together, as many as there are whole registers of. Answers how many.
///
/// # Safety
///
/// `len` elements of each are readable, `dst` has room for all of them, and the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn together<T: Bits, const N: usize>(strands: [*const u8; N], len: usize, dst: *mut u8) -> usize {
    let whole = len / T::SIDE;
    for step in 0..whole {
        let mut from = [_mm_setzero_si128(); N];
        for (from, strand) in from.iter_mut().zip(strands) {
            let strand = strand.wrapping_add(step * 16);
            ask(strand.wrapping_add(AHEAD));
            // SAFETY: 16 bytes of a strand, by the caller's contract.
            *from = unsafe { strand.cast::<__m128i>().read_unaligned() };
        }
        let made = shuffled(from, &Braid::<T, N>::TOGETHER);
        // SAFETY: there is room for as many of each, by the caller's contract.
        unsafe { dst.cast::<[__m128i; N]>().wrapping_add(step).write_unaligned(made) };
    }
    whole * T::SIDE
}

/// Takes elements of each strand apart, as many as there are whole registers of. Answers how many.
///
/// # Safety
///
/// `len` elements of each are readable, each destination has room for as many, and the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn apart<T: Bits, const N: usize>(src: *const u8, len: usize, strands: [*mut u8; N]) -> usize {
    let whole = len / T::SIDE;
    for step in 0..whole {
        let from = src.cast::<[__m128i; N]>().wrapping_add(step);
        ask(from.cast::<u8>().wrapping_add(AHEAD));
        // SAFETY: 16 bytes of each strand, by the caller's contract.
        let from = unsafe { from.read_unaligned() };
        for (made, strand) in shuffled(from, &Braid::<T, N>::APART).into_iter().zip(strands) {
            // SAFETY: there is room for as many, by the caller's contract.
            unsafe { strand.cast::<__m128i>().wrapping_add(step).write_unaligned(made) };
        }
    }
    whole * T::SIDE
}
