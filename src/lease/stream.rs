//! [`ComputeStream`]: a stream of the user's; [`HostStream`], the one without hardware, with its tasks and memory.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use crate::backend::queue::{Driver, Task};
use crate::backend::{Backend, Fault, HostQueue, Refusal, StreamHandle};
use crate::error::{Error, Result, Returned};
use crate::reactor::{Key, Waiters};
use crate::sync::{Mutex, lock};

mod sealed {
    #[expect(unnameable_types, reason = "nobody else is to implement it")]
    pub trait Sealed {}
}

/// A stream that a batch can be used on: [`HostStream`], `Arc<CudaStream>`, or [`ComputeStream`] for whichever it is.
/// Sealed.
pub trait LeaseStream: sealed::Sealed + Clone + std::fmt::Debug + Send + Sync + 'static {
    /// The stream as the backend knows it, if that device can work on it.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn bind(&self, to: &Binding<'_>) -> Result<StreamHandle>;
}

/// The device that a stream is to be used on.
#[derive(Debug)]
pub(crate) struct Binding<'a> {
    pub(crate) id: u64,
    pub(crate) name: &'a str,
    pub(crate) backend: &'a dyn Backend,
}

impl Binding<'_> {
    /// The stream, if the device can work on it.
    pub(super) fn accept(&self, stream: StreamHandle) -> Result<StreamHandle> {
        self.backend.accepts(&stream).map(|()| stream).map_err(|refusal| match refusal {
            Refusal::OtherDevice(other) => self.wrong(other),
            Refusal::Stream(reason) => Error::UnusableStream { reason, device: self.name.to_owned() },
            Refusal::Fault(fault) => fault.into_error(self.name),
        })
    }

    fn wrong(&self, owner: String) -> Error {
        Error::WrongDevice { what: "compute stream", device: self.name.to_owned(), owner }
    }
}

/// A compute stream of some backend; from [`Device::compute_stream`](crate::Device::compute_stream).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ComputeStream {
    /// Of the host backend or the simulator.
    Host(HostStream),
    /// Of a GPU.
    #[cfg(feature = "cuda")]
    Cuda(Arc<cudarc::driver::CudaStream>),
}

impl ComputeStream {
    /// A new stream of the device of that number and name.
    pub(crate) fn new(backend: &dyn Backend, device: u64, name: &str) -> Result<Self, Fault> {
        match backend.compute_stream()? {
            StreamHandle::Host(queue) => Ok(Self::Host(HostStream::from_queue(queue, device, name))),
            #[cfg(feature = "cuda")]
            StreamHandle::Cuda(queue) => {
                let stream = queue.stream().ok_or(Fault::new(Fault::INVALID_HANDLE, "a compute stream"))?;
                Ok(Self::Cuda(stream.clone()))
            }
        }
    }
}

impl sealed::Sealed for ComputeStream {}

impl LeaseStream for ComputeStream {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn bind(&self, to: &Binding<'_>) -> Result<StreamHandle> {
        match self {
            Self::Host(stream) => stream.bind(to),
            #[cfg(feature = "cuda")]
            Self::Cuda(stream) => stream.bind(to),
        }
    }
}

#[cfg(feature = "cuda")]
impl sealed::Sealed for Arc<cudarc::driver::CudaStream> {}

#[cfg(feature = "cuda")]
impl LeaseStream for Arc<cudarc::driver::CudaStream> {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn bind(&self, to: &Binding<'_>) -> Result<StreamHandle> {
        to.accept(StreamHandle::Cuda(crate::backend::cuda::CudaQueue::theirs(self)))
    }
}

/// A compute stream without hardware: work that is done in order, on a thread of its own.
///
/// Cheap to clone; clones are the same stream. It belongs to the device that made it, or to the first that uses it. The
/// thread ends when the last clone is gone and all work is done. On a simulated device work is done when the test says so.
#[derive(Clone, Debug)]
pub struct HostStream {
    queue: Arc<HostQueue>,
    /// Number and name of the device that it belongs to.
    device: Arc<OnceLock<(u64, String)>>,
}

impl HostStream {
    /// A stream that no device has used yet.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] with what the system says if a thread can't be started.
    pub fn new() -> Result<Self> {
        let driver = Driver::Thread { link: None, eager: false };
        let queue = HostQueue::new("inflight-compute", driver)
            .map_err(|error| Error::NoDevice { reason: format!("a thread could not be started: {error}") })?;
        Ok(Self { queue, device: Arc::default() })
    }

    pub(crate) fn from_queue(queue: Arc<HostQueue>, device: u64, name: &str) -> Self {
        Self { queue, device: Arc::new(OnceLock::from((device, name.to_owned()))) }
    }

    /// Queues work; resolves to what it returns.
    ///
    /// A panic of the work becomes [`Error::Panicked`].
    pub fn run<R, F>(&self, work: F) -> HostTask<R>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        self.run_fallible(move || Ok(work()))
    }

    pub(crate) fn run_fallible<R, F>(&self, work: F) -> HostTask<R>
    where
        R: Send + 'static,
        F: FnOnce() -> Result<R> + Send + 'static,
    {
        let outcome = Arc::new(Outcome::default());
        let teller = Teller(Some(outcome.clone()));
        self.launch(
            "task",
            0,
            Box::new(move || {
                let result = catch_unwind(AssertUnwindSafe(work));
                teller.tell(result.unwrap_or_else(|payload| Err(Error::panicked("work on a host stream", &*payload))));
            }),
        );
        HostTask { outcome, key: Key::NONE }
    }

    /// Queues work of ours under a name that the simulator shows.
    pub(crate) fn launch(&self, label: &str, bytes: usize, task: Task) {
        self.queue.launch(task, label, bytes);
    }
}

impl sealed::Sealed for HostStream {}

impl LeaseStream for HostStream {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn bind(&self, to: &Binding<'_>) -> Result<StreamHandle> {
        let stream = to.accept(StreamHandle::Host(self.queue.clone()))?;
        match self.device.get_or_init(|| (to.id, to.name.to_owned())) {
            (id, _) if *id == to.id => Ok(stream),
            (_, other) => Err(to.wrong(format!("another device, {other}"))),
        }
    }
}

/// What a task came to, once it has.
#[derive(Debug)]
struct Outcome<R> {
    result: Mutex<Option<Result<R>>>,
    waiters: Waiters,
}

impl<R> Default for Outcome<R> {
    fn default() -> Self {
        Self { result: Mutex::new(None), waiters: Waiters::default() }
    }
}

/// Tells the outcome; that there will be none, if it is dropped before.
struct Teller<R>(Option<Arc<Outcome<R>>>);

impl<R> Teller<R> {
    fn tell(mut self, result: Result<R>) {
        self.put(result);
    }

    fn put(&mut self, result: Result<R>) {
        let Some(outcome) = self.0.take() else { return };
        *lock(&outcome.result) = Some(result);
        outcome.waiters.wake();
    }
}

impl<R> Drop for Teller<R> {
    fn drop(&mut self) {
        self.put(Err(not_run()));
    }
}

/// The error for work that was dropped before it ran.
pub(super) fn not_run() -> Error {
    let (call, device) = ("a task of a host stream", "host stream".to_owned());
    Error::Driver { code: Fault::NOT_RUN, call, device, batch: Returned::default() }
}

/// Work that was queued on a [`HostStream`]; resolves to its result.
///
/// # Cancel safety
///
/// Dropping it drops the result, not the work.
#[derive(Debug)]
#[must_use = "the work is done whether this is awaited or not, but only the future has the result"]
pub struct HostTask<R> {
    outcome: Arc<Outcome<R>>,
    key: Key,
}

impl<R> HostTask<R> {
    /// A task that was not queued.
    pub(crate) fn failed(error: Error) -> Self {
        let outcome = Outcome { result: Mutex::new(Some(Err(error))), waiters: Waiters::default() };
        Self { outcome: Arc::new(outcome), key: Key::NONE }
    }
}

impl<R> Future for HostTask<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let this = &mut *self;
        this.outcome.waiters.register(&mut this.key, context.waker());
        let result = lock(&this.outcome.result).take();
        result.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<R> Drop for HostTask<R> {
    fn drop(&mut self) {
        self.outcome.waiters.forget(&mut self.key);
    }
}

#[cfg(test)]
mod tests;
