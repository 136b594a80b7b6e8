//! [`HostArray`]: an array on the host with any element type and strides, shared and read-only. Its views are in `view.rs`.

use std::any::Any;
use std::sync::Arc;

use ndarray::{ArrayD, Dimension};
use smallvec::SmallVec;

use super::change::Change;
use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result};
use crate::memory::{HostBytes, Owner};
use crate::staging::gather;
use crate::staging::pinned::byte_len;

/// How to get from an axis' first index to another. The first is always where the array begins.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// So many elements further for each index.
    Strided(isize),
    /// So many elements from the first index, for each; for places that no one stride walks, so of two or more.
    Indexed(Arc<[isize]>),
}

/// An array on the host: any element type, any strides, owned or shared.
///
/// Made from an [`ndarray::Array`] or [`ndarray::ArcArray`], a vector, slice, fixed-size array or single element, without
/// copying any. There is no `From<ArrayView>`: a copy to the device outlives the call that begins it, and so must what it
/// reads, whatever becomes of the future; borrowed memory can't promise that. Share an `ArcArray` instead, or register it.
///
/// Cheap to clone, and views ([`select_rows`](Self::select_rows), [`slice`](Self::slice),
/// [`crops`](Self::crops), [`permuted_axes`](Self::permuted_axes), [`cast`](Self::cast)) cost nothing until the array is staged. On the device it
/// becomes C-contiguous in logical order, unless [`Relayout::Preserve`](crate::Relayout::Preserve) keeps it as it lies.
#[derive(Clone)]
pub struct HostArray(Arc<View>);

/// Which elements of some memory, in which order, as which type.
#[derive(Clone)]
pub(super) struct View {
    pub(super) bytes: HostBytes,
    /// The type of the elements in memory.
    pub(super) stored: Dtype,
    pub(super) shape: SmallVec<[usize; 4]>,
    pub(super) steps: SmallVec<[Step; 4]>,
    /// Conversions on the way, in order.
    pub(super) changes: Vec<Change>,
    /// Whether its bytes lie in memory one behind the other in logical order, and are not converted; found out once.
    pub(super) is_dense: bool,
}

impl View {
    /// The array that it is.
    pub(super) fn shared(mut self) -> HostArray {
        self.is_dense = self.lies_dense();
        HostArray(Arc::new(self))
    }

    fn lies_dense(&self) -> bool {
        let mut expected = 1;
        self.changes.is_empty()
            && self.shape.iter().zip(&self.steps).rev().all(|(len, step)| {
                // The one index of an axis of length 1 is where the array begins, whatever its stride.
                let is_next = *len == 1 || matches!(step, Step::Strided(stride) if *stride == expected);
                let product = isize::try_from(*len).ok().and_then(|len| len.checked_mul(expected));
                expected = product.unwrap_or(0);
                is_next && product.is_some()
            })
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.changes.last().map_or(self.stored, Change::dtype)
    }
}

impl HostArray {
    /// An array over `bytes`, which begin at its first element.
    pub(crate) fn over(bytes: HostBytes, stored: Dtype, shape: &[usize], strides: &[isize]) -> Self {
        let steps = strides.iter().map(|stride| Step::Strided(*stride)).collect();
        View { bytes, stored, shape: SmallVec::from_slice(shape), steps, changes: Vec::new(), is_dense: false }.shared()
    }

    /// A C-contiguous array over `bytes`. The shape's bytes fit an address space.
    pub(crate) fn dense(bytes: HostBytes, stored: Dtype, shape: &[usize]) -> Self {
        Self::over(bytes, stored, shape, &standard_strides(shape))
    }

    /// What it is a view of, to make another one.
    pub(super) fn to_view(&self) -> View {
        View::clone(&self.0)
    }

    fn into_view(self) -> View {
        Arc::unwrap_or_clone(self.0)
    }

    /// Changes it, in place where nobody shares it.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut View)) {
        let view = Arc::make_mut(&mut self.0);
        change(view);
        view.is_dense = view.lies_dense();
    }

    pub(super) fn view(&self) -> &View {
        &self.0
    }

    /// What keeps its memory.
    pub(crate) fn owner(&self) -> &Owner {
        self.0.bytes.owner()
    }

    /// The type that its elements have on the device.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype()
    }

    /// Its shape in elements.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Its number of axes.
    pub fn ndim(&self) -> usize {
        self.0.shape.len()
    }

    /// Its number of elements.
    pub fn len(&self) -> usize {
        self.0.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.shape.contains(&0)
    }

    /// Its length on the device in bytes; `usize::MAX` if an address space does not hold it.
    pub fn bytes(&self) -> usize {
        byte_len(&self.0.shape, self.dtype()).unwrap_or(usize::MAX)
    }

    /// Whether its bytes lie in memory as they will on the device, so that nothing must be gathered.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous_bytes().is_some()
    }

    /// The address of its first element. Comparing it shows whether an array was copied.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.bytes.ptr()
    }

    /// Copies it into an array of its own, in logical order.
    ///
    /// # Errors
    ///
    /// [`Error::DtypeMismatch`] if its elements are not `T`, [`Error::ShapeOverflow`], and [`Error::OutOfMemory`] if the
    /// system does not give the memory.
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>> {
        if self.dtype() != T::DTYPE {
            return Err(Error::DtypeMismatch { field: None, asked: T::DTYPE, found: self.dtype() });
        }
        let bytes = byte_len(&self.0.shape, T::DTYPE)?;
        let elements = gather::to_vec(self).map_err(|_| Error::out_of_host_memory(bytes))?;
        ArrayD::from_shape_vec(self.0.shape.to_vec(), elements)
            .map_err(|_| Error::shape_overflow(&self.0.shape, T::DTYPE))
    }

    /// An array of zeros. It takes no memory on the host, whatever its shape.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeOverflow`].
    pub fn zeros<T: Element>(shape: impl ndarray::IntoDimension) -> Result<Self> {
        let dim = shape.into_dimension();
        byte_len(dim.slice(), T::DTYPE)?;
        let one = HostBytes::owned([T::default()]);
        Ok(Self::over(one, T::DTYPE, dim.slice(), &vec![0; dim.ndim()]))
    }

    /// An array over a slice that `owner` gives.
    ///
    /// `owner` is asked once, and kept until no copy needs it.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`] if the slice has not as many elements as the shape, [`Error::ShapeOverflow`].
    pub fn from_owner<T: Element>(
        owner: impl AsRef<[T]> + Send + Sync + 'static,
        shape: impl ndarray::IntoDimension,
    ) -> Result<Self> {
        let dim = shape.into_dimension();
        let expected = byte_len(dim.slice(), T::DTYPE)?;
        let bytes = HostBytes::owned(owner);
        bytes.expect_len(expected)?;
        Ok(Self::dense(bytes, T::DTYPE, dim.slice()))
    }

    /// An array over bytes that `owner` gives, in this machine's byte order; they need not be aligned.
    ///
    /// `owner` is asked once, and kept until no copy needs it.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`] if there are not as many bytes as the shape has, [`Error::ShapeOverflow`], and
    /// [`Error::InvalidBool`] for a byte of a `bool` array that is neither 0 nor 1.
    pub fn from_bytes(
        owner: impl AsRef<[u8]> + Send + Sync + 'static,
        dtype: Dtype,
        shape: impl ndarray::IntoDimension,
    ) -> Result<Self> {
        let dim = shape.into_dimension();
        let expected = byte_len(dim.slice(), dtype)?;
        let (bytes, checked) = HostBytes::inspected(owner, |bytes| check_bools(dtype, bytes));
        bytes.expect_len(expected)?;
        checked?;
        Ok(Self::dense(bytes, dtype, dim.slice()))
    }

    /// The device whose copies need no staging of this memory.
    pub(crate) fn page_locked(&self) -> Option<u64> {
        self.0.bytes.page_locked()
    }

    /// Whether its memory is a file's, mapped shared and read-only.
    pub(crate) fn is_of_file(&self) -> bool {
        self.0.bytes.is_of_file()
    }

    /// The same array in memory that a device knows, kept by `guard` as well.
    pub(crate) fn locked_for(self, device: u64, guard: Arc<dyn Any + Send + Sync>) -> Self {
        let mut view = self.into_view();
        view.bytes = view.bytes.locked_for(device, guard);
        view.shared()
    }

    /// Where the memory of its elements begins and how long it is, whatever its strides.
    pub(crate) fn span(&self) -> (*const u8, usize) {
        if self.is_empty() {
            return (self.0.bytes.ptr(), 0);
        }
        let (mut first, mut last) = (0, 0);
        for (len, step) in self.0.shape.iter().zip(&self.0.steps) {
            let (low, high) = match step {
                Step::Strided(stride) => {
                    let end = stride * (len - 1).cast_signed();
                    (end.min(0), end.max(0))
                }
                Step::Indexed(table) => table.iter().fold((0, 0), |(low, high), at| (low.min(*at), high.max(*at))),
            };
            first += low;
            last += high;
        }
        let size = self.0.stored.size();
        let begin = self.0.bytes.ptr().wrapping_offset(first * size.cast_signed());
        (begin, (last - first).unsigned_abs() * size + size)
    }

    /// The address of its bytes, if they lie in memory one behind the other in logical order.
    pub(crate) fn contiguous_bytes(&self) -> Option<*const u8> {
        self.0.is_dense.then(|| self.0.bytes.ptr())
    }

    /// Whether it is contiguous, of that type and of that shape.
    pub(crate) fn is_dense_as(&self, dtype: Dtype, shape: &[usize]) -> bool {
        // Of contiguous elements none are converted.
        self.0.is_dense && self.0.stored == dtype && self.0.shape.as_slice() == shape
    }

    /// The same elements as they are stored.
    pub(crate) fn unchanged(&self) -> Self {
        View { changes: Vec::new(), ..self.to_view() }.shared()
    }

    /// The same with one more conversion on the way.
    pub(crate) fn changed(self, change: Option<Change>) -> Self {
        let mut view = self.into_view();
        view.changes.extend(change);
        view.shared()
    }

    pub(crate) fn stored(&self) -> Dtype {
        self.0.stored
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0.steps
    }

    pub(crate) fn changes(&self) -> &[Change] {
        &self.0.changes
    }
}

/// Refuses bytes that are no elements: those of a `bool` array must be 0 or 1.
pub(crate) fn check_bools(dtype: Dtype, bytes: &[u8]) -> Result<()> {
    let odd = if dtype == Dtype::Bool { bytes.iter().position(|byte| *byte > 1) } else { None };
    odd.map_or(Ok(()), |index| Err(Error::InvalidBool { index, byte: bytes[index] }))
}

/// Strides of a C-contiguous array, in elements. The shape's bytes fit an address space.
fn standard_strides(shape: &[usize]) -> SmallVec<[isize; 4]> {
    let mut next = 1_isize;
    let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, shape.len());
    for (stride, len) in strides.iter_mut().zip(shape).rev() {
        *stride = next;
        next = next.saturating_mul(isize::try_from(*len).unwrap_or(isize::MAX));
    }
    strides
}

impl std::fmt::Debug for HostArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("HostArray");
        debug.field("dtype", &self.dtype()).field("shape", &self.0.shape);
        debug.field("contiguous", &self.is_contiguous()).finish_non_exhaustive()
    }
}

impl<T: Element, D: Dimension> From<ndarray::Array<T, D>> for HostArray {
    /// Takes the array over as it lies in memory: nothing is copied, whatever its strides.
    fn from(array: ndarray::Array<T, D>) -> Self {
        let (shape, strides): (SmallVec<[usize; 4]>, SmallVec<[isize; 4]>) =
            (array.shape().into(), array.strides().into());
        let (elements, offset) = array.into_raw_vec_and_offset();
        Self::over(HostBytes::owned(elements).advanced::<T>(offset.unwrap_or(0)), T::DTYPE, &shape, &strides)
    }
}

impl<T: Element, D: Dimension + 'static> From<ndarray::ArcArray<T, D>> for HostArray {
    /// Shares the array: other owners copy if they write.
    fn from(array: ndarray::ArcArray<T, D>) -> Self {
        let (shape, strides): (SmallVec<[usize; 4]>, SmallVec<[isize; 4]>) =
            (array.shape().into(), array.strides().into());
        Self::over(HostBytes::shared_array(array), T::DTYPE, &shape, &strides)
    }
}

macro_rules! from_slices {
    ($($(#[$size:meta])? [$($generic:tt)*] $type:ty),* $(,)?) => {$(
        impl<T: Element, $($generic)*> From<$type> for HostArray {
            fn from(elements: $type) -> Self {
                let len = elements.len();
                Self::over(HostBytes::owned(elements), T::DTYPE, &[len], &[1])
            }
        }
    )*};
}

from_slices! {
    [] Vec<T>,
    [] Box<[T]>,
    [] Arc<[T]>,
    [const N: usize] [T; N],
}

impl<T: Element> From<T> for HostArray {
    fn from(element: T) -> Self {
        Self::over(HostBytes::owned([element]), T::DTYPE, &[], &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, s};

    #[test]
    fn a_span_holds_all_elements_and_no_more() {
        let array = HostArray::from(Array2::<f32>::zeros((4, 6)));
        let base = array.as_ptr();
        assert_eq!(array.span(), (base, 96));
        let reversed = array.slice(s![..;-1, ..;-1]).unwrap();
        assert_eq!(reversed.span(), (base, 96));
        let stepped = array.slice(s![1..3, ..;2]).unwrap();
        assert_eq!(stepped.span(), (base.wrapping_add(24), 44));
        let picked = array.select_rows([3, 0, 2]).unwrap();
        assert_eq!(picked.span(), (base, 96));
        assert_eq!(HostArray::zeros::<f64>((10, 10)).unwrap().span().1, 8);
        assert_eq!(array.cast::<f64>().span(), (base, 96));
    }
}
