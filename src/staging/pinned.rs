//! [`PinnedArray`]: an array in page-locked memory, written in place and sent without a staging copy.
#![expect(unsafe_code, reason = "an array is laid over a block of page-locked memory")]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ndarray::{ArrayRef, ArrayViewMut, Dimension, RawArrayViewMut, StrideShape};

use super::PinnedBlock;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::memory::HostBytes;
use crate::{Dtype, HostArray};

/// An array in page-locked memory of a device, C-contiguous, or as [`Relayout::Preserve`](crate::Relayout::Preserve) left a
/// field that was read back.
///
/// Derefs to [`ndarray::ArrayRef`]: index it, iterate it, `assign` to it. Made by [`Device::pinned`], or by a read-back.
/// Sent to the device that made it, its bytes are not copied on the host. It can't become an [`ndarray::Array`], which
/// owns its memory in one way only.
///
/// [`Device::pinned`]: crate::Device::pinned
pub struct PinnedArray<T: Element, D: Dimension> {
    view: ArrayViewMut<'static, T, D>,
    /// Keeps the memory; `None` for an array without elements.
    block: Option<PinnedBlock>,
}

impl<T: Element, D: Dimension> PinnedArray<T, D> {
    /// Lays an array over the block's first bytes.
    ///
    /// The block must hold as many bytes as the shape has, which is dense in whatever order; fewer are an error.
    pub(crate) fn over(block: Option<PinnedBlock>, shape: StrideShape<D>) -> Result<Self> {
        let bytes = byte_len(shape.raw_dim().slice(), T::DTYPE)?;
        let room = block.as_ref().map_or(0, PinnedBlock::bytes);
        if bytes > room {
            return Err(Error::LengthMismatch { expected: bytes, found: room });
        }
        let first = block.as_ref().map_or(std::ptr::null_mut(), PinnedBlock::ptr).cast::<T>();
        let first = if bytes == 0 { std::ptr::NonNull::dangling().as_ptr() } else { first };
        // SAFETY: the shape's bytes fit the block, which is aligned to 256 bytes, initialised when it was allocated, and
        // owned by this array alone (invariant 9's pools hand a block to one owner). Any bytes are a value of `T`, except
        // for `bool`, whose blocks `Device::pinned` and read-backs fill with 0 and 1 only.
        let raw = unsafe { RawArrayViewMut::from_shape_ptr(shape, first) };
        // SAFETY: as above; the memory lives as long as `block`, which is dropped after the view is gone from use.
        let view = unsafe { raw.deref_into_view_mut() };
        Ok(Self { view, block })
    }

    /// Turns it into a [`HostArray`], which can be cloned and so be sent more than once.
    pub fn share(self) -> HostArray {
        let Self { mut view, block } = self;
        let base = view.as_mut_ptr().cast_const().cast::<u8>();
        let (shape, strides) = (view.shape().to_vec(), view.strides().to_vec());
        let device = block.as_ref().map(|block| block.device().id);
        // SAFETY: the view's elements lie in the block, which the bytes keep; the view, through which alone they could be
        // written, ends here.
        let bytes = unsafe { HostBytes::kept(base, Arc::new(block), device) };
        HostArray::over(bytes, T::DTYPE, &shape, &strides)
    }
}

/// Bytes of an array, if an address space holds them.
pub(crate) fn byte_len(shape: &[usize], dtype: Dtype) -> Result<usize> {
    let overflow = || Error::shape_overflow(shape, dtype);
    // Every prefix is checked, as ndarray does: a zero does not excuse a product that overflows.
    let mut nonzero = shape.iter().filter(|len| **len != 0);
    let product = nonzero.try_fold(dtype.size(), |bytes, len| bytes.checked_mul(*len)).ok_or_else(overflow)?;
    if isize::try_from(product).is_err() {
        return Err(overflow());
    }
    Ok(if shape.contains(&0) { 0 } else { product })
}

impl<T: Element, D: Dimension> Deref for PinnedArray<T, D> {
    type Target = ArrayRef<T, D>;

    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<T: Element, D: Dimension> DerefMut for PinnedArray<T, D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.view
    }
}

impl<T: Element, D: Dimension> From<PinnedArray<T, D>> for HostArray {
    fn from(array: PinnedArray<T, D>) -> Self {
        array.share()
    }
}

impl<T: Element, D: Dimension> std::fmt::Debug for PinnedArray<T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedArray")
            .field("dtype", &T::DTYPE)
            .field("shape", &self.view.shape())
            .finish_non_exhaustive()
    }
}
