//! [`Dims`]: an array's shape, and its strides where they are not those of C order.

use ndarray::{IxDyn, ShapeBuilder, StrideShape};
use smallvec::SmallVec;

/// How an array of ours lies in its memory: all of it is dense.
#[derive(Clone, Debug)]
pub(crate) struct Dims {
    pub(crate) shape: SmallVec<[usize; 4]>,
    /// In elements; `None` in C order.
    strides: Option<Box<[usize]>>,
}

impl Dims {
    pub(crate) fn c_order(shape: &[usize]) -> Self {
        Self { shape: SmallVec::from_slice(shape), strides: None }
    }

    /// With strides that go forward.
    pub(crate) fn strided(shape: &[usize], strides: &[isize]) -> Self {
        let strides = strides.iter().map(|stride| stride.unsigned_abs()).collect();
        Self { shape: shape.into(), strides: Some(strides) }
    }

    /// As ndarray takes it.
    pub(crate) fn of_array(&self) -> StrideShape<IxDyn> {
        match &self.strides {
            Some(strides) => IxDyn(&self.shape).strides(IxDyn(strides)),
            None => IxDyn(&self.shape).into_shape_with_order().into(),
        }
    }

    /// The strides in elements.
    pub(crate) fn strides(&self) -> Vec<isize> {
        if let Some(strides) = &self.strides {
            return strides.iter().map(|stride| stride.cast_signed()).collect();
        }
        let mut next = 1;
        let mut strides: Vec<isize> = Vec::with_capacity(self.shape.len());
        for len in self.shape.iter().rev() {
            strides.push(next);
            next = next.saturating_mul(isize::try_from(*len).unwrap_or(isize::MAX));
        }
        strides.reverse();
        strides
    }
}
