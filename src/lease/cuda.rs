//! A batch's fields as cudarc's calls and kernel launches take them, and users' CUDA memory as reads and writes take it.
#![expect(unsafe_code, reason = "implements traits of cudarc and enqueues copies by address")]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg,
    SyncOnDrop,
};

use super::{Lease, LeaseStream, ReadSource, View, ViewMut, WriteTarget};
use crate::backend::{Copy, Direction, StreamHandle};
use crate::device::Shared;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::readback::on_stream::direction;

type OnCuda<'a, T> = View<'a, T, Arc<CudaStream>>;
type OnCudaMut<'a, T> = ViewMut<'a, T, Arc<CudaStream>>;

/// An address that the driver refuses, for views that can't be ordered.
const NOWHERE: u64 = 0;

impl<T: Element> DeviceSlice<T> for OnCuda<'_, T> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.lease.stream()
    }
}

impl<T: Element> DeviceSlice<T> for OnCudaMut<'_, T> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.0.lease.stream()
    }
}

impl<T: Element> DevicePtr<T> for OnCuda<'_, T> {
    /// On the lease's stream this returns at once. Any other stream is made to wait for what the lease's stream has
    /// queued, and the guard blocks until that stream is done: the lease's end does not cover its work.
    ///
    /// Where no order can be had, and while a stream is being captured, the address is one that the driver refuses.
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
        ordered(self.lease, self.address, stream)
    }
}

impl<T: Element> DevicePtr<T> for OnCudaMut<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
        ordered(self.0.lease, self.0.address, stream)
    }
}

impl<T: Element> DevicePtrMut<T> for OnCudaMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
        ordered(self.0.lease, self.0.address, stream)
    }
}

/// The address for work on `stream`, and what must happen when that work is queued.
fn ordered<'a>(lease: &'a Lease<Arc<CudaStream>>, address: u64, stream: &'a CudaStream) -> (u64, SyncOnDrop<'a>) {
    let own = lease.stream();
    let backend = &lease.core.device.backend;
    if backend.is_captured(stream) || backend.is_captured(own) {
        // A graph would be replayed when the memory is another batch's.
        return (NOWHERE, SyncOnDrop::Record(None));
    }
    if **own == *stream {
        return (address, SyncOnDrop::Record(None));
    }
    let follows = own.record_event(None).and_then(|event| stream.wait(&event)).or_else(|_| own.synchronize());
    match follows {
        Ok(()) => (address, SyncOnDrop::sync_stream(stream)),
        Err(error) => {
            stream.context().record_err::<()>(Err(error));
            (NOWHERE, SyncOnDrop::Record(None))
        }
    }
}

// SAFETY: what is pushed is the address of the view's own address, which lives as long as the reference.
unsafe impl<'a, 'b: 'a, 'c, T: Element> PushKernelArg<&'b OnCuda<'c, T>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b OnCuda<'c, T>) -> &mut Self {
        PushKernelArg::<&'b u64>::arg(self, &view.address)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, 'c, T: Element> PushKernelArg<&'b mut OnCudaMut<'c, T>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b mut OnCudaMut<'c, T>) -> &mut Self {
        let view: &'b OnCudaMut<'c, T> = view;
        PushKernelArg::<&'b u64>::arg(self, &view.0.address)
    }
}

impl<'a, T: Element> OnCuda<'a, T> {
    /// The field as what lends cudarc's `CudaView`s, for functions that take nothing else.
    ///
    /// # Safety
    ///
    /// The views, and what is made of them, are used on the lease's stream alone, or on streams that the caller orders
    /// after this one's work and before the lease's end. Nothing writes through them.
    ///
    /// # Errors
    ///
    /// The cause if the device is lost.
    pub unsafe fn as_cuda_view(&self) -> Result<CudaFieldView<'a, T>> {
        // SAFETY: the contract of this method.
        let slice = unsafe { Lent::new(self) }?;
        Ok(CudaFieldView(slice))
    }
}

impl<'a, T: Element> OnCudaMut<'a, T> {
    /// The field as what lends cudarc's `CudaViewMut`s, for functions that take nothing else.
    ///
    /// # Safety
    ///
    /// As for [`View::as_cuda_view`], but for writing.
    ///
    /// # Errors
    ///
    /// The cause if the device is lost.
    pub unsafe fn as_cuda_view_mut(self) -> Result<CudaFieldViewMut<'a, T>> {
        // SAFETY: the contract of this method.
        let slice = unsafe { Lent::new(&self.0) }?;
        Ok(CudaFieldViewMut(slice))
    }
}

/// cudarc's idea of a slice over a field, which must never free it.
#[derive(Debug)]
struct Lent<'a, T: Element> {
    slice: ManuallyDrop<CudaSlice<T>>,
    lease: PhantomData<&'a Lease<Arc<CudaStream>>>,
}

impl<'a, T: Element> Lent<'a, T> {
    /// # Safety
    ///
    /// What is made of the slice is used as the makers of views promise.
    unsafe fn new(view: &OnCuda<'a, T>) -> Result<Self> {
        view.lease.core.device.check()?;
        // SAFETY: the field has so many elements of `T` at its address, and the lease keeps it.
        let slice = unsafe { view.lease.stream().upgrade_device_ptr(view.address, view.len()) };
        Ok(Self { slice: ManuallyDrop::new(slice), lease: PhantomData })
    }
}

impl<T: Element> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here; leaking it lets go of its events and stream and of nothing else.
        let _ = unsafe { ManuallyDrop::take(&mut self.slice) }.leak();
    }
}

/// Lends a field as a `CudaView`; from [`View::as_cuda_view`].
#[derive(Debug)]
pub struct CudaFieldView<'a, T: Element>(Lent<'a, T>);

impl<T: Element> CudaFieldView<'_, T> {
    /// The view.
    pub fn view(&self) -> CudaView<'_, T> {
        self.0.slice.as_view()
    }
}

/// Lends a field as a `CudaViewMut`; from [`ViewMut::as_cuda_view_mut`].
#[derive(Debug)]
pub struct CudaFieldViewMut<'a, T: Element>(Lent<'a, T>);

impl<T: Element> CudaFieldViewMut<'_, T> {
    /// The view.
    pub fn view(&mut self) -> CudaViewMut<'_, T> {
        self.0.slice.as_view_mut()
    }
}

/// Not for all of `DevicePtr`: others could make that `HostSlice` too.
macro_rules! read_source {
    ($($of:ty),*) => {$(
        impl<T: Element> ReadSource<T> for $of {
            fn extent(&self) -> Vec<usize> {
                vec![DeviceSlice::len(self)]
            }

            #[expect(private_interfaces, reason = "the trait is sealed")]
            unsafe fn enqueue(&self, device: &Shared, stream: &StreamHandle, dst: *mut u8) -> Result<()> {
                // SAFETY: the contract of this method.
                unsafe { enqueue_read(self, device, stream, dst) }
            }
        }
    )*};
}

read_source!(CudaSlice<T>, CudaView<'_, T>, CudaViewMut<'_, T>, OnCuda<'_, T>, OnCudaMut<'_, T>);

/// Enqueues a copy of `source` to `dst` on `stream`.
///
/// # Safety
///
/// As for [`ReadSource::enqueue`].
unsafe fn enqueue_read<T>(
    source: &impl DevicePtr<T>,
    device: &Shared,
    stream: &StreamHandle,
    dst: *mut u8,
) -> Result<()> {
    let bytes = source.num_bytes();
    let direction = direction(bytes);
    let user = on_cuda(device, stream, source.stream())?;
    // Waits for writers of other streams; dropped, it tells them that the memory is being read.
    let (address, _reads) = source.device_ptr(user);
    let src = pointer(address).cast_const();
    // SAFETY: the slice has so many bytes, and its owner frees it in the order of a stream that waits for this copy;
    // `dst` is the caller's to answer for.
    let enqueued = unsafe { device.backend.copy(stream, Copy { dst, src, bytes, direction }, &[]) };
    enqueued.map_err(|fault| device.fault(fault))
}

impl<T: Element, D: DevicePtrMut<T>> WriteTarget<T> for &mut D {
    fn expect_shape(&self, shape: &[usize]) -> Result<()> {
        if shape.iter().product::<usize>() == self.len() {
            return Ok(());
        }
        Err(Error::ShapeMismatch { asked: vec![self.len()], found: shape.to_vec() })
    }

    fn enqueue<S: LeaseStream>(self, lease: &Lease<S>, field: &str) -> Result<()> {
        let device = &lease.core.device;
        let view = lease.view::<T>(field)?;
        // It may have changed since it was asked for the first time.
        self.expect_shape(view.shape())?;
        let bytes = size_of::<T>() * view.len();
        if bytes == 0 {
            return Ok(());
        }
        on_cuda(device, &lease.handle, self.stream())?;
        let StreamHandle::Cuda(queue) = &lease.handle else { return Err(elsewhere(device)) };
        let user = queue.stream().ok_or_else(|| elsewhere(device))?;
        let (address, _writes) = self.device_ptr_mut(user);
        let (src, dst) = (pointer(view.address).cast_const(), pointer(address));
        let copy = Copy { dst, src, bytes, direction: Direction::DeviceToDevice };
        // SAFETY: the lease keeps the field until work on its stream, this copy among it, is done; the slice has as many
        // bytes, and its owner frees it in the order of a stream that waits for this copy.
        let enqueued = unsafe { device.backend.copy(&lease.handle, copy, &[]) };
        enqueued.map_err(|fault| device.fault(fault))
    }
}

/// The user's stream behind a handle, if the slice of `owner` lies in the same context.
fn on_cuda<'a>(device: &Shared, stream: &'a StreamHandle, owner: &CudaStream) -> Result<&'a CudaStream> {
    let StreamHandle::Cuda(queue) = stream else { return Err(elsewhere(device)) };
    let user = queue.stream().ok_or_else(|| elsewhere(device))?;
    if user.context().cu_ctx() == owner.context().cu_ctx() { Ok(user) } else { Err(elsewhere(device)) }
}

/// The error for memory of a context that is not the stream's.
fn elsewhere(device: &Shared) -> Error {
    Error::WrongDevice { what: "slice", device: device.name.clone(), owner: "another context".to_owned() }
}

const fn pointer(address: u64) -> *mut u8 {
    std::ptr::without_provenance_mut(address as usize)
}
