//! Writes an array's bytes in logical order. `axes.rs` cuts what is asked for into slabs, `slab.rs` finds the way for each:
//! runs (`copy.rs`), tiles of what is transposed (`tile.rs`, `block.rs`), channels (`braid.rs`, `weave.rs`), single axes
//! (`stretch.rs`), and conversions on the way (`convert/`). `ahead.rs` asks for memory before it is read, `wide.rs` for
//! what the processor has.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

mod ahead;
mod axes;
mod block;
mod braid;
mod convert;
mod copy;
mod slab;
mod stretch;
mod tile;
#[cfg(target_arch = "x86_64")]
mod weave;
mod wide;

#[cfg(test)]
mod tests;

use std::collections::TryReserveError;
use std::ops::Range;

pub(crate) use self::axes::{Axes, Axis, Hop, axes};
use self::convert::Converter;
use crate::HostArray;
use crate::dtype::Element;

/// Whether what is gathered is read again soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is: it had better be in the caches.
    Read,
    /// It is not, or is too much for the caches, which contiguous memory goes past.
    Kept,
}

/// Writes bytes `range` of the array's logical order to `dst`. The range is one of whole elements.
///
/// # Safety
///
/// `dst` is valid for writes of the range's bytes, and nobody else touches them meanwhile.
pub(crate) unsafe fn gather(array: &HostArray, range: Range<usize>, dst: *mut u8, next: Next) {
    if range.is_empty() {
        return;
    }
    if let Some(src) = array.contiguous_bytes() {
        let src = src.wrapping_add(range.start);
        match next {
            // SAFETY: `src` begins the array's bytes, of which the range is a part; its owner is alive and read-only. `dst`
            // is the caller's.
            Next::Read => unsafe { copy::copy(src, dst, range.len()) },
            // SAFETY: as above.
            Next::Kept => unsafe { copy::copy_past_caches(src, dst, range.len()) },
        }
        return;
    }
    let (stored, size) = (array.stored().size(), array.dtype().size());
    let elements = range.start / size..range.end / size;
    let converter = Converter::new(array, elements.start, dst);
    axes::slabs(&axes(array), array.as_ptr(), elements, |slab| {
        let dst = dst.wrapping_add(slab.first * size);
        match &converter {
            // SAFETY: a part of the array, whose owner keeps it; the rest is the caller's contract.
            None => unsafe { slab::copy(slab, stored, dst) },
            // SAFETY: as above.
            Some(converter) => unsafe { slab::convert(slab, converter, dst) },
        }
    });
}

/// All elements, in logical order, if there is memory for them. The array's type is `T`, and its bytes fit an address space.
pub(crate) fn to_vec<T: Element>(array: &HostArray) -> Result<Vec<T>, TryReserveError> {
    let len = array.len();
    let mut elements: Vec<T> = Vec::new();
    elements.try_reserve_exact(len)?;
    // SAFETY: the vector has room for as many bytes as the array, whose type is `T`, and is ours.
    unsafe { gather(array, 0..len * size_of::<T>(), elements.as_mut_ptr().cast(), Next::Read) };
    // SAFETY: all of them have just been written.
    unsafe { elements.set_len(len) };
    Ok(elements)
}
