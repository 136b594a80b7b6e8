//! The seam: what a device must do for us, in bytes. All that can be shared lives above it.
//!
//! `cuda` calls a driver. `host` does real copies on threads, `sim` does them when a test says so; both are built on
//! `queue`, streams and events without hardware.

use std::sync::Arc;

use crate::error::{Error, Returned};

mod copies;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod event;
pub(crate) mod host;
pub(crate) mod os;
pub(crate) mod queue;
pub(crate) mod sim;
mod span;
#[cfg(test)]
mod tests;

pub(crate) use copies::{Copy, Direction, MOST_AXES, MOST_CHANNELS, MOST_FETCHED, Pitched, Rearrangement, Rearranges};
pub(crate) use event::{Event, HostEvent};
pub(crate) use queue::HostQueue;
pub(crate) use span::Span;

/// Which memory a block lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// Memory of the device.
    Device,
    /// Page-locked memory of the host.
    Pinned,
}

/// A block as the backend knows it: where it begins and how long it is.
///
/// Owned by whoever holds it; given back by [`Backend::free`] and not by dropping.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The first byte. Device addresses are not dereferenced on the host.
    pub(crate) ptr: *mut u8,
    /// The length in bytes, never 0.
    pub(crate) bytes: usize,
}

#[expect(unsafe_code, reason = "addresses of blocks go between threads")]
// SAFETY: a `Memory` is an address and a length; who may touch the bytes is settled by invariants 1 and 3.
unsafe impl Send for Memory {}
#[expect(unsafe_code, reason = "addresses of blocks go between threads")]
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A stream: a queue of work that is done in order.
#[derive(Clone, Debug)]
pub(crate) enum StreamHandle {
    /// A queue of the host or simulator backend.
    Host(Arc<HostQueue>),
    /// A stream of CUDA's.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaQueue),
}

impl StreamHandle {
    /// Our number of it, never used again.
    pub(crate) fn id(&self) -> u64 {
        match self {
            Self::Host(queue) => queue.id(),
            #[cfg(feature = "cuda")]
            Self::Cuda(queue) => queue.id(),
        }
    }

    /// The queue of a stream without hardware.
    pub(crate) fn host(&self) -> Result<&Arc<HostQueue>, Fault> {
        match self {
            Self::Host(queue) => Ok(queue),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => Err(Fault::new(Fault::INVALID_HANDLE, "a host stream")),
        }
    }
}

/// The streams that a backend makes for us when it is built.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// Host to device.
    pub(crate) copy: StreamHandle,
    /// Device to host.
    pub(crate) read: StreamHandle,
    /// For our kernels that rearrange what was copied.
    pub(crate) relayout: StreamHandle,
    /// For those that fetch: they wait for no copies. Another one only where kernels fetch.
    pub(crate) fetch: StreamHandle,
}

/// What a backend call answered when it did not succeed: the driver's code and the call that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: i32,
    pub(crate) call: &'static str,
}

/// What a code means for those who wait (invariant 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Ask again: the work is going on, or a capture forbids asking.
    Later,
    /// The driver is shutting down: stop, and say nothing.
    Stop,
    /// This operation failed.
    Operation,
    /// The device is lost.
    Lost,
}

/// What a recorded event answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The work before it is going on.
    NotYet,
    /// The work before it is done.
    Fired,
    /// The work before it is over, and failed.
    Failed(Fault),
}

/// Why a backend does not work on a stream of the user's.
#[derive(Debug)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "every backend works on a host stream"))]
pub(crate) enum Refusal {
    /// It belongs to that device.
    OtherDevice(String),
    /// A stream of this kind, or in this state, can't be used.
    Stream(&'static str),
    /// The device did not say.
    Fault(Fault),
}

/// The thread has entered the device, so that calls which follow need not; see [`Backend::enter`].
#[derive(Debug, Default)]
pub(crate) struct Inside {
    #[cfg(feature = "cuda")]
    _entered: Option<cuda::Entered>,
}

impl Inside {
    #[cfg(feature = "cuda")]
    const fn cuda(entered: Option<cuda::Entered>) -> Self {
        Self { _entered: entered }
    }
}

impl Fault {
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    /// A handle of another backend, device or context.
    #[cfg(feature = "cuda")]
    pub(crate) const INVALID_HANDLE: i32 = 400;
    /// Work that is going on.
    #[cfg(feature = "cuda")]
    pub(crate) const NOT_READY: i32 = 600;
    /// What the driver or the device does not do.
    pub(crate) const NOT_SUPPORTED: i32 = 801;
    /// A launch that failed: the work was dropped before it ran.
    pub(crate) const NOT_RUN: i32 = 719;

    pub(crate) const fn new(code: i32, call: &'static str) -> Self {
        Self { code, call }
    }

    /// Sorts the code; unknown ones count as a lost device.
    pub(crate) const fn severity(self) -> Severity {
        match self.code {
            600 | 900..=907 => Severity::Later,
            4 => Severity::Stop,
            214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=721 | 999 => Severity::Lost,
            1..=3
            | 5..=213
            | 215..=219
            | 221..=225
            | 227..=699
            | 701
            | 703..=708
            | 711..=713
            | 800..=809
            | 811..=899 => Severity::Operation,
            _ => Severity::Lost,
        }
    }

    /// The error that a user sees.
    pub(crate) fn into_error(self, device: &str) -> Error {
        let (code, call, device, batch) = (self.code, self.call, device.to_owned(), Returned::default());
        match self.severity() {
            Severity::Lost | Severity::Stop => Error::DeviceLost { code, call, device, batch },
            Severity::Later | Severity::Operation => Error::Driver { code, call, device, batch },
        }
    }
}

/// A device, as all that is shared sees it.
///
/// No call waits for a stream. `alloc` and `free` may be slow: they are made on staging threads (invariant 8).
pub(crate) trait Backend: Send + Sync + std::fmt::Debug + 'static {
    /// Our streams.
    fn streams(&self) -> &Streams;

    /// Whether a test drives it by hand, so that nothing may happen on threads of ours.
    fn by_hand(&self) -> bool {
        false
    }

    /// Whether small copies are often done before `copy` returns, so that asking at once pays.
    fn prompt(&self) -> bool {
        false
    }

    /// Whether threads of the host may write blocks of device memory: then there is nothing to stage.
    fn is_in_reach(&self) -> bool {
        false
    }

    /// Makes sure, on a thread of ours, that the user's code has not changed what it works for.
    fn reattach_thread(&self) {}

    /// Says that this thread is one of ours and works for this device until it ends.
    fn attach_thread(&self) {}

    /// Makes a few calls on a thread that may be the user's cheaper: each of them would enter by itself.
    fn enter(&self) -> Inside {
        Inside::default()
    }

    /// What hardware it is, if it is any.
    #[cfg(feature = "cuda")]
    fn hardware(&self) -> Option<&cuda::hardware::Hardware> {
        None
    }

    /// Whether a stream, of any device, is being captured, or can't be asked.
    #[cfg(feature = "cuda")]
    fn is_captured(&self, _stream: &cudarc::driver::CudaStream) -> bool {
        false
    }

    /// Bytes of device memory that are free now, where that is not the host's to say.
    fn free_memory(&self) -> Option<usize> {
        None
    }

    /// Whether a stream of the user's can be used.
    fn accepts(&self, stream: &StreamHandle) -> Result<(), Refusal> {
        match stream {
            StreamHandle::Host(_) => Ok(()),
            #[cfg(feature = "cuda")]
            StreamHandle::Cuda(_) => Err(Refusal::OtherDevice("a GPU".to_owned())),
        }
    }

    /// A new compute stream for the user.
    fn compute_stream(&self) -> Result<StreamHandle, Fault>;

    /// A new block. Its bytes are initialised, with what is not said.
    fn alloc(&self, space: Space, bytes: usize) -> Result<Memory, Fault>;

    /// Gives a block back.
    ///
    /// # Safety
    ///
    /// `memory` came from `alloc` of this backend in the same `space`, and no work that touches it is pending.
    #[expect(unsafe_code, reason = "the caller answers for the block")]
    unsafe fn free(&self, space: Space, memory: Memory) -> Result<(), Fault>;

    /// Makes memory of the user's known, so that copies from it need no staging. May be slow. Host memory needs nothing.
    fn register(&self, _span: Span) -> Result<(), Fault> {
        Ok(())
    }

    /// Undoes `register` of the same span. No copy from it is pending.
    fn unregister(&self, _span: Span) -> Result<(), Fault> {
        Ok(())
    }

    /// Enqueues a copy. `fields` names what it carries, for those who watch.
    ///
    /// # Safety
    ///
    /// Both ends stay valid, `src` unchanged and `dst` untouched by others, until an event recorded on `stream` after
    /// this call has fired (invariant 1).
    #[expect(unsafe_code, reason = "the caller answers for both ends")]
    unsafe fn copy(&self, stream: &StreamHandle, copy: Copy, fields: &[crate::batch::Name]) -> Result<(), Fault>;

    /// Enqueues several copies to the device in as few calls as the driver has for them. `fields` names what they carry, of
    /// each batch.
    ///
    /// On an error some of them may be pending.
    ///
    /// # Safety
    ///
    /// As for `copy`, for all rows of all of them.
    #[expect(unsafe_code, reason = "the caller answers for both ends")]
    unsafe fn copy_pitched(
        &self,
        stream: &StreamHandle,
        copies: &[Pitched],
        fields: &[&[crate::batch::Name]],
    ) -> Result<(), Fault>;

    /// Whether `copy_pitched` hands many contiguous copies over in one call.
    fn takes_many(&self) -> bool {
        true
    }

    /// Whether its kernels read page-locked memory of the host.
    fn fetches(&self) -> bool {
        false
    }

    /// Enqueues copies of one shape to the device, to places one behind the other, made by a kernel that reads the host's
    /// page-locked memory: at most [`MOST_FETCHED`] of them.
    ///
    /// # Safety
    ///
    /// As for `copy_pitched`; and whole units of 16 bytes may be read at both ends of a row, which lie on its pages.
    #[expect(unsafe_code, reason = "the caller answers for both ends")]
    unsafe fn fetch(
        &self,
        _stream: &StreamHandle,
        _copies: &[Pitched],
        _fields: &[crate::batch::Name],
    ) -> Result<(), Fault> {
        Err(Fault::new(Fault::NOT_SUPPORTED, "fetch"))
    }

    /// How good it is at `rearrange`.
    fn rearranges(&self) -> Rearranges {
        Rearranges::Slowly
    }

    /// Enqueues a rearrangement of memory of the device. Its source and result are different memory.
    ///
    /// # Safety
    ///
    /// As for `copy`, with memory of the device at both ends.
    #[expect(unsafe_code, reason = "the caller answers for both ends")]
    unsafe fn rearrange(
        &self,
        stream: &StreamHandle,
        rearrangement: Rearrangement,
        fields: &[crate::batch::Name],
    ) -> Result<(), Fault>;

    /// A new event, not recorded.
    fn create_event(&self) -> Result<Event, Fault>;

    /// Records `event` on `stream`: it fires when all that was enqueued there before is done.
    fn record(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault>;

    /// Whether a recorded `event` has fired. An event that was never recorded must not be asked (invariant 5).
    ///
    /// An error says nothing about the work: it may be going on.
    fn query(&self, event: &Event) -> Result<Answer, Fault>;

    /// Makes `stream` wait for the latest record of `event`, on the device.
    fn wait(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault>;

    /// A block of device memory has lost its last owner: nothing pending touches it, and it may be handed out again.
    fn released(&self, _memory: &Memory) {}
}
