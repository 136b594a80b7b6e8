//! [`CudaQueue`]: a CUDA stream as the seam knows it, ours or the user's, and the numbers of users' streams.
#![expect(unsafe_code, reason = "a handle of the driver goes between threads")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use super::context::OurStream;
use crate::sync::{Mutex, lock};

/// A stream, and what keeps it.
#[derive(Clone, Debug)]
pub(crate) struct CudaQueue {
    id: u64,
    whose: Whose,
}

#[derive(Clone, Debug)]
enum Whose {
    Ours(Arc<OurStream>),
    Theirs(Arc<CudaStream>),
}

// SAFETY: the handle of a stream may be used by any thread; cudarc says so of its own type.
unsafe impl Send for CudaQueue {}
// SAFETY: as above.
unsafe impl Sync for CudaQueue {}

/// The numbers of users' streams that live. A `Weak` keeps the address of its `Arc` from being used again, so an address
/// that is found here is that of the same stream.
static KNOWN: Mutex<Vec<(Weak<CudaStream>, u64)>> = Mutex::new(Vec::new());

impl CudaQueue {
    pub(super) fn ours(stream: OurStream) -> Self {
        Self { id: next_id(), whose: Whose::Ours(Arc::new(stream)) }
    }

    /// A stream of the user's, under our own number of it: the driver's handles are used again after a stream's end.
    pub(crate) fn theirs(stream: &Arc<CudaStream>) -> Self {
        let mut known = lock(&KNOWN);
        let found = known.iter().find(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(stream))).map(|(_, id)| *id);
        let id = found.unwrap_or_else(|| {
            known.retain(|(of, _)| of.strong_count() > 0);
            let id = next_id();
            known.push((Arc::downgrade(stream), id));
            id
        });
        Self { id, whose: Whose::Theirs(stream.clone()) }
    }

    /// Our number of it.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// The user's stream, if it is one.
    pub(crate) const fn stream(&self) -> Option<&Arc<CudaStream>> {
        match &self.whose {
            Whose::Ours(_) => None,
            Whose::Theirs(stream) => Some(stream),
        }
    }

    pub(super) fn raw(&self) -> CUstream {
        match &self.whose {
            Whose::Ours(stream) => stream.raw(),
            Whose::Theirs(stream) => stream.cu_stream(),
        }
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
