//! Host arrays against ndarray: every element type, every layout, views of views, and what bad input is told.
//!
//! What arrives on a device is what `to_array` gathers: for any layout that is in `random.rs`, the rest in `conformance/`.
#![allow(clippy::unwrap_used, reason = "tests stop where they fail")]

mod crops;
mod random;

use std::sync::Arc;

use half::{bf16, f16};
use inflight::{Dtype, Element, Error, HostArray, HostBatch, IntoBatch, batch};
use ndarray::{
    ArcArray, Array, Array1, Array2, ArrayD, ArrayViewD, Axis, Dimension, Ix4, IxDyn, ShapeBuilder, SliceInfoElem,
    arr0, s,
};

/// An array of distinct elements.
fn counted(shape: &[usize]) -> ArrayD<u32> {
    Array::from_iter(0..shape.iter().product::<usize>() as u32).into_shape_with_order(shape).unwrap()
}

/// Checks that `array`, taken over where it lies, has the elements, shape and first address that it had.
#[track_caller]
fn check<T: Element, D: Dimension + 'static>(array: Array<T, D>) {
    let logical = array.to_owned().into_dyn();
    let standard = array.is_standard_layout();
    let first = array.as_ptr().cast::<u8>();
    let shared = HostArray::from(array.to_shared());
    let taken = HostArray::from(array);
    assert_eq!(taken.shape(), logical.shape());
    assert_eq!(taken.to_array::<T>().unwrap(), logical);
    assert_eq!(shared.to_array::<T>().unwrap(), logical);
    assert_eq!(taken.bytes(), size_of::<T>() * logical.len());
    if !logical.is_empty() {
        assert_eq!(taken.as_ptr(), first);
        assert_eq!(taken.is_contiguous(), standard);
    }
}

/// Checks a view against ndarray's.
#[track_caller]
fn same(host: &HostArray, expected: ArrayViewD<'_, u32>) {
    assert_eq!(host.to_array::<u32>().unwrap(), expected);
}

#[test]
fn every_element_type_keeps_its_bits() {
    // B76, B82: extreme values, NaN payloads, -0.0 and subnormals, in order and gathered.
    macro_rules! bits {
        ($($type:ty: $($bits:expr),*;)*) => {$({
            let values: Vec<$type> = [$($bits),*].map(<$type>::from_ne_bytes).to_vec();
            let back = HostArray::from(values.clone()).to_array::<$type>().unwrap();
            assert!(back.iter().zip(&values).all(|(a, b)| a.to_ne_bytes() == b.to_ne_bytes()));
            let reversed = HostArray::from(values.clone()).slice(s![..;-1]).unwrap().to_array::<$type>().unwrap();
            assert!(reversed.iter().zip(values.iter().rev()).all(|(a, b)| a.to_ne_bytes() == b.to_ne_bytes()));
            assert_eq!(HostArray::from(values).dtype(), <$type>::DTYPE);
        })*};
    }
    bits! {
        u8: [0], [u8::MAX];
        i8: [0], [0x80];
        u16: u16::MAX.to_ne_bytes(), 1_u16.to_ne_bytes();
        i16: i16::MIN.to_ne_bytes(), 1_i16.to_ne_bytes();
        u32: u32::MAX.to_ne_bytes(), 1_u32.to_ne_bytes();
        i32: i32::MIN.to_ne_bytes(), 1_i32.to_ne_bytes();
        u64: u64::MAX.to_ne_bytes(), ((1_u64 << 40) + 1).to_ne_bytes();
        i64: i64::MIN.to_ne_bytes(), ((1_i64 << 40) + 1).to_ne_bytes();
        f16: 0x7c01_u16.to_ne_bytes(), 0x8000_u16.to_ne_bytes(), 1_u16.to_ne_bytes();
        bf16: 0xff81_u16.to_ne_bytes(), 0x8000_u16.to_ne_bytes(), 1_u16.to_ne_bytes();
        f32: 0x7f80_0001_u32.to_ne_bytes(), (-0.0_f32).to_ne_bytes(), 1_u32.to_ne_bytes();
        f64: 0xfff0_0000_0000_0001_u64.to_ne_bytes(), (-0.0_f64).to_ne_bytes(), 0.1_f64.to_ne_bytes();
    }
    check(Array1::from(vec![true, false, true]).slice_move(s![..;-1]));
}

#[test]
fn every_way_of_making_one_keeps_the_elements() {
    let expected = Array1::from(vec![1_i16, 2, 3]).into_dyn();
    let made: [HostArray; 4] = [
        vec![1_i16, 2, 3].into(),
        vec![1_i16, 2, 3].into_boxed_slice().into(),
        Arc::<[i16]>::from([1, 2, 3]).into(),
        [1_i16, 2, 3].into(),
    ];
    assert!(made.iter().all(|array| array.to_array::<i16>().unwrap() == expected && array.is_contiguous()));
    assert_eq!(HostArray::from(7_i16).to_array::<i16>().unwrap(), arr0(7).into_dyn());
    let owned = HostArray::from_owner(vec![1_i16, 2, 3], 3).unwrap();
    assert_eq!(owned.to_array::<i16>().unwrap(), expected);
}

#[test]
fn bytes_of_any_alignment_are_in_this_machines_order() {
    // B75: swapping is for whoever reads a file and knows its order.
    for shift in 0..8 {
        let bytes: Vec<u8> = (0..6_u64).flat_map(|n| ((n << 40) | 1).to_ne_bytes()).collect();
        let mut unaligned = vec![0xdd; shift];
        unaligned.extend(&bytes);
        let owner = Tail(unaligned, shift);
        let array = HostArray::from_bytes(owner, Dtype::U64, (2, 3)).unwrap();
        let expected = Array2::from_shape_fn((2, 3), |(i, j)| (((i * 3 + j) as u64) << 40) | 1);
        assert_eq!(array.to_array::<u64>().unwrap(), expected.clone().into_dyn());
        let turned = array.permuted_axes([1, 0]).unwrap().to_array::<u64>().unwrap();
        assert_eq!(turned, expected.reversed_axes().into_dyn());
    }
}

/// The bytes from a place on.
struct Tail(Vec<u8>, usize);

impl AsRef<[u8]> for Tail {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

#[test]
fn reversed_on_every_subset_of_axes_in_both_orders() {
    // B69.
    for rank in 0..=4 {
        let shape = &[2, 3, 4, 5][..rank];
        for reversed in 0..1_u32 << rank {
            for fortran in [false, true] {
                let mut array = counted(shape);
                if fortran {
                    array = array.reversed_axes();
                }
                (0..rank).filter(|axis| reversed >> axis & 1 == 1).for_each(|axis| array.invert_axis(Axis(axis)));
                check(array);
            }
        }
    }
}

#[test]
fn permuted_in_every_order() {
    let array = counted(&[2, 3, 4, 5]).into_dimensionality::<Ix4>().unwrap();
    let host = HostArray::from(array.clone());
    for code in 0..256_usize {
        let axes = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
        if (0..4).all(|axis| axes.contains(&axis)) {
            check(array.clone().permuted_axes(axes));
            same(&host.permuted_axes(axes).unwrap(), array.view().permuted_axes(axes).into_dyn());
        }
    }
}

#[test]
fn two_reversed_elements() {
    let array = Array1::from(vec![1.0_f64, 2.0]).slice_move(s![..;-1]);
    check(array.clone());
    assert_eq!(HostArray::from(array).to_array::<f64>().unwrap(), Array1::from(vec![2.0, 1.0]).into_dyn());
}

#[test]
fn stepped_and_cut_arrays_are_taken_as_they_lie() {
    // B69.
    let array = counted(&[6, 7, 8]).into_dimensionality::<ndarray::Ix3>().unwrap();
    check(array.clone().slice_move(s![..;2, .., ..]));
    check(array.clone().slice_move(s![.., ..;-3, ..]));
    check(array.clone().slice_move(s![1..5, 2..6;3, 3..]));
    check(array.clone().slice_move(s![1.., 4, ..;-2]));
    check(array.slice_move(s![3, .., 5]));
}

#[test]
fn arrays_without_elements() {
    // B68.
    for shape in [&[0][..], &[0, 3], &[2, 0], &[3, 0, 2]] {
        check(counted(shape));
        check(counted(shape).reversed_axes());
        let host = HostArray::from(counted(shape));
        assert!(host.is_empty());
        assert_eq!(host.bytes(), 0);
        same(&host.cast::<f64>().cast::<u32>(), counted(shape).view());
    }
    let cut = HostArray::from(counted(&[4, 3])).slice(s![2..2, ..]).unwrap();
    same(&cut, counted(&[0, 3]).view());
    same(&cut.select_rows([]).unwrap(), counted(&[0, 3]).view());
    let rows = HostArray::from(counted(&[3, 0])).select_rows([2, 0, 2, 1]).unwrap();
    same(&rows, counted(&[4, 0]).view());
    let batch = HostBatch::new();
    assert_eq!((batch.bytes(), batch.rows(), batch.len()), (0, None, 0));
}

#[test]
fn arrays_without_axes() {
    check(arr0(3.5_f32));
    let picked = HostArray::from(counted(&[4, 3])).slice(s![2, 1]).unwrap();
    assert_eq!((picked.ndim(), picked.len()), (0, 1));
    same(&picked, arr0(7).into_dyn().view());
    same(&picked.slice(s![ndarray::NewAxis]).unwrap(), Array1::from(vec![7]).into_dyn().view());
}

#[test]
fn a_length_of_one_makes_any_stride_contiguous() {
    // B70.
    let one = HostArray::from(counted(&[4])).slice(s![2..3;-1]).unwrap();
    assert!(one.is_contiguous());
    same(&one, Array1::from(vec![2]).into_dyn().view());
    let mut inverted = counted(&[1, 4]);
    inverted.invert_axis(Axis(0));
    assert!(HostArray::from(inverted.clone()).is_contiguous());
    check(inverted);
    check(counted(&[1, 1, 1]));
    for stride in [0, 1, 9] {
        check(Array::from_shape_vec((1, 4).strides((stride, 1)), vec![5_u8, 6, 7, 8]).unwrap());
    }
}

#[test]
fn a_stride_of_zero_repeats() {
    // B69. An array that owns or shares its elements can't name one twice, says ndarray; zeros and repeated rows can.
    assert!(ArcArray::from_shape_vec((3, 2).strides((0, 1)), vec![1_u8, 2]).is_err());
    let zeros = HostArray::zeros::<f16>((1 << 20, 3, 1 << 20)).unwrap();
    assert_eq!(zeros.bytes(), 6 << 40);
    let few = zeros.slice(s![5..9, ..;-1, 7]).unwrap();
    assert_eq!(few.to_array::<f16>().unwrap(), ArrayD::from_elem(IxDyn(&[4, 3]), f16::ZERO));
    let row = counted(&[3, 4]).index_axis_move(Axis(0), 1).insert_axis(Axis(0));
    let repeated = HostArray::from(counted(&[3, 4])).select_rows([1; 5]).unwrap();
    same(&repeated, row.broadcast(IxDyn(&[5, 4])).unwrap());
}

#[test]
fn picked_rows_begin_at_the_first_that_was_picked() {
    let array = counted(&[5, 3]);
    let host = HostArray::from(array.clone());
    for rows in [&[3][..], &[4, 4], &[1, 2, 3], &[4, 2, 0], &[3, 0, 1], &[2, 2, 1, 4, 0, 0]] {
        let picked = host.select_rows(rows).unwrap();
        same(&picked, array.select(Axis(0), rows).view());
        assert_eq!(picked.as_ptr(), host.as_ptr().wrapping_add(rows[0] * 3 * 4));
        let again = picked.select_rows([rows.len() - 1]).unwrap();
        same(&again, array.select(Axis(0), &rows[rows.len() - 1..]).view());
        assert!(again.is_contiguous(), "one row is dense");
    }
    assert!(host.select_rows([1, 2, 3]).unwrap().is_contiguous(), "a run of rows is dense");
    assert!(!host.select_rows([3, 0, 1]).unwrap().is_contiguous());
}

#[test]
fn views_of_views() {
    let array = counted(&[6, 5, 4]);
    let host = HostArray::from(array.clone());
    let rows = [4, 0, 0, 5, 1];
    let picked = array.select(Axis(0), &rows);
    let view = host.select_rows(rows).unwrap();
    same(&view, picked.view());
    same(&view.slice(s![3..;-1, .., 2]).unwrap(), picked.slice(s![3..;-1, .., 2]).into_dyn());
    same(&view.slice(s![1.., ..;2, ..]).unwrap(), picked.slice(s![1.., ..;2, ..]).into_dyn());
    same(
        &view.slice(s![2, ndarray::NewAxis, .., -1]).unwrap(),
        picked.slice(s![2, ndarray::NewAxis, .., -1]).into_dyn(),
    );
    let turned = view.permuted_axes([2, 0, 1]).unwrap();
    let expected = picked.view().permuted_axes(IxDyn(&[2, 0, 1]));
    same(&turned, expected.clone());
    same(&turned.select_rows([3, 1, 1, 2]).unwrap(), expected.select(Axis(0), &[3, 1, 1, 2]).view());
    let cast = turned.cast::<u8>().select_rows([1, 0, 3]).unwrap().cast::<i64>();
    let expected = expected.select(Axis(0), &[1, 0, 3]).mapv(|value| i64::from(value as u8));
    assert_eq!(cast.to_array::<i64>().unwrap(), expected);
    assert_eq!(cast.bytes(), expected.len() * 8);
}

#[test]
fn casts_are_rusts_and_go_one_by_one() {
    macro_rules! all_to {
        ($values:expr, $from:ty => $($to:ty),*) => {$({
            let values: Vec<$from> = $values.to_vec();
            let expected: Vec<$to> = values.iter().map(|value| *value as $to).collect();
            let cast = HostArray::from(values).cast::<$to>();
            assert_eq!(cast.to_array::<$to>().unwrap().into_raw_vec_and_offset().0, expected);
        })*};
    }
    macro_rules! from_each {
        ($($from:ty: $values:expr;)*) => {$(
            all_to!($values, $from => u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);
            let truths: Vec<bool> = $values.iter().map(|value| *value != 0 as $from).collect();
            let cast = HostArray::from($values.to_vec()).cast::<bool>();
            assert_eq!(cast.to_array::<bool>().unwrap().into_raw_vec_and_offset().0, truths);
        )*};
    }
    from_each! {
        u8: [0, 1, u8::MAX]; u16: [0, 1, 256, u16::MAX]; u32: [0, 1, 65_536, u32::MAX]; u64: [0, 1, 1 << 40, u64::MAX];
        i8: [0, -1, i8::MIN]; i16: [0, -1, i16::MIN]; i32: [0, -1, i32::MIN]; i64: [0, -1, i64::MIN];
        f32: [0.0, -0.0, 0.1, -1.9, 300.7, 1e20, f32::INFINITY, f32::MIN_POSITIVE];
        f64: [0.0, -0.0, 0.1, -1.9, 300.7, 1e300, f64::NEG_INFINITY, 1e-300];
    }
    let not = HostArray::from([f64::NAN]);
    assert_eq!(not.cast::<i32>().to_array::<i32>().unwrap()[0], 0);
    assert!(not.cast::<bool>().to_array::<bool>().unwrap()[0]);
    assert!(not.cast::<f16>().cast::<bf16>().to_array::<bf16>().unwrap()[0].is_nan());
    let by_way = HostArray::from([300.7_f64, -3.0, 7.9]).cast::<u8>().cast::<f32>();
    assert_eq!(by_way.to_array::<f32>().unwrap(), Array1::from(vec![255.0, 0.0, 7.0]).into_dyn());
    let truths = HostArray::from([true, false]).cast::<f16>().cast::<f64>();
    assert_eq!(truths.to_array::<f64>().unwrap(), Array1::from(vec![1.0, 0.0]).into_dyn());
    // More than one block of elements.
    let many = HostArray::from(counted(&[40, 50])).permuted_axes([1, 0]).unwrap().cast::<f64>();
    assert_eq!(many.to_array::<f64>().unwrap(), counted(&[40, 50]).reversed_axes().mapv(f64::from));
    let unchanged = HostArray::from([1.0_f32]);
    assert!(unchanged.cast::<f32>().is_contiguous() && !unchanged.cast::<f64>().cast::<f32>().is_contiguous());
}

/// The text of an error.
#[track_caller]
fn said<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn indices_out_of_range_are_named() {
    let host = HostArray::from(counted(&[4, 3]));
    assert_eq!(said(host.select_rows([0, 4])), "index 4 is out of range for axis 0 of length 4");
    assert_eq!(said(host.slice(s![.., 3])), "index 3 is out of range for axis 1 of length 3");
    assert_eq!(said(host.slice(s![-5, ..])), "index -5 is out of range for axis 0 of length 4");
    assert_eq!(said(host.slice(s![5.., ..])), "index 5 is out of range for axis 0 of length 4");
    assert_eq!(said(host.slice(s![.., ..9])), "index 9 is out of range for axis 1 of length 3");
    let big = "index 18446744073709551615 is out of range for axis 0 of length 4";
    assert_eq!(said(host.select_rows([usize::MAX])), big, "and not -1");
    assert_eq!(
        said(host.slice(s![isize::MIN.., ..])),
        format!("index {} is out of range for axis 0 of length 4", isize::MIN)
    );
}

#[test]
fn views_of_another_rank_are_refused() {
    let host = HostArray::from(counted(&[4, 3]));
    assert_eq!(said(HostArray::from(1_u8).select_rows([0])), "an array without axes has no rows");
    assert_eq!(said(host.slice(s![..])), "a slice of 1 axes does not fit an array of 2");
    assert_eq!(said(host.permuted_axes([0, 0])), "[0, 0] does not name each of 2 axes once");
    assert_eq!(said(host.permuted_axes([0])), "[0] does not name each of 2 axes once");
    assert_eq!(said(host.permuted_axes([1, 2])), "[1, 2] does not name each of 2 axes once");
    let still = SliceInfoElem::Slice { start: 0, end: None, step: 0 };
    assert_eq!(said(host.slice([still, still])), "a slice's step can't be 0");
    // Steps longer than any axis are fine.
    let all = |step| SliceInfoElem::Slice { start: 0, end: None, step };
    same(&host.slice([all(isize::MAX), all(isize::MIN)]).unwrap(), ArrayD::from_elem(IxDyn(&[1, 1]), 2).view());
}

#[test]
fn shapes_that_no_memory_holds_are_refused() {
    // B72.
    let wraps = [3, 7, 29, 36_760_123, 823_996_703];
    let text = "shape [3, 7, 29, 36760123, 823996703] of float32 has more bytes than an address space holds";
    assert_eq!(said(HostArray::zeros::<f32>(wraps)), text);
    assert_eq!(said(HostArray::from_bytes(Vec::new(), Dtype::F32, wraps)), text);
    assert!(matches!(HostArray::zeros::<u8>((usize::MAX / 2, 4)), Err(Error::ShapeOverflow { .. })));
    assert!(matches!(HostArray::from_owner([0_u8], (usize::MAX / 2, 4)), Err(Error::ShapeOverflow { .. })));
    assert!(matches!(HostArray::zeros::<f64>(isize::MAX as usize / 8 + 1), Err(Error::ShapeOverflow { .. })));
    assert!(matches!(HostArray::zeros::<u8>((0, usize::MAX, 2)), Err(Error::ShapeOverflow { .. })));
    let most = HostArray::zeros::<u8>(isize::MAX as usize).unwrap();
    assert!(matches!(most.cast::<f64>().to_array::<f64>(), Err(Error::ShapeOverflow { .. })));
    assert_eq!(most.cast::<f64>().bytes(), usize::MAX);
    let wide = HostArray::zeros::<u8>((1, isize::MAX as usize)).unwrap();
    assert!(matches!(wide.select_rows([0, 0]), Err(Error::ShapeOverflow { .. })));
}

#[test]
fn data_that_does_not_fit_is_refused() {
    assert_eq!(said(HostArray::from_owner([1_u16, 2], 3)), "the shape asks for 6 bytes, the data has 4");
    assert_eq!(said(HostArray::from_bytes([0_u8; 9], Dtype::F64, 1)), "the shape asks for 8 bytes, the data has 9");
    // B78.
    assert_eq!(said(HostArray::from_bytes([0_u8, 1, 2], Dtype::Bool, 3)), "element 2 is byte 2, a bool is 0 or 1");
    assert!(HostArray::from_bytes([0_u8, 1, 1], Dtype::Bool, 3).unwrap().to_array::<bool>().unwrap()[2]);
    assert_eq!(said(HostArray::from([1_u8]).to_array::<i8>()), "the array is uint8, not int8");
    let batch = batch! { raw: [1_u8], labels: [2_u8] };
    assert_eq!(said(batch.field("row")), "the batch has no field \"row\"; its fields are [\"raw\", \"labels\"]");
    let failed: Result<HostBatch, _> = Err(std::io::Error::other("disk on fire"));
    assert_eq!(said(failed.into_batch()), "the source failed: disk on fire");
}
