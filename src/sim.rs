//! A device for tests: its copies complete, or fail, when the test says so.
//!
//! Nothing runs on threads: staging happens in the call that submits, and futures are woken in the call that completes. So
//! a test can poll by hand, prove that a future is pending, complete a copy and see the waker woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::sim::SimBackend;
use crate::device::{Device, DeviceBuilder, DeviceKind};
use crate::error::{Error, Result};

/// A device that is driven by hand.
///
/// Streams are queues: only what is at the head of one can complete, across streams in any order. Records and waits need no
/// hand. Bytes move at completion, never before.
///
/// # Examples
///
/// ```
/// use inflight::sim::Simulator;
/// use tokio_test::{assert_pending, assert_ready, task};
///
/// let sim = Simulator::new()?;
/// let mut transfer = task::spawn(sim.device().try_transfer(("raw", vec![1_u8, 2, 3]))?);
/// assert_pending!(transfer.poll());
/// assert!(sim.complete_next());
/// assert!(transfer.is_woken());
/// let batch = assert_ready!(transfer.poll())?;
/// assert_eq!(batch.field("raw")?.as_host::<u8>()?.as_slice(), Some(&[1, 2, 3][..]));
/// # Ok::<(), inflight::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulator {
    backend: Arc<SimBackend>,
    device: Device,
}

/// A copy or task that waits for a hand.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pending {
    /// Its number: larger for what was enqueued later.
    pub id: u64,
    /// Where it is enqueued.
    pub stream: PendingStream,
    /// Whether it is work of a compute stream, and no copy.
    pub is_task: bool,
    /// The fields that it carries.
    pub fields: Vec<String>,
    /// Its length in bytes.
    pub bytes: usize,
    /// Whether it is at the head of its stream, so that it can complete.
    pub runnable: bool,
}

/// A stream of a simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PendingStream {
    /// Host to device.
    Copy,
    /// Device to host.
    Read,
    /// Where elements are rearranged, on the device.
    Relayout,
    /// A compute stream, numbered as made.
    Compute(usize),
}

/// A kind of call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultPoint {
    /// Allocating device or page-locked memory.
    Allocate,
    /// Enqueueing a copy.
    Submit,
    /// Enqueueing a rearrangement on the device.
    Launch,
    /// Recording an event.
    Record,
    /// Making a stream wait for an event.
    Wait,
    /// Asking an event.
    Query,
    /// Completing what was enqueued.
    Complete,
    /// Giving memory back.
    Free,
}

/// What a simulated device has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks given back.
    pub frees: u64,
    /// Bytes of device memory allocated now.
    pub live_device_bytes: usize,
    /// Bytes of page-locked memory allocated now.
    pub live_pinned_bytes: usize,
    /// Copies enqueued.
    pub copies_submitted: u64,
    /// Copies done.
    pub copies_done: u64,
    /// Bytes that they moved to the device.
    pub bytes_to_device: u64,
    /// Bytes that they moved from the device.
    pub bytes_from_device: u64,
    /// Bytes that they moved within the device.
    pub bytes_within_device: u64,
    /// Events recorded.
    pub records: u64,
    /// Events asked.
    pub queries: u64,
    /// Stream waits enqueued.
    pub waits: u64,
    /// Events that exist.
    pub live_events: usize,
    /// Queries of and waits for events that were never recorded: each is a mistake.
    pub unrecorded_queries: u64,
}

impl Simulator {
    /// A device with default settings.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceBuilder::build`].
    pub fn new() -> Result<Self> {
        Self::with(|builder| builder)
    }

    /// A device with settings. Which device and link model they ask for does not count.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceBuilder::build`].
    pub fn with(settings: impl FnOnce(DeviceBuilder<'static>) -> DeviceBuilder<'static>) -> Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let backend = SimBackend::new().map_err(|error| Error::NoDevice { reason: error.to_string() })?;
        let backend = Arc::new(backend);
        let name = format!("simulated:{}", NUMBERS.fetch_add(1, Ordering::Relaxed));
        let device = settings(Device::builder()).build_on(backend.clone(), name, DeviceKind::Simulated)?;
        Ok(Self { backend, device })
    }

    /// The device.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// What waits for a hand, oldest first.
    pub fn pending(&self) -> Vec<Pending> {
        self.backend.settle();
        self.device.turn();
        self.backend.pending()
    }

    /// Completes the copy or task of that number. Answers whether it could: only what is at the head of its stream can.
    pub fn complete(&self, id: u64) -> bool {
        self.finish(id, 0)
    }

    /// Completes the oldest that can be. Answers whether there was one.
    pub fn complete_next(&self) -> bool {
        self.oldest(|_| true).is_some_and(|id| self.complete(id))
    }

    /// Completes the oldest copy that can be and carries the field. Answers whether there was one.
    pub fn complete_field(&self, name: &str) -> bool {
        let oldest = self.oldest(|pending| !pending.is_task && pending.fields.iter().any(|field| field == name));
        oldest.is_some_and(|id| self.complete(id))
    }

    /// Completes the oldest of one stream. Answers whether there was one.
    pub fn complete_on(&self, stream: PendingStream) -> bool {
        self.oldest(|pending| pending.stream == stream).is_some_and(|id| self.complete(id))
    }

    /// Completes all there is, and what follows from it. Answers how many that were.
    pub fn complete_all(&self) -> usize {
        std::iter::repeat_with(|| self.complete_next()).take_while(|done| *done).count()
    }

    /// Lets the oldest that can complete fail with a driver's code. Answers whether there was one.
    ///
    /// Its bytes do not move, and the events recorded behind it answer the code. If the code means that the device is lost,
    /// all later calls answer it too.
    ///
    /// Work can't end with 0, which is success, or with a code that means "ask again" (600, 900 to 907): then nothing
    /// happens, and the answer is no.
    pub fn fail_next(&self, code: i32) -> bool {
        SimBackend::is_failure(code) && self.oldest(|_| true).is_some_and(|id| self.finish(id, code))
    }

    /// Lets the `nth` call of that kind from now on fail with a driver's code; 1 is the next one, and 0 too.
    ///
    /// A code that is no failure is ignored: 0, and for [`FaultPoint::Complete`] those that
    /// [`fail_next`](Self::fail_next) names.
    pub fn inject(&self, point: FaultPoint, nth: usize, code: i32) {
        self.backend.inject(point, nth, code);
    }

    /// Fills device memory that is released with `0xDD`, or no longer.
    pub fn poison(&self, on: bool) {
        self.backend.poison(on);
    }

    /// What the device has seen.
    pub fn counters(&self) -> Counters {
        self.backend.counters()
    }

    /// Moves the device's clock, by which waits are warned of and timed out. It stops after 584 years.
    pub fn advance(&self, by: Duration) {
        self.device.advance(by);
    }

    /// Lets staging stand still, so that fields stay unqueued, or go on.
    pub fn hold_staging(&self, held: bool) {
        self.device.hold_staging(held);
        self.device.turn();
    }

    fn oldest(&self, wanted: impl Fn(&Pending) -> bool) -> Option<u64> {
        self.pending().iter().find(|pending| pending.runnable && wanted(pending)).map(|pending| pending.id)
    }

    fn finish(&self, id: u64, code: i32) -> bool {
        let done = self.backend.complete(id, code);
        self.device.turn();
        done
    }
}
