//! [`View`], [`ViewMut`]: a field's memory as work on the lease's stream may use it; [`HostView`]: as the host may read it.
#![expect(unsafe_code, reason = "arrays are laid over device memory that is the host's")]

use std::marker::PhantomData;
use std::ops::Deref;

use ndarray::{ArrayRef, ArrayView, ArrayViewD, ArrayViewMutD, IxDyn};

use super::{ComputeStream, Lease, LeaseStream};
use crate::batch::BatchCore;
use crate::device::DeviceKind;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::plan::Field;
use crate::sync::lock;

/// A field's device memory, to be read by work on the stream of the lease that it came from.
///
/// On a CUDA stream it is an argument of kernels (`builder.arg(&view)`), and what cudarc's calls copy from.
#[derive(Debug)]
pub struct View<'a, T: Element, S: LeaseStream = ComputeStream> {
    pub(super) lease: &'a Lease<S>,
    place: usize,
    pub(super) address: u64,
    element: PhantomData<&'a T>,
}

impl<T: Element, S: LeaseStream> Clone for View<'_, T, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, S: LeaseStream> Copy for View<'_, T, S> {}

impl<'a, T: Element, S: LeaseStream> View<'a, T, S> {
    pub(super) fn new(lease: &'a Lease<S>, place: usize) -> Self {
        let address = lease.core.address(lease.core.layout.fields[place].offset).addr() as u64;
        Self { lease, place, address, element: PhantomData }
    }

    fn field(&self) -> &'a Field {
        &self.lease.core.layout.fields[self.place]
    }

    /// Its shape in elements.
    pub fn shape(&self) -> &'a [usize] {
        &self.field().dims.shape
    }

    /// Its strides in elements: those of C order, unless [`Relayout::Preserve`](crate::Relayout::Preserve) left it as it lay.
    pub fn strides(&self) -> Vec<isize> {
        self.field().dims.strides()
    }

    /// Its number of elements.
    pub fn len(&self) -> usize {
        self.field().bytes / size_of::<T>()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of its first element in device memory; a multiple of 256.
    pub const fn address(&self) -> u64 {
        self.address
    }
}

/// A field's device memory, to be written by work on the stream of the lease that it came from.
#[derive(Debug)]
pub struct ViewMut<'a, T: Element, S: LeaseStream = ComputeStream>(pub(super) View<'a, T, S>);

impl<'a, T: Element, S: LeaseStream> ViewMut<'a, T, S> {
    pub(super) fn new(lease: &'a Lease<S>, place: usize) -> Self {
        Self(View::new(lease, place))
    }
}

/// Not by `Deref`: a copy of the inner view would read beside the one that writes.
impl<T: Element, S: LeaseStream> ViewMut<'_, T, S> {
    /// The same field, to be read, for as long as it is not written through this one.
    pub fn as_view(&self) -> View<'_, T, S> {
        self.0
    }

    /// Its shape in elements.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Its strides in elements; see [`View::strides`].
    pub fn strides(&self) -> Vec<isize> {
        self.0.strides()
    }

    /// Its number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address of its first element in device memory; a multiple of 256.
    pub const fn address(&self) -> u64 {
        self.0.address
    }
}

/// Where a field begins, as an address that a slice may have: aligned even if there are no bytes.
fn first<T: Element>(core: &BatchCore, place: usize) -> *mut T {
    let field = &core.layout.fields[place];
    if field.bytes == 0 { std::ptr::NonNull::dangling().as_ptr() } else { core.address(field.offset).cast() }
}

/// A field's array on a backend whose device memory is the host's, for as long as `_user` is borrowed.
///
/// Called where the field has arrived and no writer runs: in work that the stream runs in order, or under a [`HostView`].
pub(super) fn array<'a, T: Element, U>(core: &BatchCore, place: usize, _user: &'a U) -> ArrayViewD<'a, T> {
    let shape = core.layout.fields[place].dims.of_array();
    // SAFETY: the block is host memory, aligned to 256 bytes and initialised, and holds the field's elements, whose type
    // the caller checked. Invariant 3 keeps it until the work that runs now is done, or a `HostView` borrows an owner; nobody writes meanwhile:
    // writers need the only lease and are ordered against this by their stream.
    unsafe { ArrayView::from_shape_ptr(shape, first::<T>(core, place).cast_const()) }
}

/// The same, to be written.
pub(super) fn array_mut<'a, T: Element, U>(core: &BatchCore, place: usize, _user: &'a mut U) -> ArrayViewMutD<'a, T> {
    let shape = core.layout.fields[place].dims.of_array();
    // SAFETY: as in `array`; the lease is the only one, the stream is ordered after all earlier uses, and `_user` is
    // borrowed exclusively, so that this is the only array over the field.
    unsafe { ArrayViewMutD::from_shape_ptr(shape, first::<T>(core, place)) }
}

/// Two fields, one to read and one to write.
pub(super) fn array_pair<'a, A: Element, B: Element, U>(
    core: &BatchCore,
    read: usize,
    write: usize,
    _user: &'a mut U,
) -> (ArrayViewD<'a, A>, ArrayViewMutD<'a, B>) {
    let (from, to) = (core.layout.fields[read].dims.of_array(), core.layout.fields[write].dims.of_array());
    // SAFETY: as in `array_mut`.
    let read = unsafe { ArrayView::from_shape_ptr(from, first::<A>(core, read).cast_const()) };
    // SAFETY: as in `array_mut`; fields do not overlap and the caller made sure that these are two.
    let write = unsafe { ArrayViewMutD::from_shape_ptr(to, first::<B>(core, write)) };
    (read, write)
}

/// An array that arrived, read by the host; while it lives nobody can write to its batch.
///
/// From [`DeviceArray::as_host`](crate::DeviceArray::as_host), on backends whose device memory is the host's.
#[derive(Debug)]
pub struct HostView<'a, T: Element> {
    array: ArrayViewD<'a, T>,
    core: &'a BatchCore,
}

impl<'a, T: Element> HostView<'a, T> {
    pub(crate) fn new(core: &'a BatchCore, place: usize) -> Result<Self> {
        let device = &core.device;
        if !matches!(device.kind, DeviceKind::Host | DeviceKind::Simulated) {
            return Err(Error::Unsupported { what: "memory that the host can read", device: device.name.clone() });
        }
        let writers = {
            let mut usage = lock(&core.usage);
            usage.open()?;
            usage.writers()
        };
        let view = Self { array: array(core, place, core), core };
        for event in writers {
            if !device.query(&event)? {
                return Err(Error::Borrowed { reason: "work that writes to the batch is not done" });
            }
        }
        Ok(view)
    }
}

impl<T: Element> Deref for HostView<'_, T> {
    type Target = ArrayRef<T, IxDyn>;

    fn deref(&self) -> &Self::Target {
        &self.array
    }
}

impl<T: Element> Drop for HostView<'_, T> {
    fn drop(&mut self) {
        lock(&self.core.usage).close(None);
    }
}
