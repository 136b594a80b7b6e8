//! Crops: boxes out of arrays of any layout, against ndarray's slices, stacked.

use inflight::{Dtype, Error, HostArray};
use ndarray::{Array2, Array3, ArrayD, ArrayView3, Axis, IxDyn, s};

use crate::{counted, said, same};

/// The boxes of a volume as ndarray cuts and stacks them.
fn stacked(volume: ArrayView3<'_, u32>, corners: &[[usize; 3]], [z, y, x]: [usize; 3]) -> ArrayD<u32> {
    let cut = |[i, j, k]: &[usize; 3]| volume.slice_move(s![*i..*i + z, *j..*j + y, *k..*k + x]);
    let boxes: Vec<_> = corners.iter().map(cut).collect();
    ndarray::stack(Axis(0), &boxes).unwrap().into_dyn()
}

fn volume() -> Array3<u32> {
    counted(&[6, 7, 8]).into_dimensionality().unwrap()
}

const CORNERS: [[usize; 3]; 5] = [[0, 0, 0], [3, 4, 2], [1, 0, 5], [3, 4, 2], [2, 3, 4]];

#[test]
fn crops_are_the_slices_one_behind_the_other() {
    for size in [[3, 3, 3], [1, 1, 1], [3, 3, 1], [1, 3, 3], [2, 1, 3]] {
        let crops = HostArray::from(volume()).crops(CORNERS, size).unwrap();
        assert_eq!(crops.shape(), [5, size[0], size[1], size[2]]);
        same(&crops, stacked(volume().view(), &CORNERS, size).view());
    }
    let whole = HostArray::from(volume()).crops([[0, 0, 0]], [6, 7, 8]).unwrap();
    same(&whole, volume().insert_axis(Axis(0)).into_dyn().view());
    assert!(whole.is_contiguous(), "it lies as it does in the volume");
}

#[test]
fn volumes_may_lie_in_any_way() {
    let mut reversed = volume();
    reversed.invert_axis(Axis(0));
    reversed.invert_axis(Axis(2));
    let permuted = counted(&[8, 6, 7]).into_dimensionality::<ndarray::Ix3>().unwrap().permuted_axes([1, 2, 0]);
    let stepped = counted(&[12, 7, 24]).into_dimensionality::<ndarray::Ix3>().unwrap().slice_move(s![..;2, .., ..;-3]);
    for volume in [reversed, permuted, stepped] {
        assert_eq!(volume.dim(), (6, 7, 8));
        let expected = stacked(volume.view(), &CORNERS, [3, 2, 3]);
        same(&HostArray::from(volume).crops(CORNERS, [3, 2, 3]).unwrap(), expected.view());
    }
    let broadcast = HostArray::from(vec![0_u32]).slice(s![..;-1]).unwrap().select_rows([0; 6]).unwrap();
    same(&broadcast.crops([[1], [4]], [2]).unwrap(), ArrayD::zeros(IxDyn(&[2, 2])).view());
    let zeros = HostArray::zeros::<u32>((1 << 40, 7, 1 << 18)).unwrap();
    let crops = zeros.crops([[(1 << 40) - 2, 0, 9], [5, 6, 1 << 17]], [2, 1, 3]).unwrap();
    same(&crops, ArrayD::zeros(IxDyn(&[2, 2, 1, 3])).view());
}

#[test]
fn without_corners_or_with_boxes_of_nothing_there_are_no_elements() {
    let host = HostArray::from(volume());
    same(&host.crops([], [3, 3, 3]).unwrap(), counted(&[0, 3, 3, 3]).view());
    same(&host.crops([], [100, 3, 3]).unwrap(), counted(&[0, 100, 3, 3]).view());
    same(&host.crops([[6, 7, 8], [0, 0, 0]], [0, 0, 0]).unwrap(), counted(&[2, 0, 0, 0]).view());
    same(&host.crops([[6, 0, 0]], [0, 7, 8]).unwrap(), counted(&[1, 0, 7, 8]).view());
    let empty = HostArray::from(counted(&[0, 3]));
    same(&empty.crops([[0, 1]], [0, 2]).unwrap(), counted(&[1, 0, 2]).view());
}

#[test]
fn of_a_line_they_are_windows_and_of_a_single_element_that() {
    let line = counted(&[9]);
    let windows = HostArray::from(line.clone()).crops([[0], [2], [4], [6]], [3]).unwrap();
    same(&windows, Array2::from_shape_fn((4, 3), |(k, i)| (2 * k + i) as u32).into_dyn().view());
    let rows = HostArray::from(line).crops([[0], [3], [6]], [3]).unwrap();
    assert!(rows.is_contiguous(), "corners that are one box apart lie as rows do");
    same(&HostArray::from(7_u32).crops([[]; 2], []).unwrap(), ArrayD::from_elem(IxDyn(&[2]), 7).view());
}

#[test]
fn views_of_crops() {
    let host = HostArray::from(volume());
    let expected = stacked(volume().view(), &CORNERS, [3, 2, 3]);
    let crops = host.crops(CORNERS, [3, 2, 3]).unwrap();
    same(&crops.select_rows([4, 0, 0, 2]).unwrap(), expected.select(Axis(0), &[4, 0, 0, 2]).view());
    same(&crops.slice(s![1..;2, ..;-1, 1, ..]).unwrap(), expected.slice(s![1..;2, ..;-1, 1, ..]).into_dyn());
    let turned = crops.permuted_axes([3, 0, 2, 1]).unwrap();
    same(&turned, expected.view().permuted_axes(IxDyn(&[3, 0, 2, 1])));
    let cast = turned.cast::<f64>();
    assert_eq!(cast.dtype(), Dtype::F64);
    assert_eq!(cast.to_array::<f64>().unwrap(), expected.mapv(f64::from).permuted_axes(IxDyn(&[3, 0, 2, 1])));
    let wide = host.cast::<u64>().crops(CORNERS, [3, 2, 3]).unwrap();
    assert_eq!(wide.to_array::<u64>().unwrap(), expected.mapv(u64::from));
    // Corners at even distances give crops that can be cut again.
    let even = host.crops([[0, 0, 0], [1, 1, 1], [2, 2, 2]], [3, 3, 3]).unwrap();
    let expected = stacked(volume().view(), &[[0, 0, 0], [1, 1, 1], [2, 2, 2]], [3, 3, 3]);
    let again = even.crops([[1, 0, 1, 1], [0, 1, 0, 0]], [2, 2, 2, 2]).unwrap();
    let cuts = [expected.slice(s![1..3, 0..2, 1..3, 1..3]), expected.slice(s![0..2, 1..3, 0..2, 0..2])];
    same(&again, ndarray::stack(Axis(0), &cuts).unwrap().into_dyn().view());
}

#[test]
fn boxes_that_do_not_lie_inside_are_named() {
    let host = HostArray::from(volume());
    assert_eq!(said(host.crops([[0, 0, 0], [4, 0, 0]], [3, 3, 3])), "index 6 is out of range for axis 0 of length 6");
    assert_eq!(said(host.crops([[0, 7, 0]], [1, 1, 1])), "index 7 is out of range for axis 1 of length 7");
    assert_eq!(said(host.crops([[0, 0, 9]], [1, 1, 0])), "index 9 is out of range for axis 2 of length 8");
    let error = host.crops([[0, 0, usize::MAX]], [1, 1, usize::MAX]).unwrap_err();
    let last = 2 * (usize::MAX as i128) - 1;
    assert!(matches!(error, Error::IndexOutOfRange { axis: 2, index, len: 8 } if index == last), "{error}");
    let empty = HostArray::from(counted(&[0, 3]));
    assert_eq!(said(empty.crops([[0, 0]], [1, 1])), "index 0 is out of range for axis 0 of length 0");
}

#[test]
fn crops_of_another_rank_of_picked_rows_or_too_many_are_refused() {
    let host = HostArray::from(volume());
    assert_eq!(said(host.crops([[0, 0]], [1, 1])), "boxes of 2 axes do not fit an array of 3");
    let picked = host.select_rows([3, 0, 1]).unwrap();
    let text = "an array whose rows were picked has no crops: pick rows of the crops";
    assert_eq!(said(picked.crops([[0, 0, 0]], [1, 1, 1])), text);
    let run = host.select_rows([1, 2, 3]).unwrap();
    same(&run.crops([[1, 0, 0]], [2, 7, 8]).unwrap(), volume().slice(s![2..4, .., ..]).insert_axis(Axis(0)).into_dyn());
    let wide = HostArray::zeros::<u8>(isize::MAX as usize).unwrap();
    assert!(matches!(wide.crops([[0], [0]], [isize::MAX as usize]), Err(Error::ShapeOverflow { .. })));
}
