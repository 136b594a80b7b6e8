//! [`BatchCopy`]: copies of many pieces in one call of the driver's, where it has one.
#![expect(unsafe_code, reason = "calls functions of a foreign library")]

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use libloading::Library;

use super::super::Fault;

/// Sources are read when the stream comes to the copy, not earlier.
const IN_STREAM_ORDER: c_int = 1;

/// How copies are to be made, as the driver reads it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Attributes {
    order: c_int,
    /// Kind and number of where the memory is: hints for managed memory, which ours is not.
    source: [c_int; 2],
    target: [c_int; 2],
    flags: c_uint,
}

/// Targets, sources, sizes and how many of each; attributes, the copies that they begin at, and how many.
type First = unsafe extern "C" fn(
    *const CUdeviceptr,
    *const CUdeviceptr,
    *const usize,
    usize,
    *const Attributes,
    *const usize,
    usize,
    *mut usize,
    CUstream,
) -> c_int;
/// The same without the place for the number of what failed.
type Second = unsafe extern "C" fn(
    *const CUdeviceptr,
    *const CUdeviceptr,
    *const usize,
    usize,
    *const Attributes,
    *const usize,
    usize,
    CUstream,
) -> c_int;

/// The call, which has changed between versions of CUDA. A name that was published keeps its signature.
#[derive(Clone, Copy, Debug)]
pub(super) enum BatchCopy {
    /// Before CUDA 12.8.
    Absent,
    /// `cuMemcpyBatchAsync`, since CUDA 12.8.
    First(First),
    /// `cuMemcpyBatchAsync_v2`, since CUDA 13.0.
    Second(Second),
}

/// The copies of a batch: as many targets as sources and sizes.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    targets: Vec<CUdeviceptr>,
    sources: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
}

impl Pieces {
    pub(super) fn push(&mut self, target: *mut u8, source: *const u8, bytes: usize) {
        self.targets.push(target.addr() as u64);
        self.sources.push(source.expose_provenance() as u64);
        self.sizes.push(bytes);
    }
}

impl BatchCopy {
    pub(super) fn find(library: &Library) -> Self {
        // SAFETY: the signature is the one that this name was published with.
        if let Ok(found) = unsafe { library.get::<Second>(b"cuMemcpyBatchAsync_v2") } {
            return Self::Second(*found);
        }
        // SAFETY: as above.
        unsafe { library.get::<First>(b"cuMemcpyBatchAsync") }.map_or(Self::Absent, |found| Self::First(*found))
    }

    pub(super) const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Enqueues all pieces; the driver refuses the legacy default stream.
    ///
    /// # Safety
    ///
    /// As for a copy of the driver's, for each piece.
    pub(super) unsafe fn enqueue(&self, pieces: &Pieces, stream: CUstream) -> Result<(), Fault> {
        let (targets, sources, sizes) = (pieces.targets.as_ptr(), pieces.sources.as_ptr(), pieces.sizes.as_ptr());
        let attributes = Attributes { order: IN_STREAM_ORDER, source: [0; 2], target: [0; 2], flags: 0 };
        let (count, first, mut failed) = (pieces.sizes.len(), 0_usize, 0_usize);
        let (code, call) = match self {
            Self::Absent => (Fault::NOT_SUPPORTED, "cuMemcpyBatchAsync"),
            Self::First(function) => {
                let (of, from) = (&raw const attributes, &raw const first);
                // SAFETY: the arrays have so many elements, the attributes are for all; the rest is the caller's contract.
                let code = unsafe { function(targets, sources, sizes, count, of, from, 1, &raw mut failed, stream) };
                (code, "cuMemcpyBatchAsync")
            }
            Self::Second(function) => {
                let (of, from) = (&raw const attributes, &raw const first);
                // SAFETY: as above.
                let code = unsafe { function(targets, sources, sizes, count, of, from, 1, stream) };
                (code, "cuMemcpyBatchAsync_v2")
            }
        };
        if code == 0 { Ok(()) } else { Err(Fault::new(code, call)) }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::Attributes;

    /// `CUmemcpyAttributes` of CUDA 12.8 and later; bindings to an older one lack it.
    #[test]
    fn attributes_lie_where_the_driver_looks() {
        let places = [offset_of!(Attributes, order), offset_of!(Attributes, source), offset_of!(Attributes, target)];
        assert_eq!((places, offset_of!(Attributes, flags), size_of::<Attributes>()), ([0, 4, 12], 20, 24));
    }
}
