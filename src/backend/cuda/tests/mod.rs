//! The backend itself, on the stand-in driver or a GPU: [`Bed`] is what the tests here stand on.
//!
//! `INFLIGHT_TEST_DRIVER` says which driver it is, as in `tests/support/driver.rs`.

mod batch;
mod loading;
mod pitched;
mod rearrange;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::CudaContext;

use super::CudaBackend;
use crate::backend::{Answer, Backend, Copy, Direction, Memory, Space, StreamHandle};

#[path = "../../../../tests/support/stand_in.rs"]
mod stand_in;
use stand_in::StandIn;

/// Which driver there is; none is `None`.
fn stand_in() -> Option<Option<&'static StandIn>> {
    static STAND_IN: OnceLock<Option<StandIn>> = OnceLock::new();
    match std::env::var("INFLIGHT_TEST_DRIVER").as_deref() {
        Ok("gpu") => Some(None),
        Ok("none") => None,
        _ => STAND_IN.get_or_init(StandIn::load).as_ref().map(Some),
    }
}

/// A device, and the driver to oneself.
struct Bed {
    backend: CudaBackend,
    stand_in: Option<&'static StandIn>,
    blocks: Mutex<Vec<(Space, Memory)>>,
    _alone: MutexGuard<'static, ()>,
}

impl Bed {
    /// `None` where there is no driver. `prepare` sets the stand-in before the device is opened.
    fn new(prepare: impl Fn(&StandIn)) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let stand_in = stand_in()?;
        if let Some(stand_in) = stand_in {
            stand_in.reset();
            prepare(stand_in);
        }
        // Kept: a thread of a test's stays in a context that ends, which no thread of ours does.
        static CONTEXT: OnceLock<Arc<CudaContext>> = OnceLock::new();
        CONTEXT.get_or_init(|| CudaContext::new(0).unwrap());
        let backend = CudaBackend::open(0).map_err(|unavailable| unavailable.error).unwrap();
        if let Some(stand_in) = stand_in {
            stand_in.log(true);
        }
        Some(Self { backend, stand_in, blocks: Mutex::default(), _alone: alone })
    }

    /// A block that lives as long as the bed.
    fn alloc(&self, space: Space, bytes: usize) -> *mut u8 {
        let memory = self.backend.alloc(space, bytes.max(1)).unwrap();
        let ptr = memory.ptr;
        self.blocks.lock().unwrap().push((space, memory));
        ptr
    }

    /// Page-locked memory with that in it.
    fn pinned(&self, content: &[u8]) -> *mut u8 {
        let ptr = self.alloc(Space::Pinned, content.len());
        // SAFETY: the block has so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), ptr, content.len()) };
        ptr
    }

    /// Enqueues a copy of those bytes to device memory.
    fn send(&self, stream: &StreamHandle, content: &[u8], dst: *mut u8) {
        let (src, bytes) = (self.pinned(content), content.len());
        let copy = Copy { dst, src, bytes, direction: Direction::HostToDevice };
        // SAFETY: both ends live as long as the bed.
        unsafe { self.backend.copy(stream, copy, &[]) }.unwrap();
    }

    /// Waits until all that is queued on our stream is done.
    fn finish(&self, stream: &StreamHandle) {
        let event = self.backend.create_event().unwrap();
        self.backend.record(stream, &event).unwrap();
        while self.backend.query(&event).unwrap() != Answer::Fired {
            std::thread::yield_now();
        }
    }

    /// What is in device memory when `stream` has done what is queued there.
    fn content(&self, stream: &StreamHandle, src: *const u8, bytes: usize) -> Vec<u8> {
        let dst = self.alloc(Space::Pinned, bytes);
        let copy = Copy { dst, src, bytes, direction: Direction::DeviceToHost };
        // SAFETY: both ends live as long as the bed.
        unsafe { self.backend.copy(stream, copy, &[]) }.unwrap();
        self.finish(stream);
        // SAFETY: the block has so many bytes, which nobody writes any more.
        unsafe { std::slice::from_raw_parts(dst, bytes) }.to_vec()
    }

    /// Calls of each of these since the device was opened; `None` on a GPU.
    fn calls<const N: usize>(&self, names: [&str; N]) -> Option<[u64; N]> {
        self.stand_in.map(|stand_in| names.map(|name| stand_in.calls(Some(name))))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for (space, memory) in self.blocks.get_mut().unwrap().drain(..) {
            // SAFETY: the block came from this backend, and each test has waited for its work.
            let _ = unsafe { self.backend.free(space, memory) };
        }
        if let Some(stand_in) = self.stand_in
            && !std::thread::panicking()
        {
            assert_eq!(stand_in.violations(), Vec::<String>::new());
            stand_in.reset();
        }
    }
}
