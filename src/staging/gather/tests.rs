//! What is gathered in pieces of any size is what ndarray has there, wherever the elements lie, and nothing else is written.

use ndarray::{Array, ArrayD, Axis, SliceInfoElem, s};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;

/// Bytes from a place on, so that their address has any remainder.
struct From(Vec<u8>, usize);

impl AsRef<[u8]> for From {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

/// Gathers the pieces between `cuts`, and sees that each leaves the bytes around it alone.
fn pieces(array: &HostArray, cuts: &[usize], shift: usize) -> Vec<u8> {
    const AROUND: usize = 64;
    let size = array.dtype().size();
    let mut all = Vec::new();
    let mut edges: Vec<_> = cuts.iter().map(|cut| cut % (array.len() + 1)).chain([0, array.len()]).collect();
    edges.sort_unstable();
    for (number, edge) in edges.windows(2).enumerate() {
        let next = if number % 2 == 0 { Next::Kept } else { Next::Read };
        let (from, to) = (edge[0] * size, edge[1] * size);
        let mut bytes = vec![0xa5_u8; to - from + 2 * AROUND];
        let place = bytes[AROUND - shift..].as_mut_ptr();
        // SAFETY: the piece lies inside the vector.
        unsafe { gather(array, from..to, place, next) };
        let (piece, after) = bytes[AROUND - shift..].split_at(to - from);
        assert!(after.iter().chain(&bytes[..AROUND - shift]).all(|byte| *byte == 0xa5), "bytes around the piece");
        all.extend_from_slice(piece);
    }
    all
}

/// An array of bytes, and an array of which element is where.
fn numbered(shape: &[usize], dtype: Dtype, shift: usize) -> (Vec<u8>, HostArray, ArrayD<usize>) {
    let len = shape.iter().product::<usize>();
    let mut bytes = vec![0_u8; shift];
    bytes.extend((0..len * dtype.size()).map(|place| (place.wrapping_mul(0x9e37_79b9) >> 11) as u8));
    let numbers = Array::from_iter(0..len).into_shape_with_order(shape).unwrap();
    (bytes[shift..].to_vec(), HostArray::from_bytes(From(bytes, shift), dtype, shape).unwrap(), numbers)
}

/// One view of an array and of its numbers: a permutation, rows by index, a part with steps.
fn viewed(host: &HostArray, numbers: &ArrayD<usize>, kind: u8, pick: &[usize]) -> (HostArray, ArrayD<usize>) {
    let nth = |place: usize| pick[place % pick.len()];
    let rank = numbers.ndim();
    match kind {
        0 => {
            let mut axes: Vec<_> = (0..rank).collect();
            axes.sort_by_key(|axis| nth(*axis));
            (host.permuted_axes(&axes).unwrap(), numbers.view().permuted_axes(axes).to_owned())
        }
        1 if rank > 0 && !numbers.is_empty() => {
            let len = numbers.shape()[0];
            let rows: Vec<_> = (0..len).map(|row| (row * (nth(row) % 3) + nth(row)) % len).collect();
            (host.select_rows(&rows).unwrap(), numbers.select(Axis(0), &rows))
        }
        _ => {
            let part = |(axis, len): (usize, &usize)| {
                let (from, less) = (nth(axis) % 2, nth(axis) / 2 % 2);
                let step = [1, -1, 1, -1, 2, -2, 3, 1, 5][nth(axis) / 4 % 9];
                let end = len.saturating_sub(less).max(from.min(*len));
                SliceInfoElem::Slice { start: from.min(*len) as isize, end: Some(end as isize), step }
            };
            let info: Vec<_> = numbers.shape().iter().enumerate().map(part).collect();
            (host.slice(&info).unwrap(), numbers.slice(&info[..]).to_owned())
        }
    }
}

/// Shapes of which at most two axes are long.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let (rank, most): (usize, usize) = if cfg!(miri) { (4, 36) } else { (6, 110) };
    (vec(1_usize..4, 0..=rank), [1..most, 1..most], any::<[usize; 2]>()).prop_map(|(mut shape, long, places)| {
        for (long, place) in long.into_iter().zip(places) {
            let rank = shape.len();
            if rank > 0 {
                shape[place % rank] = long;
            }
        }
        shape
    })
}

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        failure_persistence: None,
        cases: if cfg!(miri) { default.cases.min(12) } else { default.cases },
        ..default
    }
}

const OF_EACH_SIZE: [Dtype; 4] = [Dtype::U8, Dtype::I16, Dtype::F32, Dtype::U64];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_view_is_gathered_as_ndarray_has_it(
        shape in shapes(),
        views in vec((0_u8..3, vec(0_usize..1000, 1..9)), 0..5),
        of in 0..4_usize,
        (shift, to) in (0_usize..8, 0_usize..64),
        cuts in vec(any::<usize>(), 0..5),
    ) {
        let (bytes, mut host, mut numbers) = numbered(&shape, OF_EACH_SIZE[of], shift);
        for (kind, pick) in &views {
            (host, numbers) = viewed(&host, &numbers, *kind, pick);
        }
        let size = host.dtype().size();
        let expected: Vec<u8> = numbers.iter().flat_map(|number| &bytes[number * size..][..size]).copied().collect();
        prop_assert!(pieces(&host, &cuts, to) == expected, "{:?} of {}", host.shape(), host.dtype());
    }

    #[test]
    fn a_cast_of_any_view_is_that_of_its_elements(
        shape in shapes(),
        views in vec((0_u8..3, vec(0_usize..1000, 1..9)), 0..5),
        (of, cast, by_way) in (0..4_usize, 0_u8..4, any::<bool>()),
        (shift, to) in (0_usize..8, 0_usize..64),
        cuts in vec(any::<usize>(), 0..5),
    ) {
        let (_, mut host, mut numbers) = numbered(&shape, OF_EACH_SIZE[of], shift);
        for (kind, pick) in &views {
            (host, numbers) = viewed(&host, &numbers, *kind, pick);
        }
        let stored = pieces(&host, &[], 0);
        let cast_of = |array: &HostArray| {
            let array = if by_way { array.cast::<f64>() } else { array.clone() };
            match cast {
                0 => array.cast::<u8>(),
                1 => array.cast::<half::f16>(),
                2 => array.cast::<f32>(),
                _ => array.cast::<i64>(),
            }
        };
        let dense = cast_of(&HostArray::from_bytes(stored, host.dtype(), numbers.len()).unwrap());
        // One by one, so that no two are converted at once; that takes Miri too long.
        let all: Vec<_> = (0..numbers.len()).step_by(if cfg!(miri) { 100 } else { 1 }).collect();
        prop_assert!(pieces(&cast_of(&host), &cuts, to) == pieces(&dense, &all, 0), "{:?}", host.shape());
    }

    #[test]
    fn images_are_normalized_one_operation_after_the_other(
        shape in [1_usize..3, 1..20, 1..70, 1..12],
        axis in 0..4_usize,
        views in vec((0_u8..3, vec(0_usize..1000, 1..9)), 0..4),
        (to, shift) in (0_u8..3, 0_usize..64),
        cuts in vec(any::<usize>(), 0..5),
    ) {
        let (bytes, host, mut numbers) = numbered(&shape, Dtype::U8, shift % 8);
        let channels = shape[axis];
        let mean: Vec<_> = (0..channels).map(|channel| 0.4 + 0.013 * channel as f32).collect();
        let std: Vec<_> = (0..channels).map(|channel| 0.2 + 0.007 * channel as f32).collect();
        let scale = 1.0 / 255.0;
        let mut host = match to {
            0 => host.normalized_along::<f32>(axis, scale, &mean, &std),
            1 => host.normalized_along::<half::f16>(axis, scale, &mean, &std),
            _ => host.normalized_along::<half::bf16>(axis, scale, &mean, &std),
        }.unwrap();
        for (kind, pick) in &views {
            (host, numbers) = viewed(&host, &numbers, *kind, pick);
        }
        let inner: usize = shape[axis + 1..].iter().product();
        let normal = |number: &usize| {
            let channel = number / inner % channels;
            let value = (f32::from(bytes[*number]) * scale - mean[channel]) / std[channel];
            match to {
                0 => value.to_ne_bytes().to_vec(),
                1 => half::f16::from_f32(value).to_ne_bytes().to_vec(),
                _ => half::bf16::from_f32(value).to_ne_bytes().to_vec(),
            }
        };
        let expected: Vec<u8> = numbers.iter().flat_map(normal).collect();
        prop_assert!(pieces(&host, &cuts, shift) == expected, "axis {} of {:?}", axis, shape);
    }

    #[test]
    fn a_gather_in_pieces_is_a_gather_as_a_whole(
        (a, b, c) in (1_usize..7, 1_usize..9, 1_usize..6),
        cuts in vec(0_usize..1000, 0..8),
        order in Just([2_usize, 0, 1]).prop_shuffle(),
        step in prop_oneof![Just(1_isize), Just(2), Just(-1)],
        rows in vec(0_usize..1000, 1..9),
        (select, cast) in any::<(bool, bool)>(),
    ) {
        let array = Array::from_shape_fn((a, b, c), |(i, j, k)| (i * 100 + j * 10 + k) as u32);
        let rows: Vec<_> = if select { rows.iter().map(|row| row % a).collect() } else { (0..a).collect() };
        let view = HostArray::from(array).select_rows(rows).unwrap();
        let view = view.slice(s![.., ..;step, ..]).unwrap().permuted_axes(order).unwrap();
        let view = if cast { view.cast::<f64>() } else { view };
        prop_assert_eq!(pieces(&view, &cuts, 0), pieces(&view, &[], 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes; views of any kind are transposed above")]
fn transposed_arrays_of_every_edge() {
    // Around the sides of blocks, squares of lines and streams of each size.
    let lengths = [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 129];
    for dtype in OF_EACH_SIZE {
        for (rows, columns) in lengths.into_iter().flat_map(|rows| lengths.map(|columns| (rows, columns))) {
            let (bytes, host, numbers) = numbered(&[2, rows, columns], dtype, 1);
            let size = dtype.size();
            for axes in [[0, 2, 1], [2, 1, 0], [2, 0, 1], [1, 0, 2]] {
                let expected = numbers.view().permuted_axes(axes.to_vec());
                let expected: Vec<u8> =
                    expected.iter().flat_map(|number| &bytes[number * size..][..size]).copied().collect();
                let view = host.permuted_axes(axes).unwrap();
                assert!(
                    pieces(&view, &[rows + 1, 3 * columns / 2], 0) == expected,
                    "{rows} by {columns} of {dtype}, {axes:?}"
                );
            }
        }
    }
}
