//! Views of a [`HostArray`]: which elements, in which order, as which type. Nothing is copied until the array is staged.

use ndarray::SliceInfoElem;
use smallvec::SmallVec;

use super::array::{HostArray, Step, View};
use super::change::{Change, Normalization};
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
        let Some(len) = self.view().shape.first().copied() else {
            return Err(Error::InvalidView { reason: "an array without axes has no rows".to_owned() });
        };
        if let Some(index) = indices.iter().find(|index| **index >= len) {
            return Err(Error::IndexOutOfRange { axis: 0, index: *index as i128, len });
        }
        let mut view = self.to_view();
        view.shape[0] = indices.len();
        byte_len(&view.shape, view.dtype())?;
        let (moved, step) = Step::through(indices.len(), |nth| self.view().steps[0].at(indices[nth]));
        view.steps[0] = step;
        view.changes =
            self.view().changes.iter().map(|change| change.picked(0, indices.len(), |nth| indices[nth])).collect();
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
        let mut view = View { shape: SmallVec::new(), steps: SmallVec::new(), ..self.to_view() };
        let mut offset = 0;
        let mut axis = 0;
        for elem in info {
            match *elem {
                SliceInfoElem::NewAxis => {
                    let place = view.shape.len();
                    view.rechange(|change| change.renumbered(|axis| axis + usize::from(axis >= place)));
                    view.shape.push(1);
                    view.steps.push(Step::Strided(0));
                    continue;
                }
                SliceInfoElem::Index(index) => {
                    let place =
                        from_end(index, self.view().shape[axis]).filter(|place| *place < self.view().shape[axis]);
                    let place = place.ok_or(Error::IndexOutOfRange {
                        axis,
                        index: index as i128,
                        len: self.view().shape[axis],
                    })?;
                    offset += self.view().steps[axis].at(place);
                    let gone = view.shape.len();
                    view.rechange(|change| {
                        change.fixed(gone, place).renumbered(|axis| axis - usize::from(axis > gone))
                    });
                }
                SliceInfoElem::Slice { start, end, step } => {
                    let (len, first) = range(axis, self.view().shape[axis], start, end, step)?;
                    let kept = view.shape.len();
                    view.rechange(|change| {
                        change.picked(kept, len, |nth| first.wrapping_add_signed(signed(nth) * step))
                    });
                    view.shape.push(len);
                    let (moved, picked) = self.view().steps[axis].picked(first, step, len);
                    offset += moved;
                    view.steps.push(picked);
                }
            }
            axis += 1;
        }
        Ok(view.moved(offset))
    }

    /// The boxes of one size whose first elements are at those corners, one behind the other along a new first axis.
    ///
    /// Of a volume of `N` axes and `n` corners it is a view of shape `[n, size[0], .., size[N - 1]]`, whose element `k` is the
    /// box at `corners[k]`. Boxes may overlap, and a corner may come twice. Rows that were picked, at uneven distances, have no
    /// crops; so make crops first and pick from them.
    ///
    /// # Errors
    ///
    /// [`Error::IndexOutOfRange`] for a box that does not lie inside, with the axis and the box's last index there;
    /// [`Error::InvalidView`] if the array has not `N` axes or its rows were picked; [`Error::ShapeOverflow`].
    ///
    /// # Examples
    ///
    /// ```
    /// use inflight::HostArray;
    /// use ndarray::{Array2, s};
    ///
    /// # fn main() -> inflight::Result<()> {
    /// let image = Array2::from_shape_fn((5, 6), |(y, x)| 10 * y as u32 + x as u32);
    /// let crops = HostArray::from(image.clone()).crops([[0, 0], [2, 3]], [2, 3])?;
    /// assert_eq!(crops.shape(), [2, 2, 3]);
    /// let second = crops.slice(s![1, .., ..])?.to_array::<u32>()?;
    /// assert_eq!(second, image.slice(s![2..4, 3..6]).into_dyn());
    /// # Ok(()) }
    /// ```
    pub fn crops<const N: usize>(&self, corners: impl AsRef<[[usize; N]]>, size: [usize; N]) -> Result<Self> {
        let corners = corners.as_ref();
        if self.ndim() != N {
            let reason = format!("boxes of {N} axes do not fit an array of {}", self.ndim());
            return Err(Error::InvalidView { reason });
        }
        if self.view().steps.iter().any(|step| matches!(step, Step::Indexed(_))) {
            let reason = "an array whose rows were picked has no crops: pick rows of the crops".to_owned();
            return Err(Error::InvalidView { reason });
        }
        if self.view().changes.iter().filter_map(Change::channels).any(|axis| size[axis] != self.view().shape[axis]) {
            let reason = "boxes of some channels can't be cut out of normalized images: normalize the boxes".to_owned();
            return Err(Error::InvalidView { reason });
        }
        corners.iter().try_for_each(|corner| self.check_box(corner, &size))?;
        let mut view = self.to_view();
        view.rechange(|change| change.renumbered(|axis| axis + 1));
        view.shape = std::iter::once(corners.len()).chain(size).collect();
        byte_len(&view.shape, view.dtype())?;
        let offset =
            |corner: &[usize; N]| self.view().steps.iter().zip(corner).map(|(step, index)| step.at(*index)).sum();
        // The corners of boxes without elements may lie behind the last element.
        let offsets: Vec<isize> = if view.is_empty() { Vec::new() } else { corners.iter().map(offset).collect() };
        let (moved, step) = Step::through(offsets.len(), |nth| offsets[nth]);
        view.steps.insert(0, step);
        Ok(view.moved(moved))
    }

    /// Refuses a box that does not lie inside.
    fn check_box(&self, corner: &[usize], size: &[usize]) -> Result<()> {
        for (axis, ((from, size), len)) in corner.iter().zip(size).zip(&self.view().shape).enumerate() {
            if from.checked_add(*size).is_none_or(|end| end > *len) {
                let index = *from as i128 + (*size as i128 - 1).max(0);
                return Err(Error::IndexOutOfRange { axis, index, len: *len });
            }
        }
        Ok(())
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
        Ok(self.reordered(axes))
    }

    /// The same; `axes` names each axis once.
    pub(crate) fn reordered(&self, axes: &[usize]) -> Self {
        let mut view = self.to_view();
        view.shape = axes.iter().map(|axis| self.view().shape[*axis]).collect();
        view.steps = axes.iter().map(|axis| self.view().steps[*axis].clone()).collect();
        view.rechange(|change| change.renumbered(|of| axes.iter().position(|axis| *axis == of).unwrap_or(of)));
        view.shared()
    }

    /// Walks an axis with indices backwards.
    pub(crate) fn flip(&mut self, axis: usize) {
        self.change(|view| {
            let len = view.shape[axis];
            let (moved, step) = view.steps[axis].picked(len - 1, -1, len);
            view.steps[axis] = step;
            view.rechange(|change| change.picked(axis, len, |nth| len - 1 - nth));
            view.bytes = view.bytes.clone().moved(moved * signed(view.stored.size()));
        });
    }

    /// Keeps the first index of an axis alone.
    pub(crate) fn keep_first(&mut self, axis: usize) {
        self.change(|view| {
            view.shape[axis] = 1;
            view.rechange(|change| change.picked(axis, 1, |nth| nth));
        });
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
        let is_other = self.dtype() != dtype;
        self.clone().changed(is_other.then_some(Change::Cast(dtype)))
    }

    /// Images as numbers about 0: `(x * scale - mean) / std`, with a mean and a deviation for each channel.
    ///
    /// The channels are the last axis (NHWC) or the third from the end (NCHW), whichever has as many indices as there are
    /// means; [`normalized_along`](Self::normalized_along) says which where both have. One mean and one deviation serve all
    /// channels. Elements are `u8`, and become `T`: `f32`, [`half::f16`] or [`half::bf16`]. It is computed in `f32`,
    /// each of the three operations rounded, and the result rounded once more to `T`; for pixels in 0 to 1 `scale` is 1/255.
    /// [`permuted_axes`](Self::permuted_axes) before or after it makes NCHW of NHWC.
    ///
    /// # Errors
    ///
    /// [`Error::DtypeMismatch`] if the elements are not `u8`, [`Error::LengthMismatch`] if there are not as many deviations as
    /// means, [`Error::InvalidView`] if no axis or both have as many indices, for another `T`, and for numbers that are not
    /// finite, or deviations of 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> inflight::Result<()> {
    /// use inflight::HostArray;
    ///
    /// let images = HostArray::zeros::<u8>((16, 32, 32, 3))?;
    /// let ready = images.normalized::<f32>(1.0 / 255.0, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])?;
    /// assert_eq!(ready.permuted_axes([0, 3, 1, 2])?.shape(), [16, 3, 32, 32]);
    /// # Ok(()) }
    /// ```
    pub fn normalized<T: Element>(&self, scale: f32, mean: impl AsRef<[f32]>, std: impl AsRef<[f32]>) -> Result<Self> {
        let (mean, std) = (mean.as_ref(), std.as_ref());
        if mean.len() == 1 {
            return self.with_normalization::<T>(None, scale, mean, std);
        }
        let count = self.ndim();
        let candidates = [count.checked_sub(1), count.checked_sub(3)].into_iter().flatten();
        let fitting: SmallVec<[usize; 2]> = candidates.filter(|axis| self.view().shape[*axis] == mean.len()).collect();
        match fitting.as_slice() {
            [axis] => self.with_normalization::<T>(Some(*axis), scale, mean, std),
            [] => {
                let (shape, means) = (&self.view().shape, mean.len());
                let reason =
                    format!("neither the last axis nor the third from the end of {shape:?} has {means} channels");
                Err(Error::InvalidView { reason })
            }
            _ => {
                let reason = format!("two axes of {:?} may be the channels: use normalized_along", self.view().shape);
                Err(Error::InvalidView { reason })
            }
        }
    }

    /// As [`normalized`](Self::normalized), with the axis of the channels.
    ///
    /// # Errors
    ///
    /// As for [`normalized`](Self::normalized), and [`Error::InvalidView`] if there is no such axis, or it has not as many
    /// indices as there are means.
    pub fn normalized_along<T: Element>(
        &self,
        axis: usize,
        scale: f32,
        mean: impl AsRef<[f32]>,
        std: impl AsRef<[f32]>,
    ) -> Result<Self> {
        let (mean, std) = (mean.as_ref(), std.as_ref());
        if self.view().shape.get(axis).is_none_or(|len| *len != mean.len()) {
            let reason = format!("axis {axis} of {:?} does not have {} channels", self.view().shape, mean.len());
            return Err(Error::InvalidView { reason });
        }
        self.with_normalization::<T>(Some(axis), scale, mean, std)
    }

    fn with_normalization<T: Element>(
        &self,
        axis: Option<usize>,
        scale: f32,
        mean: &[f32],
        std: &[f32],
    ) -> Result<Self> {
        if self.dtype() != Dtype::U8 {
            return Err(Error::DtypeMismatch { field: None, asked: Dtype::U8, found: self.dtype() });
        }
        if !matches!(T::DTYPE, Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
            let reason = format!("images are normalized to float32, float16 or bfloat16, not to {}", T::DTYPE);
            return Err(Error::InvalidView { reason });
        }
        if std.len() != mean.len() {
            return Err(Error::LengthMismatch { expected: mean.len(), found: std.len() });
        }
        let finite = mean.iter().chain(std).chain([&scale]).all(|value| value.is_finite());
        if !finite || std.contains(&0.0) {
            let reason = "scale, means and deviations must be finite, and deviations not 0".to_owned();
            return Err(Error::InvalidView { reason });
        }
        let mut view = self.to_view();
        let (mean, std, dtype) = (mean.into(), std.into(), T::DTYPE);
        view.changes.push(Change::Normalize(Normalization { scale, mean, std, axis, dtype }));
        byte_len(&view.shape, dtype)?;
        Ok(view.shared())
    }
}

impl View {
    fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Begins so many elements further on, or back. Without elements it stays: its memory may hold none.
    fn moved(mut self, elements: isize) -> HostArray {
        if elements != 0 && !self.is_empty() {
            self.bytes = self.bytes.moved(elements * signed(self.stored.size()));
        }
        self.shared()
    }

    fn rechange(&mut self, change: impl Fn(&Change) -> Change) {
        for each in &mut self.changes {
            *each = change(each);
        }
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
