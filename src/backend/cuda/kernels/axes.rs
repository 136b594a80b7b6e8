//! [`Axis`]: the axes of a rearrangement, made fewer and nearer, and the order in which memory is best read along them.

use smallvec::SmallVec;

use crate::backend::{MOST_AXES, Rearrangement};

/// The largest unit that is read and written at once, in bytes.
const WIDEST: usize = 16;
/// The side of a square that goes through shared memory, in elements.
const SIDE: usize = 32;
/// From so many elements along both axes on, squares pay: below that they are mostly empty.
const LEAST_SIDE: usize = 16;
/// What is read from memory at once at least, in bytes: neighbours within it cost nothing.
const SECTOR: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) extent: usize,
    /// Elements of the source.
    pub(super) stride: isize,
    /// It is the one whose index says which channel an element is of.
    pub(super) is_channel: bool,
}

pub(super) type Axes = SmallVec<[Axis; MOST_AXES]>;

/// The axes without those that need not be told apart.
pub(super) fn simplified(rearrangement: &Rearrangement, channel: Option<usize>) -> Axes {
    let mut axes = Axes::new();
    let each = rearrangement.shape.iter().zip(&rearrangement.strides).enumerate();
    for (number, (extent, stride)) in each.filter(|(_, (extent, _))| **extent != 1) {
        let axis = Axis { extent: *extent, stride: *stride, is_channel: channel == Some(number) };
        match axes.last_mut() {
            Some(before) if are_one(before, &axis) => {
                *before = Axis { extent: before.extent * axis.extent, ..axis };
            }
            _ => axes.push(axis),
        }
    }
    axes
}

/// Whether the source goes on from one index of the outer axis to the next as it does along the inner one.
fn are_one(outer: &Axis, inner: &Axis) -> bool {
    isize::try_from(inner.extent).is_ok_and(|extent| outer.stride == extent * inner.stride)
        && !outer.is_channel
        && !inner.is_channel
}

/// Takes neighbours in source and result for one element, up to the widest; the answer is its size. `address` has the bits
/// of both addresses.
pub(super) fn widened(axes: &mut Axes, mut size: usize, address: usize) -> usize {
    while 2 * size <= WIDEST && address.is_multiple_of(2 * size) {
        let Some((last, others)) = axes.split_last_mut() else { break };
        let are_even = others.iter().all(|axis| axis.stride % 2 == 0);
        if last.stride != 1 || !last.extent.is_multiple_of(2) || !are_even {
            break;
        }
        others.iter_mut().for_each(|axis| axis.stride /= 2);
        last.extent /= 2;
        size *= 2;
        if last.extent == 1 {
            axes.pop();
        }
    }
    size
}

/// The axis along which squares are read, where that is better than reading in the order of the result.
pub(super) fn across(axes: &[Axis], size: usize) -> Option<usize> {
    let (last, others) = axes.split_last()?;
    let near = others.iter().enumerate().filter(|(_, axis)| axis.stride != 0);
    let (number, nearest) = near.min_by_key(|(_, axis)| axis.stride.unsigned_abs())?;
    let step = last.stride.unsigned_abs();
    let is_far = step > nearest.stride.unsigned_abs() && step * size >= SECTOR;
    (is_far && last.extent >= LEAST_SIDE && nearest.extent >= LEAST_SIDE).then_some(number)
}

pub(super) fn squares(axes: &[Axis], across: usize) -> u64 {
    let sides = |(number, axis): (usize, &Axis)| {
        let is_side = number == across || number + 1 == axes.len();
        (if is_side { axis.extent.div_ceil(SIDE) } else { axis.extent }) as u64
    };
    axes.iter().enumerate().map(sides).product()
}
