//! [`DeviceBatch`] and [`DeviceArray`]: what arrived, under the names that it had on the host.

use std::any::Any;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::{SmallVec, smallvec};

use super::core::GroupState;
use super::{BatchOwner, Cursor, HostBatch};
use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result, Returned};
use crate::lease::{Lease, LeaseStream};
use crate::plan::{Explanation, Field};
use crate::reactor::{Key, Waiters};
use crate::readback::{BatchReadback, Origin, ReadCore, Readback};
use crate::staging::Reads;
use crate::sync::lock;

/// A batch in device memory: named arrays, C-contiguous unless [`Relayout::Preserve`](crate::Relayout::Preserve) kept one as
/// it lay, which [`DeviceArray::strides`] tells.
///
/// Cheap to clone; clones are the same memory. The memory is used again when the last clone, array and lease are gone and
/// all work queued on leases is done.
#[derive(Clone, Debug)]
pub struct DeviceBatch {
    core: BatchOwner,
    /// The fields that this handle shows; all if `None`.
    shown: Option<Arc<[usize]>>,
}

impl DeviceBatch {
    pub(crate) const fn new(core: BatchOwner) -> Self {
        Self { core, shown: None }
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        let all: Range<usize> = 0..if self.shown.is_some() { 0 } else { self.core.layout.fields.len() };
        all.chain(self.shown.iter().flat_map(|shown| shown.iter().copied()))
    }

    fn place(&self, name: &str) -> Result<usize> {
        let found = self.places().find(|place| self.core.layout.names[*place] == name);
        found.ok_or_else(|| Error::UnknownField {
            field: name.to_owned(),
            names: self.names().map(str::to_owned).collect(),
        })
    }

    /// Takes the batch into use by a compute stream, which is ordered after the copies on the device.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for a stream of another device, [`Error::Borrowed`] while another lease writes to the batch,
    /// and the cause if the device is lost.
    pub fn on<S: LeaseStream>(&self, stream: &S) -> Result<Lease<S>> {
        Lease::new(self.core.clone(), stream)
    }

    /// One of its arrays.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`], which lists the names.
    pub fn field(&self, name: &str) -> Result<DeviceArray> {
        Ok(DeviceArray { core: self.core.clone(), place: self.place(name)? })
    }

    /// The names of its arrays, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places().map(|place| &*self.core.layout.names[place])
    }

    /// The length of the first axis of its first array, if it has one.
    pub fn rows(&self) -> Option<usize> {
        let first = self.places().next()?;
        self.core.layout.fields[first].dims.shape.first().copied()
    }

    /// Its place in its pipeline, from 0.
    pub fn index(&self) -> u64 {
        self.core.index
    }

    /// What [`HostBatch::with_meta`] put in, if it is an `M`.
    pub fn meta<M: Any + Send + Sync>(&self) -> Option<&M> {
        self.core.meta.as_ref()?.downcast_ref()
    }

    /// Where the loader can resume after this batch, if it said.
    pub fn cursor(&self) -> Option<Cursor> {
        self.core.cursor
    }

    /// Which way each of its arrays came, what that cost, and why.
    pub fn explain(&self) -> Explanation {
        self.core.layout.explain(self.places())
    }

    /// Whether all of it has arrived.
    pub fn is_ready(&self) -> bool {
        self.places().all(|place| self.core.state(self.core.layout.fields[place].group) == GroupState::Arrived)
    }

    /// A handle on the same memory that shows only these arrays, in this order.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`], which lists the names; [`Error::DuplicateField`] for a name that is given twice.
    pub fn select<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self> {
        let places: Result<Vec<_>> = names.into_iter().map(|name| self.place(name.as_ref())).collect();
        let chosen = Self { core: self.core.clone(), shown: Some(places?.into()) };
        match super::repeated(chosen.names()) {
            Some(field) => Err(Error::DuplicateField { field: field.to_owned(), batch: Returned::default() }),
            None => Ok(chosen),
        }
    }

    /// Reads all of its arrays back, after its arrival and after what ended leases have written.
    pub fn read_back(&self) -> BatchReadback {
        let mut batch = HostBatch::new();
        if let Some(meta) = &self.core.meta {
            batch = batch.with_shared_meta(meta.clone());
        }
        if let Some(cursor) = self.core.cursor {
            batch = batch.with_cursor(cursor);
        }
        let mut reads: Reads = SmallVec::new();
        for place in self.places() {
            match read_field(&self.core, place) {
                Ok(read) => reads.push(read),
                Err(error) => {
                    reads.iter().for_each(|read| read.finish(Err(error.clone())));
                    return BatchReadback::failed(error);
                }
            }
        }
        ReadCore::start(reads.clone());
        let names = self.places().map(|place| self.core.layout.names[place].clone());
        BatchReadback::new(batch, names.zip(reads))
    }
}

/// A read-back of a field, to be begun, after its arrival and all that ended leases wrote.
fn read_field(core: &BatchOwner, place: usize) -> Result<Arc<ReadCore>> {
    let device = &core.device;
    device.check()?;
    let field = &core.layout.fields[place];
    match core.state(field.group) {
        GroupState::Staging | GroupState::Failed => return Err(core.not_queued(place)),
        GroupState::Queued | GroupState::Arrived => {}
    }
    let writers = {
        let mut usage = lock(&core.usage);
        usage.open()?;
        usage.writers()
    };
    // The read stream waits here for events that belong to others, so that `after` stays empty: it holds our own only.
    let arrival = field.group.and_then(|group| core.event(group));
    for event in arrival.into_iter().chain(&writers) {
        if let Err(error) = device.wait(&device.read_stream, event) {
            core.close_use(&device.read_stream, false, false);
            return Err(error);
        }
    }
    let read = ReadCore::new(
        device,
        (field.dtype, field.dims.clone(), field.bytes),
        core.layout.names[place].clone(),
        Origin::Field(core.clone(), place),
        SmallVec::new(),
    );
    Ok(read)
}

/// One array in device memory; keeps its batch's memory in use.
#[derive(Clone, Debug)]
pub struct DeviceArray {
    core: BatchOwner,
    place: usize,
}

impl DeviceArray {
    fn info(&self) -> &Field {
        &self.core.layout.fields[self.place]
    }

    /// Its name in the batch.
    pub fn name(&self) -> &str {
        &self.core.layout.names[self.place]
    }

    /// Its element type.
    pub fn dtype(&self) -> Dtype {
        self.info().dtype
    }

    /// Its shape in elements.
    pub fn shape(&self) -> &[usize] {
        &self.info().dims.shape
    }

    /// Its strides in elements: those of a C-contiguous array, unless [`Relayout::Preserve`](crate::Relayout::Preserve) left
    /// it as it lay.
    pub fn strides(&self) -> Vec<isize> {
        self.info().dims.strides()
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.info().bytes
    }

    /// Whether it has arrived.
    pub fn is_ready(&self) -> bool {
        self.core.state(self.info().group) == GroupState::Arrived
    }

    /// A future that resolves when it has arrived.
    pub fn ready(&self) -> Ready {
        Ready { core: self.core.clone(), place: self.place, key: Key::NONE }
    }

    /// Reads it back, after its arrival and after what ended leases have written.
    ///
    /// # Errors
    ///
    /// [`Error::DtypeMismatch`], [`Error::NotQueued`], [`Error::Borrowed`] while a lease writes to the batch, or the cause
    /// if it failed.
    pub fn read_back<T: Element>(&self) -> Result<Readback<T>> {
        self.core.typed(self.place, T::DTYPE)?;
        let read = read_field(&self.core, self.place)?;
        ReadCore::start(smallvec![read.clone()]);
        Ok(Readback::new(read))
    }

    /// The array itself, on backends whose device memory is the host's.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on other backends, [`Error::DtypeMismatch`], [`Error::NotArrived`] (this does not wait),
    /// [`Error::Borrowed`] while a lease may write to it or what one wrote is not done, or the cause if it failed.
    pub fn as_host<T: Element>(&self) -> Result<crate::HostView<'_, T>> {
        self.core.typed(self.place, T::DTYPE)?;
        if let Some(error) = self.core.failure() {
            return Err(error.clone());
        }
        if !self.is_ready() {
            return Err(Error::NotArrived { field: self.name().to_owned() });
        }
        crate::HostView::new(&self.core, self.place)
    }
}

/// Resolves when an array has arrived; from [`DeviceArray::ready`]. Owned, so that it can be sent to other tasks.
///
/// # Cancel safety
///
/// It only waits: dropping it changes nothing.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Ready {
    core: BatchOwner,
    place: usize,
    key: Key,
}

impl Ready {
    fn waiters(&self) -> &Waiters {
        &self.core.waiters
    }
}

impl Future for Ready {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.core.waiters.register(&mut this.key, context.waker());
        match this.core.state(this.core.layout.fields[this.place].group) {
            GroupState::Arrived => Poll::Ready(Ok(())),
            GroupState::Failed => Poll::Ready(Err(this.core.not_queued(this.place))),
            GroupState::Staging | GroupState::Queued => Poll::Pending,
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let mut key = std::mem::take(&mut self.key);
        self.waiters().forget(&mut key);
    }
}
