//! [`Context`]: the CUDA context that our calls are made in; [`Entered`], a thread in it; our own streams and events.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUcontext, CUevent, CUstream};

use super::driver::Driver;
use crate::backend::Fault;

/// Calls that a capture of another thread would forbid are allowed in this mode.
const RELAXED: c_int = 2;
/// A stream that does not wait for the legacy default stream.
const NON_BLOCKING: u32 = 1;
/// An event that keeps no time.
const NO_TIMING: u32 = 2;

/// The context of one device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) driver: &'static Driver,
    raw: Raw<CUcontext>,
    /// Keeps the context; what users get their streams from.
    pub(super) theirs: Arc<CudaContext>,
}

/// A handle of the driver. Its functions may be called from any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw<T>(pub(super) T);

// SAFETY: handles are names of the driver's objects, which any thread may use.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

thread_local! {
    /// The context that this thread has entered, and how many times.
    static INSIDE: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// The thread is in a context, in the relaxed capture mode. Dropped, both are as they were.
#[derive(Debug)]
pub(crate) struct Entered {
    driver: &'static Driver,
    before: (usize, u32),
    pushed: bool,
    /// The capture mode to go back to; `None` inside another `Entered`.
    mode: Option<c_int>,
    /// Belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl Context {
    pub(super) const fn new(driver: &'static Driver, theirs: Arc<CudaContext>, raw: CUcontext) -> Self {
        Self { driver, raw: Raw(raw), theirs }
    }

    pub(super) fn is(&self, other: &CudaContext) -> bool {
        self.raw.0 == other.cu_ctx()
    }

    /// Makes it the thread's current context until the answer is dropped.
    ///
    /// On threads that are not ours this must leave no trace (invariant 8): neither in what is current, nor in a capture
    /// that is going on.
    pub(super) fn enter(&self) -> Result<Entered, Fault> {
        enter(self.driver, self.raw.0)
    }

    /// Makes it current on this thread, one of ours, for good.
    pub(super) fn attach(&self) {
        match self.enter() {
            Ok(entered) => {
                let _ = std::mem::ManuallyDrop::new(entered);
            }
            Err(fault) => tracing::warn!(code = fault.code, call = fault.call, "a thread could not enter its context"),
        }
    }

    /// Makes it current again on a thread that was attached: drops of cudarc's values change what is current.
    pub(super) fn reattach(&self) {
        let mut current = std::ptr::null_mut();
        // SAFETY: writes a handle.
        let asked = unsafe { self.driver.context_current(&raw mut current) };
        if asked.is_ok() && current != self.raw.0 {
            // SAFETY: the context lives.
            let _ = unsafe { self.driver.context_set(self.raw.0) };
        }
    }

    /// A stream of ours; the lower the priority's number the sooner its work is done.
    pub(super) fn stream(self: &Arc<Self>, priority: c_int) -> Result<OurStream, Fault> {
        let _inside = self.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; the handle is written.
        unsafe { self.driver.stream_create(&raw mut raw, NON_BLOCKING, priority) }?;
        Ok(OurStream { raw: Raw(raw), context: self.clone() })
    }

    /// The least and the greatest priority that streams can have.
    pub(super) fn priorities(&self) -> Result<(c_int, c_int), Fault> {
        let _inside = self.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both numbers are written.
        unsafe { self.driver.priorities(&raw mut least, &raw mut greatest) }?;
        Ok((least, greatest))
    }

    /// An event of ours.
    pub(super) fn event(self: &Arc<Self>) -> Result<CudaEvent, Fault> {
        let _inside = self.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; the handle is written.
        unsafe { self.driver.event_create(&raw mut raw, NO_TIMING) }?;
        Ok(CudaEvent { raw: Raw(raw), context: self.clone() })
    }
}

/// Enters a context that lives.
pub(super) fn enter(driver: &'static Driver, raw: CUcontext) -> Result<Entered, Fault> {
    let (wanted, before) = (raw.addr(), INSIDE.get());
    if before.0 == wanted && before.1 > 0 {
        INSIDE.set((wanted, before.1 + 1));
        return Ok(Entered { driver, before, pushed: false, mode: None, thread: PhantomData });
    }
    let mut current = std::ptr::null_mut();
    // SAFETY: writes a handle.
    unsafe { driver.context_current(&raw mut current) }?;
    let pushed = current != raw;
    if pushed {
        // SAFETY: the context lives as long as what calls this.
        unsafe { driver.context_push(raw) }?;
    }
    let mut entered = Entered { driver, before, pushed, mode: None, thread: PhantomData };
    let mut mode = RELAXED;
    // SAFETY: the mode is a known one; the one before is written in its place.
    unsafe { driver.capture_mode(&raw mut mode) }?;
    entered.mode = Some(mode);
    INSIDE.set((wanted, 1));
    Ok(entered)
}

impl Drop for Entered {
    fn drop(&mut self) {
        INSIDE.set(self.before);
        if let Some(mut mode) = self.mode {
            // SAFETY: the mode is the one that this thread had.
            let _ = unsafe { self.driver.capture_mode(&raw mut mode) };
        }
        if self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: takes off what `enter` has put on.
            let _ = unsafe { self.driver.context_pop(&raw mut popped) };
        }
    }
}

/// A stream that we made.
#[derive(Debug)]
pub(crate) struct OurStream {
    raw: Raw<CUstream>,
    context: Arc<Context>,
}

impl OurStream {
    pub(super) const fn raw(&self) -> CUstream {
        self.raw.0
    }
}

impl Drop for OurStream {
    fn drop(&mut self) {
        let Ok(_inside) = self.context.enter() else { return };
        // SAFETY: the stream is ours and this is its last use; work on it goes on without it.
        let _ = unsafe { self.context.driver.stream_destroy(self.raw.0) };
    }
}

/// An event that we made.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    raw: Raw<CUevent>,
    context: Arc<Context>,
}

impl CudaEvent {
    pub(super) const fn raw(&self) -> CUevent {
        self.raw.0
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let Ok(_inside) = self.context.enter() else { return };
        // SAFETY: the event is ours and this is its last use.
        let _ = unsafe { self.context.driver.event_destroy(self.raw.0) };
    }
}

/// Puts the context back that was current on this thread, when dropped: cudarc's constructors change it.
#[derive(Debug)]
pub(super) struct Restored {
    driver: &'static Driver,
    context: CUcontext,
}

impl Restored {
    pub(super) fn new(driver: &'static Driver) -> Self {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes a handle, null if there is none.
        let _ = unsafe { driver.context_current(&raw mut context) };
        Self { driver, context }
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        // SAFETY: the context was current before; null is none.
        let _ = unsafe { self.driver.context_set(self.context) };
    }
}
