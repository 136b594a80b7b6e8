//! [`HostSlice`]: memory that the user owns on a device which is the host.
#![expect(unsafe_code, reason = "copies out of the slice by address")]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ndarray::{ArrayViewD, ArrayViewMutD, IntoDimension, IxDyn};

use super::memory::{ReadSource, WriteTarget};
use super::{HostStream, Lease, LeaseStream};
use crate::backend::StreamHandle;
use crate::device::Shared;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::staging::pinned::byte_len;
use crate::sync::{Mutex, MutexGuard, lock};

/// An array of the user's in the memory of a device that is the host: parameters, losses, outputs.
///
/// Cheap to clone; clones are the same memory. Work on a [`HostStream`] locks it to use it; looked at elsewhere it holds
/// whatever the stream has done so far. [`Device::read`](crate::Device::read) and [`Device::write`](crate::Device::write)
/// take their turn on the stream.
#[derive(Clone, Debug)]
pub struct HostSlice<T: Element> {
    data: Arc<Mutex<Vec<T>>>,
    shape: Arc<[usize]>,
}

impl HostStream {
    /// Memory for an array of that shape, zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeOverflow`], and [`Error::OutOfMemory`] if the system does not give the memory.
    pub fn alloc<T: Element, D: IntoDimension>(&self, shape: D) -> Result<HostSlice<T>> {
        use ndarray::Dimension;
        let dim = shape.into_dimension();
        let bytes = byte_len(dim.slice(), T::DTYPE)?;
        let len = bytes / size_of::<T>();
        let mut elements = Vec::new();
        elements.try_reserve_exact(len).map_err(|_| Error::out_of_host_memory(bytes))?;
        elements.resize(len, T::default());
        Ok(HostSlice { data: Arc::new(Mutex::new(elements)), shape: dim.slice().into() })
    }
}

impl<T: Element> HostSlice<T> {
    /// Its shape in elements.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * size_of::<T>()
    }

    /// Locks it. Called by work on the stream, or where no work is queued.
    pub fn lock(&self) -> HostGuard<'_, T> {
        HostGuard { data: lock(&self.data), shape: &self.shape }
    }
}

impl<T: Element> ReadSource<T> for HostSlice<T> {
    fn extent(&self) -> Vec<usize> {
        self.shape.to_vec()
    }

    #[expect(private_interfaces, reason = "the trait is sealed")]
    unsafe fn enqueue(&self, device: &Shared, stream: &StreamHandle, dst: *mut u8) -> Result<()> {
        struct Target(*mut u8);
        // SAFETY: the caller keeps the memory at this address for the copy alone until it is done.
        unsafe impl Send for Target {}
        impl Target {
            const fn address(&self) -> *mut u8 {
                self.0
            }
        }
        let (slice, target, bytes) = (self.clone(), Target(dst), self.bytes());
        let queue = stream.host().map_err(|_| elsewhere(device))?;
        let copy = move || {
            let data = lock(&slice.data);
            // SAFETY: the slice has `bytes` bytes, the target as many by the caller's contract, and they are apart.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr().cast::<u8>(), target.address(), bytes) };
        };
        queue.launch(Box::new(copy), "read", bytes);
        Ok(())
    }
}

impl<T: Element> WriteTarget<T> for &HostSlice<T> {
    fn expect_shape(&self, shape: &[usize]) -> Result<()> {
        if *shape == *self.shape {
            return Ok(());
        }
        Err(Error::ShapeMismatch { asked: self.shape.to_vec(), found: shape.to_vec() })
    }

    fn enqueue<S: LeaseStream>(self, lease: &Lease<S>, field: &str) -> Result<()> {
        let queue = lease.handle.host().map_err(|_| elsewhere(&lease.core.device))?;
        let (fields, slice, field) = (lease.fields()?, self.clone(), field.to_owned());
        let bytes = slice.bytes();
        let copy = move || {
            let copied = fields.checked().and_then(|fields| {
                let array = fields.view::<T>(&field)?;
                let whole = array.as_slice().ok_or(Error::Borrowed { reason: "a field is not contiguous" })?;
                slice.lock().copy_from_slice(whole);
                Ok(())
            });
            if let Err(error) = copied {
                tracing::error!(%error, "a write to device memory failed");
            }
        };
        queue.launch(Box::new(copy), "write", bytes);
        Ok(())
    }
}

/// The error for host memory and a stream that is not the host's.
fn elsewhere(device: &Shared) -> Error {
    Error::WrongDevice { what: "slice", device: device.name.clone(), owner: "the host".to_owned() }
}

/// A [`HostSlice`] that is locked: its elements in order.
#[derive(Debug)]
pub struct HostGuard<'a, T: Element> {
    data: MutexGuard<'a, Vec<T>>,
    shape: &'a [usize],
}

impl<T: Element> HostGuard<'_, T> {
    /// The elements as an array.
    pub fn array(&self) -> ArrayViewD<'_, T> {
        // SAFETY: the vector has as many elements as the shape, in standard order, and is borrowed as long as the view.
        unsafe { ArrayViewD::from_shape_ptr(IxDyn(self.shape), self.data.as_ptr()) }
    }

    /// The elements as an array to be written.
    pub fn array_mut(&mut self) -> ArrayViewMutD<'_, T> {
        // SAFETY: as above; the borrow is exclusive.
        unsafe { ArrayViewMutD::from_shape_ptr(IxDyn(self.shape), self.data.as_mut_ptr()) }
    }
}

impl<T: Element> Deref for HostGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.data
    }
}

impl<T: Element> DerefMut for HostGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data
    }
}
