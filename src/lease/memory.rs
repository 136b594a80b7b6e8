//! [`ReadSource`] and [`WriteTarget`]: memory of the user's own, as [`Device::read`](crate::Device::read) and
//! [`Device::write`](crate::Device::write) take it.
#![expect(unsafe_code, reason = "copies are enqueued by address")]

use std::marker::PhantomData;

use super::{Lease, LeaseStream};
use crate::backend::StreamHandle;
use crate::device::Shared;
use crate::dtype::Element;
use crate::error::Result;
use crate::readback::on_stream::Source;

/// Memory that [`Device::read`](crate::Device::read) can read: [`HostSlice`](crate::HostSlice), cudarc's `CudaSlice`,
/// `CudaView` and `CudaViewMut`, and a [`View`](crate::View) of a CUDA stream. Sealed.
pub trait ReadSource<T: Element> {
    /// Its shape in elements.
    #[doc(hidden)]
    fn extent(&self) -> Vec<usize>;

    /// Enqueues a copy of it to `dst` on `stream`.
    ///
    /// # Safety
    ///
    /// `dst` is valid for writes of its bytes until an event recorded on `stream` after this call has fired.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "the trait is sealed")]
    unsafe fn enqueue(&self, device: &Shared, stream: &StreamHandle, dst: *mut u8) -> Result<()>;
}

/// Memory that [`Device::write`](crate::Device::write) can write to: `&HostSlice`, and `&mut` of whatever is cudarc's
/// `DevicePtrMut` (`CudaSlice`, `CudaViewMut`). Sealed.
pub trait WriteTarget<T: Element> {
    /// Whether an array of that shape fits, element for element.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch).
    #[doc(hidden)]
    fn expect_shape(&self, shape: &[usize]) -> Result<()>;

    /// Enqueues a copy of a field into it on the lease's stream, which comes after the field's arrival.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), or a driver's error.
    #[doc(hidden)]
    fn enqueue<S: LeaseStream>(self, lease: &Lease<S>, field: &str) -> Result<()>;
}

/// The user's memory as what a read-back reads from.
pub(crate) struct Users<'a, T, M>(pub(crate) &'a M, pub(crate) PhantomData<T>);

impl<T: Element, M: ReadSource<T>> Source for Users<'_, T, M> {
    unsafe fn enqueue(&self, device: &Shared, stream: &StreamHandle, dst: *mut u8) -> Result<()> {
        // SAFETY: the contract of this method.
        unsafe { self.0.enqueue(device, stream, dst) }
    }
}
