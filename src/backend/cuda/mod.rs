//! [`CudaBackend`]: a GPU through CUDA's driver. cudarc gives the types that users meet; the calls are in `driver.rs`.
#![expect(unsafe_code, reason = "makes driver calls")]

mod batch;
mod context;
mod driver;
pub(crate) mod hardware;
mod kernels;
mod memory;
mod open;
mod pitched;
mod shapes;
mod stream;
#[cfg(all(test, not(miri), not(any(inflight_loom, inflight_shuttle))))]
mod tests;

use std::ffi::c_int;
use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaContext, CudaStream};

use self::context::Context;
pub(crate) use self::context::{CudaEvent, Entered};
use self::driver::Driver;
pub(crate) use self::driver::describe;
use self::hardware::Hardware;
use self::kernels::Kernels;
use self::memory::{DeviceMemory, HostMemory};
pub(crate) use self::open::Unavailable;
use self::pitched::RowCopies;
pub(crate) use self::stream::CudaQueue;
use super::{
    Answer, Backend, Copy, Direction, Event, Fault, Inside, Memory, Pitched, Rearrangement, Rearranges, Refusal, Space,
    Span, StreamHandle, Streams,
};
use crate::batch::Name;

/// A capture is going on where this was asked.
const CAPTURING: i32 = 900;
/// The handle of the per-thread default stream: another stream on each thread.
const PER_THREAD: usize = 2;

/// A GPU.
#[derive(Debug)]
pub(crate) struct CudaBackend {
    streams: Streams,
    device: DeviceMemory,
    host: HostMemory,
    rows: RowCopies,
    /// `None` where the device can't run them.
    kernels: Option<Kernels>,
    hardware: Hardware,
    /// Keeps a context that we made in the state in which a further stream needs no synchronisation.
    _kept: Option<Arc<CudaStream>>,
    context: Arc<Context>,
}

impl CudaBackend {
    /// Opens the device of that ordinal, in its primary context.
    pub(crate) fn open(ordinal: usize) -> Result<Self, Unavailable> {
        let driver = Driver::open()?;
        let device = hardware::device(driver, ordinal)?;
        let _left_as_found = context::Restored::new(driver);
        let name = format!("cuda:{ordinal}");
        let failed = |code: i32, call| Unavailable::call(Fault::new(code, call), &name);
        let context = CudaContext::new(ordinal).map_err(|error| failed(error.0 as i32, "cuDevicePrimaryCtxRetain"))?;
        // The first stream of a context is one for which cudarc synchronises.
        let kept = context.new_stream().map_err(|error| failed(error.0 as i32, "cuStreamCreate"))?;
        Self::build(driver, device, &context, Some(kept)).map_err(|fault| Unavailable::call(fault, &name))
    }

    /// Uses a context that the user has.
    pub(crate) fn from_context(context: &Arc<CudaContext>) -> Result<Self, Unavailable> {
        let driver = Driver::open()?;
        Self::build(driver, context.cu_device(), context, None)
            .map_err(|fault| Unavailable::call(fault, &format!("cuda:{}", context.ordinal())))
    }

    fn build(
        driver: &'static Driver,
        device: c_int,
        theirs: &Arc<CudaContext>,
        kept: Option<Arc<CudaStream>>,
    ) -> Result<Self, Fault> {
        let hardware = Hardware::read(driver, device, theirs.ordinal())?;
        let context = Arc::new(Context::new(driver, theirs.clone(), theirs.cu_ctx()));
        // Copies are short and others wait for them: the greatest priority.
        let (_, greatest) = context.priorities()?;
        let ours = |priority| context.stream(priority).map(CudaQueue::ours);
        let relayout = ours(greatest)?;
        let kernels = Kernels::load(&context, relayout.raw(), &hardware)?;
        let [copy, read, relayout, fetch] =
            [ours(greatest)?, ours(greatest)?, relayout, ours(greatest)?].map(StreamHandle::Cuda);
        Ok(Self {
            streams: Streams { copy, read, relayout, fetch },
            device: DeviceMemory::new(&context, device, hardware.memory_pools)?,
            host: HostMemory::new(context.clone()),
            rows: RowCopies::new(driver, driver.batch, hardware.most_pitch),
            kernels,
            hardware,
            _kept: kept,
            context,
        })
    }

    /// Refuses a user's stream that is being captured: what is recorded there never fires.
    fn check_capture(&self, stream: CUstream) -> Result<(), Fault> {
        let mut status: c_int = 0;
        // SAFETY: the callers' streams live; the status is written.
        unsafe { self.context.driver.stream_capturing(stream, &raw mut status) }?;
        if status == 0 { Ok(()) } else { Err(Fault::new(CAPTURING, "cuStreamIsCapturing")) }
    }
}

impl Backend for CudaBackend {
    fn streams(&self) -> &Streams {
        &self.streams
    }

    fn attach_thread(&self) {
        self.context.attach();
    }

    fn reattach_thread(&self) {
        self.context.reattach();
    }

    fn enter(&self) -> Inside {
        // Without it each call enters by itself, and reports what is wrong.
        Inside::cuda(self.context.enter().ok())
    }

    fn hardware(&self) -> Option<&Hardware> {
        Some(&self.hardware)
    }

    fn is_captured(&self, stream: &CudaStream) -> bool {
        // The stream's own context: it may be another device's.
        let Ok(_inside) = context::enter(self.context.driver, stream.context().cu_ctx()) else { return true };
        self.check_capture(stream.cu_stream()).is_err()
    }

    fn free_memory(&self) -> Option<usize> {
        let _inside = self.context.enter().ok()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are written.
        unsafe { self.context.driver.memory_info(&raw mut free, &raw mut total) }.ok()?;
        Some(free)
    }

    fn accepts(&self, stream: &StreamHandle) -> Result<(), Refusal> {
        let StreamHandle::Cuda(queue) = stream else {
            return Err(Refusal::OtherDevice("the host".to_owned()));
        };
        let Some(theirs) = queue.stream() else { return Ok(()) };
        if !self.context.is(theirs.context()) {
            return Err(Refusal::OtherDevice(format!("another context, of cuda:{}", theirs.context().ordinal())));
        }
        if queue.raw().addr() == PER_THREAD {
            return Err(Refusal::Stream("CUDA's per-thread default stream is another stream on each thread"));
        }
        let _inside = self.context.enter().map_err(Refusal::Fault)?;
        self.check_capture(queue.raw()).map_err(|fault| match fault.severity() {
            super::Severity::Later => Refusal::Stream("the stream is being captured into a graph"),
            _ => Refusal::Fault(fault),
        })
    }

    fn compute_stream(&self) -> Result<StreamHandle, Fault> {
        let _inside = self.context.enter()?;
        let made = self.context.theirs.new_stream();
        let stream = made.map_err(|error| Fault::new(error.0 as i32, "cuStreamCreate"))?;
        Ok(StreamHandle::Cuda(CudaQueue::theirs(&stream)))
    }

    fn alloc(&self, space: Space, bytes: usize) -> Result<Memory, Fault> {
        match space {
            Space::Device => self.device.alloc(bytes),
            Space::Pinned => self.host.alloc(bytes),
        }
    }

    unsafe fn free(&self, space: Space, memory: Memory) -> Result<(), Fault> {
        match space {
            // SAFETY: the contract of this method.
            Space::Device => unsafe { self.device.free(&memory) },
            // SAFETY: the contract of this method.
            Space::Pinned => unsafe { self.host.free(&memory) },
        }
    }

    fn register(&self, span: Span) -> Result<(), Fault> {
        self.host.register(span)
    }

    fn unregister(&self, span: Span) -> Result<(), Fault> {
        self.host.unregister(std::ptr::without_provenance_mut(span.start))
    }

    unsafe fn copy(&self, stream: &StreamHandle, copy: Copy, _fields: &[Name]) -> Result<(), Fault> {
        let StreamHandle::Cuda(queue) = stream else { return Err(Fault::new(Fault::INVALID_HANDLE, "copy")) };
        let (driver, raw) = (self.context.driver, queue.raw());
        let _inside = self.context.enter()?;
        if queue.stream().is_some() {
            // A captured copy would be made when its graph is launched, from and to memory that is others' by then.
            self.check_capture(raw)?;
        }
        let (to, from, bytes) = (copy.dst, copy.src, copy.bytes);
        match copy.direction {
            // SAFETY: the contract of this method: both ends stay until an event behind the copy has fired.
            Direction::HostToDevice => unsafe { driver.copy_to_device(to.addr() as u64, from.cast(), bytes, raw) },
            // SAFETY: as above.
            Direction::DeviceToHost => unsafe { driver.copy_to_host(to.cast(), from.addr() as u64, bytes, raw) },
            // SAFETY: as above.
            Direction::DeviceToDevice => unsafe {
                driver.copy_on_device(to.addr() as u64, from.addr() as u64, bytes, raw)
            },
        }
    }

    unsafe fn copy_pitched(&self, stream: &StreamHandle, copies: &[Pitched], _fields: &[&[Name]]) -> Result<(), Fault> {
        let StreamHandle::Cuda(queue) = stream else { return Err(Fault::new(Fault::INVALID_HANDLE, "copy_pitched")) };
        let _inside = self.context.enter()?;
        if queue.stream().is_some() {
            // As in `copy`.
            self.check_capture(queue.raw())?;
        }
        // SAFETY: the contract of this method.
        unsafe { self.rows.enqueue(queue.raw(), copies) }
    }

    fn takes_many(&self) -> bool {
        self.rows.takes_many()
    }

    fn fetches(&self) -> bool {
        self.kernels.as_ref().is_some_and(Kernels::fetch_rows)
    }

    unsafe fn fetch(&self, stream: &StreamHandle, copies: &[Pitched], _fields: &[Name]) -> Result<(), Fault> {
        let StreamHandle::Cuda(queue) = stream else { return Err(Fault::new(Fault::INVALID_HANDLE, "fetch")) };
        let Some(kernels) = &self.kernels else { return Err(Fault::new(Fault::NOT_SUPPORTED, "cuLaunchKernel")) };
        let _inside = self.context.enter()?;
        // SAFETY: the contract of this method.
        unsafe { kernels.fetch(queue.raw(), copies) }
    }

    fn rearranges(&self) -> Rearranges {
        if self.kernels.is_some() { Rearranges::Fast } else { Rearranges::Not }
    }

    unsafe fn rearrange(
        &self,
        stream: &StreamHandle,
        rearrangement: Rearrangement,
        _fields: &[Name],
    ) -> Result<(), Fault> {
        let StreamHandle::Cuda(queue) = stream else { return Err(Fault::new(Fault::INVALID_HANDLE, "rearrange")) };
        let Some(kernels) = &self.kernels else { return Err(Fault::new(Fault::NOT_SUPPORTED, "cuLaunchKernel")) };
        let _inside = self.context.enter()?;
        if queue.stream().is_some() {
            // As in `copy`.
            self.check_capture(queue.raw())?;
        }
        // SAFETY: the contract of this method.
        unsafe { kernels.rearrange(queue.raw(), &rearrangement) }
    }

    fn create_event(&self) -> Result<Event, Fault> {
        Ok(Event::Cuda(Arc::new(self.context.event()?)))
    }

    fn record(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault> {
        let (StreamHandle::Cuda(queue), Event::Cuda(event)) = (stream, event) else {
            return Err(Fault::new(Fault::INVALID_HANDLE, "record"));
        };
        let _inside = self.context.enter()?;
        if queue.stream().is_some() {
            self.check_capture(queue.raw())?;
        }
        // SAFETY: both handles live; the event is of this context, and so is the stream, or the driver says so.
        unsafe { self.context.driver.event_record(event.raw(), queue.raw()) }
    }

    fn query(&self, event: &Event) -> Result<Answer, Fault> {
        let Event::Cuda(event) = event else { return Err(Fault::new(Fault::INVALID_HANDLE, "query")) };
        let _inside = self.context.enter()?;
        // SAFETY: the event lives.
        match unsafe { self.context.driver.event_query(event.raw()) } {
            Ok(()) => Ok(Answer::Fired),
            Err(fault) if fault.code == Fault::NOT_READY => Ok(Answer::NotYet),
            Err(fault) => Err(fault),
        }
    }

    fn wait(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault> {
        let (StreamHandle::Cuda(queue), Event::Cuda(event)) = (stream, event) else {
            return Err(Fault::new(Fault::INVALID_HANDLE, "wait"));
        };
        let _inside = self.context.enter()?;
        // SAFETY: both handles live.
        unsafe { self.context.driver.stream_wait(queue.raw(), event.raw(), 0) }
    }
}
