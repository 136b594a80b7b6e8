//! Writes an array's bytes in logical order. `axes.rs` cuts what is asked for into slabs, `slab.rs` finds the way for each:
//! runs (`copy.rs`), tiles of what is transposed (`tile.rs`, `block.rs`, `braid.rs`, `weave.rs`), single axes (`stretch.rs`), and
//! conversions on the way (`convert/`). `ahead.rs` asks for memory before it is read.
#![expect(unsafe_code, reason = "reads and writes elements by address")]

mod ahead;
mod axes;
mod block;
mod braid;
mod convert;
mod copy;
mod slab;
#[cfg(test)]
mod stretch;
mod tile;
#[cfg(target_arch = "x86_64")]
mod weave;
mod wide;

use std::collections::TryReserveError;
use std::ops::Range;

use self::convert::Converter;
use crate::HostArray;
use crate::dtype::Element;

/// Writes bytes `range` of the array's logical order to `dst`. The range is one of whole elements.
///
/// # Safety
///
/// `dst` is valid for writes of the range's bytes, and nobody else touches them meanwhile.
pub(crate) unsafe fn gather(array: &HostArray, range: Range<usize>, dst: *mut u8) {
    if range.is_empty() {
        return;
    }
    if let Some(src) = array.contiguous_bytes() {
        // SAFETY: `src` begins the array's bytes, of which the range is a part; its owner is alive and read-only. `dst` is
        // the caller's.
        return unsafe { copy::copy(src.wrapping_add(range.start), dst, range.len()) };
    }
    let (stored, size) = (array.stored().size(), array.dtype().size());
    let elements = range.start / size..range.end / size;
    let converter = Converter::new(array.stored(), array.casts());
    axes::slabs(&axes::axes(array), array.as_ptr(), elements, |slab| {
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
    unsafe { gather(array, 0..len * size_of::<T>(), elements.as_mut_ptr().cast()) };
    // SAFETY: all of them have just been written.
    unsafe { elements.set_len(len) };
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array, s};
    use proptest::prelude::*;

    fn pieces(array: &HostArray, cuts: &[usize]) -> Vec<u8> {
        let size = array.dtype().size();
        let mut bytes = vec![0_u8; array.bytes()];
        let mut edges: Vec<_> = cuts.iter().map(|cut| cut % (array.len() + 1) * size).chain([0, bytes.len()]).collect();
        edges.sort_unstable();
        for edge in edges.windows(2) {
            // SAFETY: the piece lies inside the vector.
            unsafe { gather(array, edge[0]..edge[1], bytes.as_mut_ptr().wrapping_add(edge[0])) };
        }
        bytes
    }

    proptest! {
        #[test]
        fn a_gather_in_pieces_is_a_gather_as_a_whole(
            (a, b, c) in (1_usize..7, 1_usize..9, 1_usize..6),
            cuts in proptest::collection::vec(0_usize..1000, 0..8),
            order in Just([2_usize, 0, 1]).prop_shuffle(),
            step in prop_oneof![Just(1_isize), Just(2), Just(-1)],
            rows in proptest::collection::vec(0_usize..1000, 1..9),
            (select, cast) in any::<(bool, bool)>(),
        ) {
            let array = Array::from_shape_fn((a, b, c), |(i, j, k)| (i * 100 + j * 10 + k) as u32);
            let rows: Vec<_> = if select { rows.iter().map(|row| row % a).collect() } else { (0..a).collect() };
            let view = HostArray::from(array).select_rows(rows).unwrap();
            let view = view.slice(s![.., ..;step, ..]).unwrap().permuted_axes(order).unwrap();
            let view = if cast { view.cast::<f64>() } else { view };
            prop_assert_eq!(pieces(&view, &cuts), pieces(&view, &[]));
        }
    }
}
