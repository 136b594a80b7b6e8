//! What is enqueued on our streams: [`Copy`], [`Pitched`] copies, and the [`Rearrangement`] of what was copied.

use smallvec::SmallVec;

use crate::batch::Change;
use crate::dtype::Dtype;

/// One contiguous copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) dst: *mut u8,
    pub(crate) src: *const u8,
    pub(crate) bytes: usize,
    pub(crate) direction: Direction,
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

/// A copy to the device of rows that lie at even distances, in planes that do: on the device they are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pitched {
    pub(crate) dst: *mut u8,
    pub(crate) src: *const u8,
    /// Bytes of a row.
    pub(crate) width: usize,
    /// Rows of a plane.
    pub(crate) rows: usize,
    /// Bytes from one row to the next, at least `width`.
    pub(crate) pitch: usize,
    pub(crate) planes: usize,
    /// Rows of that pitch from one plane to the next, at least `rows`.
    pub(crate) height: usize,
}

impl Pitched {
    pub(crate) const fn bytes(&self) -> usize {
        self.width * self.rows * self.planes
    }

    /// Whether its bytes lie one behind the other in the source too.
    pub(crate) const fn is_contiguous(&self) -> bool {
        self.rows == 1 && self.planes == 1
    }
}

/// Copies that are fetched by one launch at most: where they come from goes into its arguments.
pub(crate) const MOST_FETCHED: usize = 480;

/// Axes that a [`Rearrangement`] has at most.
pub(crate) const MOST_AXES: usize = 8;
/// Channels that a normalization in a [`Rearrangement`] has at most.
pub(crate) const MOST_CHANNELS: usize = 64;

/// Elements of device memory written in another order, or as another type, or both.
///
/// The result is dense: the element at an index of `shape` comes from `src` plus the index times `strides`.
#[derive(Clone, Debug)]
pub(crate) struct Rearrangement {
    /// Where the element at index 0 of all axes lies.
    pub(crate) src: *const u8,
    pub(crate) dst: *mut u8,
    pub(crate) stored: Dtype,
    pub(crate) shape: SmallVec<[usize; 4]>,
    /// Elements of the source from one index to the next; negative and 0 occur.
    pub(crate) strides: SmallVec<[isize; 4]>,
    pub(crate) change: Option<Change>,
}

impl Rearrangement {
    /// The type of the result.
    pub(crate) fn dtype(&self) -> Dtype {
        self.change.as_ref().map_or(self.stored, Change::dtype)
    }

    /// Bytes of the result.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype().size()
    }
}

/// How good a backend is at rearranging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "the host is slow at it"))]
pub(crate) enum Rearranges {
    /// It can't.
    Not,
    /// It can, and the host would be as fast.
    Slowly,
    /// It is faster than the host by far.
    Fast,
}
