//! [`Batched`]: many 3-D copies in one call, `cuMemcpy3DBatchAsync`, where the driver has it.
#![expect(unsafe_code, reason = "calls a function of the driver's")]

use std::ffi::{c_int, c_uint, c_ulonglong};

use inflight::cudarc::driver::sys::{CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUstream};
use libloading::Library;

use super::rig::Outcome;

const NAMES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];
const POINTER: c_int = 1;
/// Sources are read when the stream comes to the copy, not earlier.
const IN_STREAM_ORDER: c_int = 1;

/// `CUmemcpy3DOperand` of a pointer; lengths are in bytes where both ends are pointers.
#[repr(C)]
struct End {
    kind: c_int,
    at: CUdeviceptr,
    row: usize,
    rows_of_layer: usize,
    /// A hint for managed memory, which this is not.
    place: [c_int; 2],
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
pub(crate) struct Piece {
    from: End,
    to: End,
    extent: [usize; 3],
    order: c_int,
    flags: c_uint,
}

const _: () = assert!(size_of::<Piece>() == size_of::<CUDA_MEMCPY3D_BATCH_OP>());

/// How many copies, the copies, the place for the number of what failed, flags.
type First = unsafe extern "C" fn(usize, *mut Piece, *mut usize, c_ulonglong, CUstream) -> c_int;
/// The same without that place.
type Second = unsafe extern "C" fn(usize, *mut Piece, c_ulonglong, CUstream) -> c_int;

/// The call, which has changed between versions of CUDA.
enum Call {
    First(First),
    Second(Second),
}

/// The call, and the library that has it.
pub(crate) struct Batched {
    call: Call,
    _library: Library,
}

impl Piece {
    /// A cube of f32 with that edge, out of one with the edge `line`; from and to the addresses of its first elements.
    pub(crate) fn cube(from: CUdeviceptr, line: usize, to: CUdeviceptr, edge: usize) -> Self {
        let end = |at, line| End { kind: POINTER, at, row: line * 4, rows_of_layer: line, place: [0; 2] };
        let (from, to) = (end(from, line), end(to, edge));
        Self { from, to, extent: [edge * 4, edge, edge], order: IN_STREAM_ORDER, flags: 0 }
    }
}

impl Batched {
    /// Nothing where the driver is too old.
    pub(crate) fn find() -> Option<Self> {
        // SAFETY: the driver is loaded already; opening it again runs nothing.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the signature is the one that this name was published with.
        let second = unsafe { library.get::<Second>(b"cuMemcpy3DBatchAsync_v2") }.map(|found| Call::Second(*found));
        let call = second.or_else(|_| {
            // SAFETY: as above.
            unsafe { library.get::<First>(b"cuMemcpy3DBatchAsync") }.map(|found| Call::First(*found))
        });
        Some(Self { call: call.ok()?, _library: library })
    }

    /// Enqueues all pieces.
    ///
    /// # Safety
    ///
    /// Both ends of each hold what is copied, and live until the stream has come behind it.
    pub(crate) unsafe fn enqueue(&self, pieces: &mut [Piece], stream: CUstream) -> Outcome<()> {
        let (count, pieces, mut failed) = (pieces.len(), pieces.as_mut_ptr(), 0);
        let code = match self.call {
            // SAFETY: there are so many pieces, and the number is written; the rest is the caller's contract.
            Call::First(call) => unsafe { call(count, pieces, &raw mut failed, 0, stream) },
            // SAFETY: as above.
            Call::Second(call) => unsafe { call(count, pieces, 0, stream) },
        };
        if code == 0 { Ok(()) } else { Err(format!("cuMemcpy3DBatchAsync gave {code}").into()) }
    }
}
