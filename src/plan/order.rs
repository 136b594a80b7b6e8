//! [`InMemory`]: an array as its memory has it, and how its own order comes of that.

use smallvec::SmallVec;

use crate::HostArray;
use crate::backend::MOST_AXES;
use crate::batch::Step;

/// A view of an array's elements in the order in which they lie, each once.
#[derive(Debug)]
pub(crate) struct InMemory {
    pub(crate) view: HostArray,
    /// For each axis of the array: elements of the dense view from one index to the next.
    strides: SmallVec<[isize; 4]>,
    /// The place in the dense view of the array's first element.
    first: isize,
    /// Some axis is walked backwards, or repeats one index.
    pub(crate) is_flipped: bool,
    pub(crate) repeats: bool,
    /// Memory has the axes in another order.
    pub(crate) is_permuted: bool,
}

/// How the elements of a dense array make another: neighbouring axes that one stride walks are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shuffle {
    pub(crate) shape: SmallVec<[usize; 4]>,
    pub(crate) strides: SmallVec<[isize; 4]>,
    pub(crate) first: isize,
    /// The number of the axis that was to be kept apart.
    pub(crate) kept: Option<usize>,
}

impl InMemory {
    /// Sorts the axes: those of picked places first, then by stride. Axes that repeat one index have it once.
    pub(crate) fn of(array: &HostArray) -> Self {
        let far = |axis: usize| match &array.steps()[axis] {
            _ if array.shape()[axis] == 1 => 0,
            Step::Strided(stride) => stride.unsigned_abs(),
            Step::Indexed(_) => usize::MAX,
        };
        let mut order: SmallVec<[usize; 4]> = (0..array.ndim()).collect();
        order.sort_by_key(|axis| std::cmp::Reverse(far(*axis)));
        let (mut is_flipped, mut repeats) = (false, false);
        let mut view = array.reordered(&order);
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, array.ndim());
        let (mut next, mut first) = (1, 0);
        for (place, axis) in order.iter().enumerate().rev() {
            let len = array.shape()[*axis];
            match &array.steps()[*axis] {
                _ if len == 1 => continue,
                Step::Strided(0) => {
                    view.keep_first(place);
                    repeats = true;
                    continue;
                }
                Step::Strided(stride) if *stride < 0 => {
                    view.flip(place);
                    is_flipped = true;
                    strides[*axis] = -next;
                    first += next * (len - 1).cast_signed();
                }
                Step::Strided(_) | Step::Indexed(_) => strides[*axis] = next,
            }
            next *= len.cast_signed();
        }
        let moved = |axis: &usize| array.shape()[*axis] > 1 && !matches!(array.steps()[*axis], Step::Strided(0));
        let is_permuted = !order.iter().filter(|axis| moved(axis)).is_sorted();
        Self { view, strides, first, is_flipped, repeats, is_permuted }
    }

    /// Whether the array is in another order than the dense view, or has other elements.
    pub(crate) const fn differs(&self) -> bool {
        self.is_permuted || self.is_flipped || self.repeats
    }

    /// Strides in elements that the array has on the dense view.
    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// How the array's order comes of the dense view, `kept` being an axis that is not joined with others. `None` if there
    /// are too many axes.
    pub(crate) fn shuffle(&self, shape: &[usize], kept: Option<usize>) -> Option<Shuffle> {
        let mut joined = Shuffle { shape: SmallVec::new(), strides: SmallVec::new(), first: self.first, kept: None };
        for (axis, (len, stride)) in shape.iter().zip(&self.strides).enumerate() {
            let apart = kept == Some(axis);
            if *len == 1 && !apart {
                continue;
            }
            let after_kept = joined.kept.is_some_and(|place| place + 1 == joined.shape.len());
            if let (Some(length), Some(outer)) = (joined.shape.last_mut(), joined.strides.last_mut())
                && !apart
                && !after_kept
                && stride.checked_mul(len.cast_signed()) == Some(*outer)
            {
                *length *= len;
                *outer = *stride;
                continue;
            }
            if apart {
                joined.kept = Some(joined.shape.len());
            }
            joined.shape.push(*len);
            joined.strides.push(*stride);
        }
        (joined.shape.len() <= MOST_AXES).then_some(joined)
    }
}
