//! [`PlaneCopy`] and [`BoxCopy`]: rows and planes to copy, as the driver reads them.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::CUdeviceptr;

use crate::backend::Pitched;

/// Kinds of memory.
const HOST: c_int = 1;
const DEVICE: c_int = 2;

/// One side of a copy of rows.
#[repr(C)]
#[derive(Debug)]
struct PlaneSide {
    x: usize,
    y: usize,
    memory: c_int,
    host: *const c_void,
    device: CUdeviceptr,
    array: *mut c_void,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`: rows.
#[repr(C)]
#[derive(Debug)]
pub(super) struct PlaneCopy {
    from: PlaneSide,
    to: PlaneSide,
    width: usize,
    rows: usize,
}

/// One side of a copy of planes.
#[repr(C)]
#[derive(Debug)]
struct BoxSide {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory: c_int,
    host: *const c_void,
    device: CUdeviceptr,
    array: *mut c_void,
    reserved: *mut c_void,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`: planes of rows.
#[repr(C)]
#[derive(Debug)]
pub(super) struct BoxCopy {
    from: BoxSide,
    to: BoxSide,
    width: usize,
    rows: usize,
    planes: usize,
}

impl PlaneCopy {
    /// The rows of a copy that has one plane.
    pub(super) fn of(copy: &Pitched) -> Self {
        Self {
            from: PlaneSide { host: copy.src.cast(), ..PlaneSide::new(HOST, copy.pitch) },
            to: PlaneSide { device: copy.dst.addr() as u64, ..PlaneSide::new(DEVICE, copy.width) },
            width: copy.width,
            rows: copy.rows,
        }
    }
}

impl PlaneSide {
    const fn new(memory: c_int, pitch: usize) -> Self {
        Self { x: 0, y: 0, memory, host: std::ptr::null(), device: 0, array: std::ptr::null_mut(), pitch }
    }
}

impl BoxCopy {
    pub(super) fn of(copy: &Pitched) -> Self {
        Self {
            from: BoxSide { host: copy.src.cast(), ..BoxSide::new(HOST, copy.pitch, copy.height) },
            to: BoxSide { device: copy.dst.addr() as u64, ..BoxSide::new(DEVICE, copy.width, copy.rows) },
            width: copy.width,
            rows: copy.rows,
            planes: copy.planes,
        }
    }
}

impl BoxSide {
    const fn new(memory: c_int, pitch: usize, height: usize) -> Self {
        let (host, null) = (std::ptr::null(), std::ptr::null_mut());
        Self { x: 0, y: 0, z: 0, level: 0, memory, host, device: 0, array: null, reserved: null, pitch, height }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys::{CUDA_MEMCPY2D_st as Theirs2, CUDA_MEMCPY3D_st as Theirs3};

    use super::{BoxCopy, PlaneCopy};

    macro_rules! same_places {
        ($ours:ty, $theirs:ty: $($our:ident $(. $of:ident)? = $their:ident),* $(,)?) => {
            $(assert_eq!(offset_of!($ours, $our $(. $of)?), offset_of!($theirs, $their), stringify!($their));)*
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
        };
    }

    #[test]
    fn rows_lie_where_the_driver_looks() {
        same_places!(PlaneCopy, Theirs2:
            from.x = srcXInBytes, from.y = srcY, from.memory = srcMemoryType, from.host = srcHost,
            from.device = srcDevice, from.array = srcArray, from.pitch = srcPitch,
            to.x = dstXInBytes, to.y = dstY, to.memory = dstMemoryType, to.host = dstHost,
            to.device = dstDevice, to.array = dstArray, to.pitch = dstPitch,
            width = WidthInBytes, rows = Height,
        );
    }

    #[test]
    fn planes_lie_where_the_driver_looks() {
        same_places!(BoxCopy, Theirs3:
            from.x = srcXInBytes, from.y = srcY, from.z = srcZ, from.level = srcLOD, from.memory = srcMemoryType,
            from.host = srcHost, from.device = srcDevice, from.array = srcArray, from.reserved = reserved0,
            from.pitch = srcPitch, from.height = srcHeight,
            to.x = dstXInBytes, to.y = dstY, to.z = dstZ, to.level = dstLOD, to.memory = dstMemoryType,
            to.host = dstHost, to.device = dstDevice, to.array = dstArray, to.reserved = reserved1,
            to.pitch = dstPitch, to.height = dstHeight,
            width = WidthInBytes, rows = Height, planes = Depth,
        );
    }
}
