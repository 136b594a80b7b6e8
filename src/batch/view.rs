//! Views of a [`HostArray`]: which elements, in which order, as which type. Nothing is copied until the array is staged.

use ndarray::SliceInfoElem;
use smallvec::SmallVec;

use super::array::{HostArray, Step};
use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result};
use crate::staging::pinned::byte_len;

impl HostArray {
    /// The rows of those indices along the first axis, in that order; an index may come twice.
    ///
    /// # Errors
    ///
    /// [`Error::IndexOutOfRange`], [`Error::InvalidView`] for an array without axes, [`Error::ShapeOverflow`].
    pub fn select_rows(&self, indices: impl AsRef<[usize]>) -> Result<Self> {
        let indices = indices.as_ref();
        let Some(len) = self.shape.first().copied() else {
            return Err(Error::InvalidView { reason: "an array without axes has no rows".to_owned() });
        };
        if let Some(index) = indices.iter().find(|index| **index >= len) {
            return Err(Error::IndexOutOfRange { axis: 0, index: *index as i128, len });
        }
        let mut view = self.clone();
        view.shape[0] = indices.len();
        byte_len(&view.shape, view.dtype())?;
        let (moved, step) = Step::through(indices.len(), |nth| self.steps[0].at(indices[nth]));
        view.steps[0] = step;
        Ok(view.moved(moved))
    }

    /// The elements that [`ndarray::s!`] picks: ranges with steps, negative ones too, single indices, new axes.
    ///
    /// A range that ends before it begins has no elements.
    ///
    /// # Errors
    ///
    /// [`Error::IndexOutOfRange`] for an index or a range's end past the axis, [`Error::InvalidView`] if there are more or
    /// fewer of them than axes, or a step is 0.
    pub fn slice(&self, info: impl AsRef<[SliceInfoElem]>) -> Result<Self> {
        let info = info.as_ref();
        let wanted = info.iter().filter(|elem| !matches!(elem, SliceInfoElem::NewAxis)).count();
        if wanted != self.ndim() {
            let reason = format!("a slice of {wanted} axes does not fit an array of {}", self.ndim());
            return Err(Error::InvalidView { reason });
        }
        let mut view = Self { shape: SmallVec::new(), steps: SmallVec::new(), ..self.clone() };
        let mut offset = 0;
        let mut axis = 0;
        for elem in info {
            match *elem {
                SliceInfoElem::NewAxis => {
                    view.shape.push(1);
                    view.steps.push(Step::Strided(0));
                    continue;
                }
                SliceInfoElem::Index(index) => {
                    let place = from_end(index, self.shape[axis]).filter(|place| *place < self.shape[axis]);
                    let place =
                        place.ok_or(Error::IndexOutOfRange { axis, index: index as i128, len: self.shape[axis] })?;
                    offset += self.steps[axis].at(place);
                }
                SliceInfoElem::Slice { start, end, step } => {
                    let (len, first) = range(axis, self.shape[axis], start, end, step)?;
                    view.shape.push(len);
                    let (moved, picked) = self.steps[axis].picked(first, step, len);
                    offset += moved;
                    view.steps.push(picked);
                }
            }
            axis += 1;
        }
        Ok(view.moved(offset))
    }

    /// Begins so many elements further on, or back. Without elements it stays: its memory may hold none.
    fn moved(mut self, elements: isize) -> Self {
        if elements != 0 && !self.is_empty() {
            self.bytes = self.bytes.moved(elements * signed(self.stored.size()));
        }
        self
    }

    /// The axes in another order: axis `i` of the view is axis `axes[i]` of the array.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidView`] if `axes` does not name each axis once.
    pub fn permuted_axes(&self, axes: impl AsRef<[usize]>) -> Result<Self> {
        let axes = axes.as_ref();
        let names_each = (0..self.ndim()).all(|axis| axes.contains(&axis));
        if axes.len() != self.ndim() || !names_each {
            let reason = format!("{axes:?} does not name each of {} axes once", self.ndim());
            return Err(Error::InvalidView { reason });
        }
        let mut view = self.clone();
        view.shape = axes.iter().map(|axis| self.shape[*axis]).collect();
        view.steps = axes.iter().map(|axis| self.steps[*axis].clone()).collect();
        Ok(view)
    }

    /// The elements as another type, converted when the array is staged.
    ///
    /// As NumPy's `astype` does it: integers wrap, and floats are cut towards zero to integers. To floats it rounds to
    /// nearest, of two the even one, and once, whatever the types; NaN stays NaN. (`ml_dtypes` rounds to `bf16` by way of
    /// `f32`: there the last bit of an `f64` or of a large integer can differ.) To `bool`, whatever is not 0 is true, NaN
    /// too. Casts of casts are done one after the other.
    ///
    /// Floats that are out of an integer's range saturate, and NaN becomes 0. NumPy has no result of its own there: it
    /// differs between machines and between one element and many, and at best comes with a warning.
    pub fn cast<T: Element>(&self) -> Self {
        self.cast_to(T::DTYPE)
    }

    fn cast_to(&self, dtype: Dtype) -> Self {
        let mut view = self.clone();
        if view.dtype() != dtype {
            view.casts.push(dtype);
        }
        view
    }
}

impl Step {
    /// Elements from the first index to another.
    pub(crate) fn at(&self, index: usize) -> isize {
        match self {
            Self::Strided(stride) => stride * signed(index),
            Self::Indexed(table) => table[index],
        }
    }

    /// Every `step`-th index from `first` on: how far the first one moves, and the step from there.
    fn picked(&self, first: usize, step: isize, len: usize) -> (isize, Self) {
        match self {
            Self::Strided(stride) => {
                (if len == 0 { 0 } else { self.at(first) }, Self::Strided(stride.wrapping_mul(step)))
            }
            Self::Indexed(table) => Self::through(len, |nth| table[first.wrapping_add_signed(signed(nth) * step)]),
        }
    }

    /// Through `len` places: how far the first is away, and the step from there. One stride where one walks them all, so
    /// that a single row or a run of rows lies as dense as any array.
    fn through(len: usize, place: impl Fn(usize) -> isize) -> (isize, Self) {
        if len < 2 {
            return (if len == 0 { 0 } else { place(0) }, Self::Strided(0));
        }
        let first = place(0);
        let stride = place(1) - first;
        let even = (2..len).all(|nth| place(nth) - place(nth - 1) == stride);
        let from_first = |nth| place(nth) - first;
        (first, if even { Self::Strided(stride) } else { Self::Indexed((0..len).map(from_first).collect()) })
    }
}

const fn signed(value: usize) -> isize {
    // Lengths and indices of arrays are at most `isize::MAX`, by ndarray's rules and `byte_len`.
    value.cast_signed()
}

/// An index that counts from the end if it is negative.
fn from_end(index: isize, len: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index.checked_add(signed(len))? } else { index }).ok()
}

/// The length of a range with a step, and its first index.
fn range(axis: usize, len: usize, start: isize, end: Option<isize>, step: isize) -> Result<(usize, usize)> {
    if step == 0 {
        return Err(Error::InvalidView { reason: "a slice's step can't be 0".to_owned() });
    }
    let bound = |index| {
        let place = from_end(index, len).filter(|place| *place <= len);
        place.ok_or(Error::IndexOutOfRange { axis, index: index as i128, len })
    };
    let (from, to) = (bound(start)?, end.map_or(Ok(len), bound)?);
    let span = to.saturating_sub(from);
    let count = span.div_ceil(step.unsigned_abs());
    // As ndarray has it: with a negative step the range is walked from its end.
    let first = if step < 0 && span > 0 { to - 1 } else { from };
    Ok((count, first))
}
