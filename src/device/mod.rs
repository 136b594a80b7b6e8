//! [`Device`]: where batches go. Settings are in `builder.rs`, numbers in `stats.rs`, what its parts share in `shared.rs`.

mod builder;
mod env;
mod fetching;
mod shared;
mod sources;
mod stats;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub use builder::{DeviceBuilder, Overlap};
pub use fetching::FetchKernels;
pub(crate) use fetching::{Fetch, Fetching};
use ndarray::{IntoDimension, ShapeBuilder};
pub(crate) use shared::{Active, Asked, Flag, Shared, free_all};
pub use stats::{PipelineStats, Stats};

use crate::admission::{Decision, Grant, Pipeline, Ticket};
use crate::backend::{Rearranges, StreamHandle};
use crate::batch::{Dims, HostBatch};
use crate::dtype::Element;
use crate::error::{Error, Result, Returned};
use crate::lease::{LeaseStream, ReadSource, Users, WriteTarget};
use crate::memory::blocks::class_of;
use crate::plan::{Explanation, Layout, Plan, Relayout, Terms};
use crate::reactor::until;
use crate::readback::{Readback, on_stream};
use crate::staging::{PinnedBlock, Purpose};
use crate::{ComputeStream, Dtype, HostArray, PinnedArray, Registered, Transfer};

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The host's own memory, with copies by a thread.
    Host,
    /// One that a test drives by hand.
    Simulated,
    /// A GPU through CUDA's driver; [`Stats::hardware`] says which.
    Cuda,
}

/// A device and all that serves it: streams, staging, budgets, threads.
///
/// Cheap to clone. Its threads end by themselves when the last handle, batch, transfer and lease are gone.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
}

impl Device {
    /// The first GPU, or the host backend where there is none: no driver library, or no device. A driver that is there and
    /// does not work is an error.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceBuilder::build`].
    pub fn auto() -> Result<Self> {
        Self::builder().build()
    }

    /// The GPU of that ordinal.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none, [`Error::DriverUnavailable`] if there is no driver or it does not work, and
    /// those of [`DeviceBuilder::build`].
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Self::builder().cuda(ordinal).build()
    }

    /// The GPU of a context that the user has, whose streams and memory can then be used with it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use inflight::{Device, cudarc::driver::CudaContext};
    ///
    /// let context = CudaContext::new(0)?;
    /// let device = Device::from_context(&context)?;
    /// let compute = context.new_stream()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`DeviceBuilder::build`].
    #[cfg(feature = "cuda")]
    pub fn from_context(context: &Arc<cudarc::driver::CudaContext>) -> Result<Self> {
        Self::builder().context(context).build()
    }

    /// The host backend: device memory is the host's, copies are made by a thread.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceBuilder::build`].
    pub fn host() -> Result<Self> {
        Self::builder().host().build()
    }

    /// Settings for a device.
    pub fn builder() -> DeviceBuilder<'static> {
        DeviceBuilder::default()
    }

    /// A device as the environment asks for it.
    ///
    /// `INFLIGHT_DEVICE` is `auto`, `host` or `cuda:N`; `INFLIGHT_OVERLAP` is `on` or `off`; `INFLIGHT_STAGING_BYTES` and
    /// `INFLIGHT_MEMORY_BYTES` are numbers of bytes. What is not set keeps its default.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] for a value that can't be, and those of [`DeviceBuilder::build`].
    pub fn from_env() -> Result<Self> {
        env::from_env(|name| std::env::var_os(name))
    }

    pub(crate) const fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What kind of device it is.
    pub fn kind(&self) -> DeviceKind {
        self.shared.kind
    }

    /// Its name: `cuda:N`, `host`, or `simulated:N`.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// A new compute stream; with [`Overlap::Off`] the one that the copies share.
    ///
    /// # Errors
    ///
    /// The cause if the device is lost, or a driver's error.
    pub fn compute_stream(&self) -> Result<ComputeStream> {
        self.shared.check()?;
        if let Some(single) = &self.shared.single {
            return Ok(single.clone());
        }
        let made = ComputeStream::new(self.shared.backend.as_ref(), self.shared.id, &self.shared.name);
        made.map_err(|fault| self.shared.fault(fault))
    }

    /// Sends one batch. The await is admission: it ends when there is room and the transfer is under way.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it ends, the batch is dropped and nothing was sent. To keep it, use [`try_transfer`](Self::try_transfer).
    ///
    /// # Errors
    ///
    /// Those of admission, each holding the batch: [`Error::DuplicateField`], [`Error::ShapeOverflow`],
    /// [`Error::BatchTooLarge`], [`Error::Relayout`], [`Error::AdmissionTimeout`], [`Error::DeviceLost`], [`Error::Forked`].
    pub async fn transfer(&self, batch: impl Into<HostBatch>) -> Result<Transfer> {
        self.transfer_on(batch.into(), self.shared.terms(None)).await
    }

    async fn transfer_on(&self, batch: HostBatch, terms: Terms) -> Result<Transfer> {
        let admitted = async {
            self.shared.check()?;
            let (plan, bytes) = planned(&batch, &terms, (&self.shared, &self.shared.direct), None)?;
            let grant = admitted(&self.shared, &self.shared.direct, bytes).await?;
            Ok((plan, grant))
        };
        match admitted.await {
            Ok((plan, grant)) => Ok(Transfer::submit(&self.shared, &self.shared.direct, batch, plan, grant)),
            Err(error) => Err(Error::with_batch(error, batch)),
        }
    }

    /// Which way each array of a batch would take to this device, what that would cost, and why. Nothing is sent.
    ///
    /// It answers for [`transfer`](Self::transfer), now: whether kernels fetch rows of page-locked arrays
    /// ([`Route::Fetched`](crate::Route::Fetched)) or copies and staging threads bring them changes with what is under way.
    /// [`DeviceBatch::explain`](crate::DeviceBatch::explain) tells which it was.
    ///
    /// # Errors
    ///
    /// [`Error::DuplicateField`], [`Error::ShapeOverflow`], [`Error::BatchTooLarge`] if no address space holds it,
    /// [`Error::Relayout`] where the device's [`Relayout`] can't be kept.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> inflight::Result<()> {
    /// use inflight::{Device, Route, batch};
    ///
    /// let device = Device::host()?;
    /// let told = device.explain(&batch! { raw: vec![0_u8; 1 << 20] })?;
    /// assert_eq!(told.fields[0].route, Route::Written);
    /// println!("{told}");
    /// # Ok(()) }
    /// ```
    pub fn explain(&self, batch: &HostBatch) -> Result<Explanation> {
        let terms = self.shared.terms(None);
        let (plan, _) = planned(batch, &terms, (&self.shared, &self.shared.direct), None)?;
        Ok(plan.layout.explain(0..batch.len()))
    }

    /// Sends one batch if there is room for it now.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if there is none, else as for [`transfer`](Self::transfer); the error holds the batch.
    pub fn try_transfer(&self, batch: impl Into<HostBatch>) -> Result<Transfer> {
        let (shared, batch) = (&self.shared, batch.into());
        let terms = shared.terms(None);
        let admitted = || {
            shared.check()?;
            let (plan, bytes) = planned(&batch, &terms, (shared, &shared.direct), None)?;
            let ask =
                || shared.admission.admit(&shared.direct, bytes, &mut Ticket::default(), None, shared.clock.now());
            let mut decision = ask();
            if matches!(decision, Decision::Wait) && shared.limbo.reap(shared) {
                decision = ask();
            }
            match decision {
                Decision::Granted(grant) => Ok((plan, grant)),
                Decision::Refused(error) => Err(error),
                Decision::Wait => Err(Error::Busy { what: "device memory", bytes, batch: Returned::default() }),
            }
        };
        match admitted() {
            Ok((plan, grant)) => Ok(Transfer::submit(shared, &shared.direct, batch, plan, grant)),
            Err(error) => Err(Error::with_batch(error, batch)),
        }
    }

    /// An array in page-locked memory, for data that is written in place and sent without a staging copy.
    ///
    /// The elements of a new array are zero, those of a recycled one whatever was there before. It counts in the budget of
    /// [`DeviceBuilder::pinned_bytes`] until it and what was made of it are dropped; this waits for room.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it ends, it has taken nothing.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeOverflow`], [`Error::OutOfMemory`] for more than the budget or the machine has, or the cause if the
    /// device is lost.
    pub async fn pinned<T: Element, D: IntoDimension>(&self, shape: D) -> Result<PinnedArray<T, D::Dim>> {
        use ndarray::Dimension;
        self.shared.check()?;
        let dim = shape.into_dimension();
        let bytes = crate::staging::pinned::byte_len(dim.slice(), T::DTYPE)?;
        let block = match bytes {
            0 => None,
            _ => Some(self.shared.pinned.take(&self.shared, Purpose::User, bytes).await?),
        };
        if T::DTYPE == Dtype::Bool {
            block.iter().for_each(PinnedBlock::zero);
        }
        PinnedArray::over(block, dim.into_shape_with_order().into())
    }

    /// Makes an array's memory known to the device, so that it is sent without a staging copy, whole and again and again.
    ///
    /// Memory that the device knows already is shared. What the driver refuses, and memory that can't be written to, is sent
    /// through staging as before: see [`Registered::is_direct`]. A file is to be mapped by [`MappedFile`](crate::MappedFile).
    ///
    /// # Errors
    ///
    /// The cause if the device is lost.
    pub async fn register(&self, array: impl Into<HostArray>) -> Result<Registered> {
        self.shared.check()?;
        Registered::new(&self.shared, array.into()).await
    }

    /// Reads the user's device memory, as it is after the work queued on `stream` until now.
    ///
    /// The copy is enqueued on `stream` inside the call: what is queued afterwards may overwrite the slice, and it may be
    /// dropped. The stream is not synchronised.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if there is no room to read into right now ([`read_wait`](Self::read_wait) waits),
    /// [`Error::WrongDevice`], or the cause if the device is lost.
    pub fn read<T: Element, S: LeaseStream>(&self, slice: &impl ReadSource<T>, stream: &S) -> Result<Readback<T>> {
        self.shared.check()?;
        let (stream, layout) = (self.shared.bind(stream)?, layout::<T>(slice)?);
        let room = on_stream::try_room(&self.shared, layout.2)?;
        self.read_into(slice, layout, &stream, room)
    }

    /// As [`read`](Self::read), after waiting for room; the copy is enqueued when there is some.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it ends, nothing was enqueued.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] for more than the budget or the machine has; else as for [`read`](Self::read).
    pub async fn read_wait<T: Element, S: LeaseStream>(
        &self,
        slice: &impl ReadSource<T>,
        stream: &S,
    ) -> Result<Readback<T>> {
        self.shared.check()?;
        let (stream, layout) = (self.shared.bind(stream)?, layout::<T>(slice)?);
        let room = on_stream::room(&self.shared, layout.2).await?;
        self.read_into(slice, layout, &stream, room)
    }

    fn read_into<T: Element>(
        &self,
        slice: &impl ReadSource<T>,
        layout: (Dtype, Dims, usize),
        stream: &StreamHandle,
        room: on_stream::Room,
    ) -> Result<Readback<T>> {
        let (name, source) = (crate::batch::Name::new_static("slice"), Users(slice, PhantomData::<T>));
        on_stream::read(&self.shared, layout, name, &source, stream, room).map(Readback::new)
    }

    /// Writes a host array into the user's device memory.
    ///
    /// Resolves when the copy into `slice` is queued on `stream`: work queued there afterwards finds the new elements.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it ends, `slice` is not written.
    ///
    /// # Errors
    ///
    /// [`Error::DtypeMismatch`], [`Error::ShapeMismatch`], [`Error::WrongDevice`], and those of [`transfer`](Self::transfer).
    pub async fn write<T: Element, S: LeaseStream>(
        &self,
        array: impl Into<HostArray>,
        slice: impl WriteTarget<T>,
        stream: &S,
    ) -> Result<()> {
        const FIELD: &str = "data";
        let array = array.into();
        self.shared.check()?;
        self.shared.bind(stream)?;
        slice.expect_shape(array.shape())?;
        if array.dtype() != T::DTYPE {
            return Err(Error::DtypeMismatch { field: None, asked: T::DTYPE, found: array.dtype() });
        }
        // The slice is in C order, whatever other batches keep.
        let terms = self.shared.terms((self.shared.relayout == Relayout::Preserve).then_some(Relayout::Auto));
        let batch = self.transfer_on((FIELD, array).into(), terms).await?.early().await?;
        let lease = batch.on(stream)?;
        lease.queued(FIELD).await?;
        slice.enqueue(&lease, FIELD)?;
        lease.end()
    }

    /// Waits until nothing is pending: transfers, read-backs, and blocks whose users are not done.
    ///
    /// # Cancel safety
    ///
    /// It only waits: dropping it changes nothing.
    ///
    /// # Errors
    ///
    /// The cause if the device is lost.
    pub async fn drain(&self) -> Result<()> {
        let shared = &self.shared;
        until(&shared.drained, || match shared.check() {
            Err(error) => Some(Err(error)),
            Ok(()) => (shared.active() == 0).then_some(Ok(())),
        })
        .await
    }

    /// Gives device and page-locked memory back that is kept for later use. It is freed on a staging thread. What lies beside
    /// the limit ([`DeviceBuilder::memory_bytes`]) stays.
    pub fn trim(&self) {
        use crate::backend::Space;
        self.shared.free_later(Space::Device, self.shared.admission.trim());
        self.shared.free_later(Space::Pinned, self.shared.pinned.take_idle());
    }

    /// What it has done and holds, now.
    pub fn stats(&self) -> Stats {
        stats::snapshot(&self.shared)
    }

    /// Does what threads would do, on this one.
    pub(crate) fn turn(&self) {
        self.shared.turn();
    }

    /// Moves the clock of a device that is driven by hand.
    pub(crate) fn advance(&self, by: Duration) {
        self.shared.advance(by);
    }

    /// Lets the staging of a device that is driven by hand stand still, or go on.
    pub(crate) fn hold_staging(&self, held: bool) {
        self.shared.engine.hold(held);
    }
}

/// What a read-back of the slice yields: dtype, shape and order, bytes.
fn layout<T: Element>(slice: &impl ReadSource<T>) -> Result<(Dtype, Dims, usize)> {
    let shape = slice.extent();
    let bytes = crate::staging::pinned::byte_len(&shape, T::DTYPE)?;
    Ok((T::DTYPE, Dims::c_order(&shape), bytes))
}

/// So many batches with scratch memory are to fit the device.
const SHARES: usize = 4;

/// The plan of a batch, and the bytes of its block.
///
/// Where scratch memory makes a batch larger than its share of the device the host brings it into order, unless that was
/// ruled out: what one batch needs is kept for each pipeline, and others may have as large ones.
pub(crate) fn planned(
    batch: &HostBatch,
    terms: &Terms,
    (device, pipeline): (&Shared, &Pipeline),
    last: Option<&Arc<Layout>>,
) -> Result<(Plan, usize)> {
    let terms = &Terms { fetches: device.fetching.serves(device, pipeline, batch), ..*terms };
    let plan = Plan::of(batch, terms, last)?;
    let bytes = block_bytes(&plan, device)?;
    let may_be_here = matches!(terms.relayout, Relayout::Auto | Relayout::Preserve) && plan.layout.has_scratch();
    if may_be_here && bytes > device.admission.bytes().limit / SHARES {
        let plan = Plan::of(batch, &Terms { rearranges: Rearranges::Not, ..*terms }, None)?;
        let bytes = block_bytes(&plan, device)?;
        return Ok((plan, bytes));
    }
    Ok((plan, bytes))
}

fn block_bytes(plan: &Plan, device: &Shared) -> Result<usize> {
    if plan.layout.bytes == 0 {
        return Ok(0);
    }
    class_of(plan.layout.bytes).ok_or_else(|| Error::BatchTooLarge {
        bytes: plan.layout.bytes,
        limit: device.admission.bytes().limit,
        batch: Returned::default(),
    })
}

/// Waits for admission. Dropped, it leaves the line and passes its turn on.
pub(crate) async fn admitted(device: &Arc<Shared>, pipeline: &Arc<Pipeline>, bytes: usize) -> Result<Grant> {
    let mut place = crate::stream::Place::new(device.clone(), pipeline.clone());
    std::future::poll_fn(|context| place.poll(bytes, context)).await
}
