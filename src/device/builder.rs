//! [`DeviceBuilder`]: which device, how much memory, how many threads.

use std::sync::Arc;
use std::time::Duration;

use super::shared::{Parts, Shared, next_id};
use super::{Device, DeviceKind, FetchKernels, Fetching};
use crate::ComputeStream;
use crate::admission::Admission;
#[cfg(feature = "cuda")]
use crate::backend::cuda::CudaBackend;
use crate::backend::host::{HostBackend, LinkModel};
use crate::backend::{Backend, Fault, Space};
use crate::error::{Error, Result, Returned};
use crate::lease::{Binding, LeaseStream};
use crate::memory::arena::{self, Arena};
use crate::plan::Relayout;
use crate::readback::on_stream;
use crate::staging::{Engine, PinnedPool, Purpose, Taken, Together};

/// Device memory unless told otherwise, and unless a GPU has less than twice of it free.
const MEMORY_BYTES: usize = 4 << 30;
/// The ring at least, unless told otherwise. Two chunks for each thread are enough: measured with 1 to 4 MiB chunks on an
/// H200 machine, more made it slower.
const STAGING_BYTES: usize = 64 << 20;
/// The least ring: four chunks of 1 KiB.
pub(super) const LEAST_STAGING_BYTES: usize = 4 << 10;
/// The largest chunk: beyond it the ring falls out of the processor's caches.
const CHUNK_BYTES: usize = 4 << 20;
/// Each of the two budgets of page-locked memory outside the ring, unless told otherwise.
const PINNED_BYTES: usize = 1 << 30;
/// Threads unless told otherwise: as many as there are cores up to the first number, beyond it three for four cores up to
/// the second. On an H200 machine of 16 cores 12 staged f64 as f32 at 1.07 to 1.11 of the link, where 8 reached 0.7 to 1.0;
/// plain copies gained where the machine was busy otherwise.
const THREADS: (usize, usize) = (8, 12);
/// Threads at most, whatever is asked for: no machine gathers faster with more.
const MOST_THREADS: usize = 1024;
/// An arena, which lies beside the limit, is no more than this part of it.
const ARENAS: usize = 32;
/// Small batches in one call at most: a driver blocks who has about a thousand copies pending.
const MOST_TOGETHER: usize = 256;
/// Slots for small read-backs that are made when the device is.
const READ_SLOTS: usize = 8;

/// Whether copies have streams of their own.
#[derive(Clone, Copy, Debug, Default)]
pub enum Overlap<'a> {
    /// They have: copies go on while the compute streams work.
    #[default]
    On,
    /// Copies are enqueued on this compute stream, by a staging thread: nothing overlaps.
    ///
    /// For comparisons, and for those with nothing to hide behind compute.
    Off(&'a ComputeStream),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Which {
    #[default]
    Auto,
    Host,
    Cuda(usize),
    #[cfg(feature = "cuda")]
    Context(CudaContext),
}

/// A context of the user's.
#[cfg(feature = "cuda")]
type CudaContext = Arc<cudarc::driver::CudaContext>;

/// Settings for a [`Device`]; from [`Device::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct DeviceBuilder<'a> {
    pub(super) which: Which,
    pub(super) memory_bytes: Option<usize>,
    pub(super) staging_bytes: Option<usize>,
    pinned_bytes: Option<usize>,
    readback_bytes: Option<usize>,
    staging_threads: Option<usize>,
    batches_per_call: Option<usize>,
    admission_timeout: Option<Duration>,
    link: Option<LinkModel>,
    overlap: Overlap<'a>,
    relayout: Relayout,
    fetch_kernels: FetchKernels,
    /// Copies share a compute stream that the device makes; what the environment can ask for.
    pub(super) single_of_its_own: bool,
}

impl<'a> DeviceBuilder<'a> {
    /// Asks for the first GPU, or the host backend where there is none. The default.
    pub fn auto(mut self) -> Self {
        self.which = Which::Auto;
        self
    }

    /// Asks for the host backend.
    pub fn host(mut self) -> Self {
        self.which = Which::Host;
        self
    }

    /// Asks for the GPU of that ordinal.
    pub fn cuda(mut self, ordinal: usize) -> Self {
        self.which = Which::Cuda(ordinal);
        self
    }

    /// Asks for the GPU of a context that the user has; see [`Device::from_context`].
    #[cfg(feature = "cuda")]
    pub fn context(mut self, context: &CudaContext) -> Self {
        self.which = Which::Context(context.clone());
        self
    }

    /// Limits device memory to so many bytes, in size classes; by default 4 GiB, or half of what a GPU has free if that is
    /// less.
    ///
    /// Where small batches share calls ([`batches_per_call`](Self::batches_per_call)) and the limit is 64 MiB or more, there
    /// are 2 MiB beside it, for as long as the device lives: blocks of up to 16 KiB lie there side by side, and count as others.
    ///
    /// A depth of n wants room for about n + 3 batches: n queued or arrived, one in use, one whose work is not done, and
    /// one that is kept for a pipeline which may be made later.
    pub const fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Sets the size of the staging ring in bytes; at least 4 KiB. By default 64 MiB, or 8 MiB for each staging thread if that
    /// is more.
    pub const fn staging_bytes(mut self, bytes: usize) -> Self {
        self.staging_bytes = Some(bytes);
        self
    }

    /// Limits the page-locked memory of [`Device::pinned`] to so many bytes; 1 GiB by default.
    pub const fn pinned_bytes(mut self, bytes: usize) -> Self {
        self.pinned_bytes = Some(bytes);
        self
    }

    /// Limits the page-locked memory of read-backs to so many bytes; 1 GiB by default.
    pub const fn readback_bytes(mut self, bytes: usize) -> Self {
        self.readback_bytes = Some(bytes);
        self
    }

    /// Sets the number of staging threads, 1024 at most. By default one for each core up to 8, and beyond that three for four
    /// cores up to 12; the cores are those divided by `LOCAL_WORLD_SIZE`.
    pub const fn staging_threads(mut self, threads: usize) -> Self {
        self.staging_threads = Some(threads);
        self
    }

    /// Lets so many small batches, 256 at most, go to the device in one call where the source is ahead of the link; 32 by
    /// default on a GPU, 1 elsewhere, which sends each by itself.
    ///
    /// A batch of at most 64 KiB, or 16 KiB that must be gathered, waits for company if others are on their way or its
    /// pipeline has more that are not taken yet: until there are so many or 256 KiB of them, until somebody polls a transfer
    /// that is not there, until the link has run dry and half of the pipeline's batches wait, or for 200 µs and until a
    /// staging thread is free. A call that fails fails all of its batches. The host backend has no calls to save, but for one
    /// with a [`link_model`](Self::link_model).
    ///
    /// Those whose blocks lie side by side, as they do while batches come and go in order, are one copy of the driver's.
    pub const fn batches_per_call(mut self, batches: usize) -> Self {
        self.batches_per_call = Some(batches);
        self
    }

    /// Makes a wait for device memory an error after so long; by default it goes on for ever, with a warning after 5 s.
    ///
    /// With [`Duration::ZERO`] every wait is one, as soon as the device looks around.
    pub const fn admission_timeout(mut self, timeout: Duration) -> Self {
        self.admission_timeout = Some(timeout);
        self
    }

    /// Makes the host backend's copies take as long as a link of that bandwidth and latency would. Others take no notice.
    pub const fn link_model(mut self, link: LinkModel) -> Self {
        self.link = Some(link);
        self
    }

    /// Says where arrays are brought into C order, and converted, unless a pipeline says otherwise. Default:
    /// [`Relayout::Auto`].
    pub const fn relayout(mut self, relayout: Relayout) -> Self {
        self.relayout = relayout;
        self
    }

    /// Says when kernels fetch rows and crops of page-locked arrays. Default: [`FetchKernels::Auto`].
    pub const fn fetch_kernels(mut self, when: FetchKernels) -> Self {
        self.fetch_kernels = when;
        self
    }

    /// Says whether copies have streams of their own. Default: [`Overlap::On`].
    pub fn overlap<'b>(self, overlap: Overlap<'b>) -> DeviceBuilder<'b>
    where
        'a: 'b,
    {
        DeviceBuilder { overlap, ..self }
    }

    /// Builds the device. Blocks while memory is allocated: in async code use [`build_async`](Self::build_async).
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], [`Error::DriverUnavailable`], [`Error::InvalidSetting`] for a size, number or rate that can't be,
    /// [`Error::WrongDevice`] for the stream of [`Overlap::Off`], [`Error::OutOfMemory`], and what the system says if a
    /// thread can't be started.
    pub fn build(mut self) -> Result<Device> {
        match std::mem::take(&mut self.which) {
            Which::Auto => self.build_auto(),
            Which::Host => self.build_host(),
            #[cfg(feature = "cuda")]
            Which::Cuda(ordinal) => {
                let backend = CudaBackend::open(ordinal).map_err(|unavailable| unavailable.error)?;
                self.build_cuda(backend, ordinal)
            }
            #[cfg(feature = "cuda")]
            Which::Context(context) => {
                let backend = CudaBackend::from_context(&context).map_err(|unavailable| unavailable.error)?;
                self.build_cuda(backend, context.ordinal())
            }
            #[cfg(not(feature = "cuda"))]
            Which::Cuda(ordinal) => Err(Error::NoDevice {
                reason: format!("cuda:{ordinal} was asked for, and this crate was built without its feature \"cuda\""),
            }),
        }
    }

    #[cfg(feature = "cuda")]
    fn build_auto(self) -> Result<Device> {
        match CudaBackend::open(0) {
            Ok(backend) => self.build_cuda(backend, 0),
            Err(unavailable) if unavailable.is_absent => {
                tracing::debug!(reason = %unavailable.error, "no GPU: the host it is");
                self.build_host()
            }
            Err(unavailable) => Err(unavailable.error),
        }
    }

    #[cfg(not(feature = "cuda"))]
    fn build_auto(self) -> Result<Device> {
        self.build_host()
    }

    #[cfg(feature = "cuda")]
    fn build_cuda(self, backend: CudaBackend, ordinal: usize) -> Result<Device> {
        self.build_on(Arc::new(backend), format!("cuda:{ordinal}"), DeviceKind::Cuda)
    }

    fn build_host(self) -> Result<Device> {
        if let Some(link) = self.link {
            checked_link(link)?;
        }
        let backend = Arc::new(HostBackend::new(self.link).map_err(no_thread)?);
        self.build_on(backend, "host".to_owned(), DeviceKind::Host)
    }

    /// Builds the device on a thread of its own.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it ends, the device is built and dropped.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub async fn build_async(self) -> Result<Device> {
        // The stream is cloned, since the thread outlives the borrow.
        let stream = match self.overlap {
            Overlap::On => None,
            Overlap::Off(stream) => Some(stream.clone()),
        };
        let settings = DeviceBuilder::<'static> { overlap: Overlap::On, ..self };
        let (done, built) = futures::channel::oneshot::channel();
        let build = move || {
            let overlap = stream.as_ref().map_or(Overlap::On, Overlap::Off);
            // Nobody may be waiting any more.
            let _ = done.send(settings.overlap(overlap).build());
        };
        std::thread::Builder::new().name("inflight-build".to_owned()).spawn(build).map_err(no_thread)?;
        built.await.unwrap_or_else(|_| Err(Error::NoDevice { reason: "the building thread ended".to_owned() }))
    }

    /// Builds a device on a backend of ours.
    pub(crate) fn build_on(self, backend: Arc<dyn Backend>, name: String, kind: DeviceKind) -> Result<Device> {
        let half_free = backend.free_memory().map_or(usize::MAX, |free| free / 2);
        let memory = self.memory_bytes.unwrap_or_else(|| MEMORY_BYTES.min(half_free).max(1));
        let memory = at_least(1, "memory_bytes", memory)?;
        let threads = checked_threads(self.staging_threads.unwrap_or_else(default_threads))?;
        let ring = STAGING_BYTES.max(2 * CHUNK_BYTES * threads.min(THREADS.1));
        let staging = at_least(LEAST_STAGING_BYTES, "staging_bytes", self.staging_bytes.unwrap_or(ring))?;
        let staging = staging / 256 * 256;
        let pinned = at_least(1, "pinned_bytes", self.pinned_bytes.unwrap_or(PINNED_BYTES))?;
        let readback = at_least(1, "readback_bytes", self.readback_bytes.unwrap_or(PINNED_BYTES))?;
        let by_hand = backend.by_hand();
        let together = checked_together(self.batches_per_call.unwrap_or(default_together(kind)))?;
        let id = next_id();
        let single = match self.overlap {
            Overlap::Off(stream) => Some(stream.clone()),
            Overlap::On if self.single_of_its_own => {
                Some(ComputeStream::new(backend.as_ref(), id, &name).map_err(|fault| fault.into_error(&name))?)
            }
            Overlap::On => None,
        };
        let binding = Binding { id, name: &name, backend: backend.as_ref() };
        let single = single.map(|stream| stream.bind(&binding).map(|handle| (stream, handle))).transpose()?;
        let ring = backend.alloc(Space::Pinned, staging).map_err(|fault| match fault.code {
            Fault::OUT_OF_MEMORY => Error::OutOfMemory {
                what: "page-locked memory (staging_bytes)",
                bytes: staging,
                limit: None,
                device: name.clone(),
                batch: Returned::default(),
            },
            _ => fault.into_error(&name),
        })?;
        let chunk = (staging / 4 / 256 * 256).min(CHUNK_BYTES);
        let can_fetch = single.is_none() && backend.fetches();
        let admission = Admission::new(memory, self.admission_timeout);
        let is_sent_together = together > 1 && single.is_none() && !backend.is_in_reach();
        let has_room = memory >= ARENAS * arena::BYTES;
        let arena = if is_sent_together && has_room { arena_of(backend.as_ref(), &name)? } else { None };
        let parts = Parts {
            fetching: Fetching::new(if can_fetch { self.fetch_kernels } else { FetchKernels::Never }),
            admission: match arena {
                Some(arena) => admission.with_arena(arena),
                None => admission,
            },
            engine: Arc::new(Engine::new(
                ring,
                chunk,
                if by_hand { 0 } else { threads },
                Together::new(together, by_hand),
            )),
            pinned: PinnedPool::new(pinned, readback),
            name,
            kind,
            backend,
            single,
            relayout: self.relayout,
        };
        let shared = Arc::new(Shared::new(id, parts));
        shared.engine.spawn(&shared.backend).map_err(no_thread)?;
        if !by_hand {
            shared.reactor.spawn(&shared).map_err(no_thread)?;
        }
        warm(&shared)?;
        Ok(Device::from_shared(shared))
    }
}

fn checked_together(batches: usize) -> Result<usize> {
    match batches {
        1..=MOST_TOGETHER => Ok(batches),
        0 => Err(invalid("batches_per_call", batches.to_string(), "it must be at least 1")),
        _ => Err(invalid("batches_per_call", batches.to_string(), "it must be at most 256")),
    }
}

/// Memory for small batches, side by side. Where there is none they have blocks of their own.
fn arena_of(backend: &dyn Backend, name: &str) -> Result<Option<Arena>> {
    match backend.alloc(Space::Device, arena::BYTES) {
        Ok(memory) => Ok(Some(Arena::new(memory))),
        Err(fault) if fault.code == Fault::OUT_OF_MEMORY => Ok(None),
        Err(fault) => Err(fault.into_error(name)),
    }
}

/// A GPU's driver takes longer for a call than the link for a small batch.
const fn default_together(kind: DeviceKind) -> usize {
    match kind {
        DeviceKind::Cuda => 32,
        DeviceKind::Host | DeviceKind::Simulated => 1,
    }
}

/// Makes the slots of small read-backs, so that the first read finds one.
fn warm(device: &Arc<Shared>) -> Result<()> {
    let mut slots = Vec::new();
    for _ in 0..READ_SLOTS {
        match device.pinned.try_take(device, Purpose::Read, on_stream::SMALL) {
            Ok(Taken::Reserved(block)) => slots.push(block.fill()?),
            // A budget smaller than one slot: reads will say so.
            Ok(Taken::Block(_) | Taken::Full) | Err(_) => break,
        }
    }
    drop(slots);
    Ok(())
}

pub(super) fn at_least(least: usize, name: &'static str, value: usize) -> Result<usize> {
    if value >= least {
        return Ok(value);
    }
    let reason = if least == 1 { "it must be at least 1" } else { "it must be at least 4096" };
    Err(invalid(name, value.to_string(), reason))
}

fn checked_threads(threads: usize) -> Result<usize> {
    const NAME: &str = "staging_threads";
    if threads > MOST_THREADS {
        return Err(invalid(NAME, threads.to_string(), "it must be at most 1024"));
    }
    at_least(1, NAME, threads)
}

/// A link without a rate, or one so slow that copies seem never to end, is a slip.
fn checked_link(link: LinkModel) -> Result<()> {
    if link.bytes_per_second >= 1.0 {
        return Ok(());
    }
    Err(invalid("bytes_per_second", link.bytes_per_second.to_string(), "it must be at least 1"))
}

fn no_thread(error: std::io::Error) -> Error {
    Error::NoDevice { reason: format!("a thread could not be started: {error}") }
}

fn default_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let processes = std::env::var("LOCAL_WORLD_SIZE").ok().and_then(|text| text.parse().ok()).unwrap_or(1_usize);
    let share = (cores / processes.max(1)).max(1);
    share.min(THREADS.0).max((share / 4 * 3).min(THREADS.1))
}

pub(super) const fn invalid(name: &'static str, value: String, reason: &'static str) -> Error {
    Error::InvalidSetting { name, value, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_a_rate_is_refused() {
        for bytes_per_second in [0.0, -1.0, f64::NAN] {
            let link = LinkModel { bytes_per_second, latency: Duration::ZERO };
            let error = Device::builder().host().link_model(link).build().unwrap_err();
            assert!(error.to_string().ends_with("it must be at least 1"), "{error}");
        }
    }
}
