//! [`Cubes`]: the bare loops that crops are held against: 3-D copies, many of them in a call, and a kernel that gathers from
//! page-locked memory.
#![expect(unsafe_code, reason = "calls the driver and launches a kernel")]

use std::ptr::null_mut;
use std::sync::Arc;

use inflight::cudarc::driver::{CudaContext, CudaFunction, CudaSlice, LaunchConfig, PushKernelArg, result, sys};
use inflight::{HostArray, Registered};

use super::batched::{Batched, Piece};
use super::check::first_wrong;
use super::compute::kernel;
use super::crops::Crops;
use super::raw::Raw;
use super::rig::Outcome;

const DEPTH: usize = 4;

/// Crops of a registered volume, without this crate.
pub(crate) struct Cubes<'a> {
    crops: &'a Crops,
    volume: &'a HostArray,
    raw: Raw,
    gather: CudaFunction,
    batched: Option<Batched>,
    /// Where the volume is for a kernel.
    at: sys::CUdeviceptr,
    /// Where each crop of each batch begins, in elements.
    corners: CudaSlice<u32>,
}

impl<'a> Cubes<'a> {
    pub(crate) fn new(context: &Arc<CudaContext>, crops: &'a Crops, volume: &'a Registered) -> Outcome<Self> {
        let (raw, mut at) = (Raw::new(context, crops.bytes(), DEPTH)?, 0);
        let from = volume.as_ptr().cast_mut().cast();
        // SAFETY: the context is current since `Raw::new`, the memory is registered, and the address is written.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut at, from, 0) }.result()?;
        let offset = |[z, y, x]: [usize; 3]| u32::try_from((z * crops.line + y) * crops.line + x);
        let corners = crops.batches.iter().flatten().map(|corner| offset(*corner)).collect::<Result<Vec<_>, _>>()?;
        let corners = raw.stream().clone_htod(&corners)?;
        let gather = kernel("gather_cubes", context)?;
        Ok(Self { crops, volume, raw, gather, batched: Batched::find(), at, corners })
    }

    /// Sends so many batches, a 3-D copy a crop. Seconds in all.
    pub(crate) fn copies(&self, count: usize) -> Outcome<f64> {
        self.raw.rounds(count, |number, slot| {
            let mut corners = self.crops.batch(number).iter().zip(0..);
            corners.try_for_each(|(corner, nth)| self.copy(*corner, nth, slot))
        })
    }

    fn copy(&self, [z, y, x]: [usize; 3], nth: usize, slot: usize) -> Outcome<()> {
        let Crops { edge, line, .. } = *self.crops;
        let copy = sys::CUDA_MEMCPY3D {
            srcXInBytes: x * 4,
            srcY: y,
            srcZ: z,
            srcLOD: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: self.volume.as_ptr().cast(),
            srcDevice: 0,
            srcArray: null_mut(),
            reserved0: null_mut(),
            srcPitch: line * 4,
            srcHeight: line,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: null_mut(),
            dstDevice: self.raw.device(slot) + (nth * edge * edge * edge * 4) as u64,
            dstArray: null_mut(),
            reserved1: null_mut(),
            dstPitch: edge * 4,
            dstHeight: edge,
            WidthInBytes: edge * 4,
            Height: edge,
            Depth: edge,
        };
        // SAFETY: both ends hold what is copied, and live until the slots have been waited for.
        unsafe { sys::cuMemcpy3DAsync_v2(&raw const copy, self.raw.stream().cu_stream()) }.result()?;
        Ok(())
    }

    /// Sends so many batches, all 3-D copies of one in a call. Seconds in all.
    pub(crate) fn batches(&self, count: usize) -> Outcome<f64> {
        let batched = self.batched.as_ref().ok_or("the driver has no cuMemcpy3DBatchAsync")?;
        let Crops { edge, line, .. } = *self.crops;
        self.raw.rounds(count, |number, slot| {
            let piece = |([z, y, x], nth): (&[usize; 3], usize)| {
                let from = self.at + (((z * line + y) * line + x) * 4) as u64;
                Piece::cube(from, line, self.raw.device(slot) + (nth * edge * edge * edge * 4) as u64, edge)
            };
            let mut pieces: Vec<_> = self.crops.batch(number).iter().zip(0..).map(piece).collect();
            // SAFETY: both ends hold what is copied, and live until the slots have been waited for.
            unsafe { batched.enqueue(&mut pieces, self.raw.stream().cu_stream()) }
        })
    }

    /// Sends so many batches, a launch of so many blocks for each. Seconds in all.
    pub(crate) fn gather(&self, count: usize, blocks: u32) -> Outcome<f64> {
        self.raw.rounds(count, |number, slot| self.launch(number, slot, blocks))
    }

    fn launch(&self, number: usize, slot: usize, blocks: u32) -> Outcome<()> {
        let Crops { edge, line, count, .. } = *self.crops;
        let first = number % self.crops.batches.len() * count;
        let (to, corners) = (self.raw.device(slot), self.corners.slice(first..first + count));
        let (count, edge, line) = (u32::try_from(count)?, u32::try_from(edge)?, u32::try_from(line)?);
        let mut launch = self.raw.stream().launch_builder(&self.gather);
        launch.arg(&to).arg(&self.at).arg(&corners).arg(&count).arg(&edge).arg(&line);
        let grid = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (1024, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those of the kernel; it reads the volume and what is on its pages, and writes a slot that is
        // waited for.
        unsafe { launch.launch(grid) }?;
        Ok(())
    }

    /// Compares what a loop has left in the first slot, when one batch was sent.
    pub(crate) fn check(&self, loop_of_one: impl Fn() -> Outcome<f64>) -> Outcome<()> {
        loop_of_one()?;
        let mut elements = vec![0.0_f32; self.crops.bytes() / 4];
        // SAFETY: the slot holds so many bytes, and nothing is pending.
        unsafe { result::memcpy_dtoh_sync(&mut elements, self.raw.device(0)) }?;
        let wrong = first_wrong(&elements, &self.crops.shape(), &|at: &[usize]| self.crops.expected(0, at));
        wrong.map_or(Ok(()), |at| Err(format!("a bare loop is wrong at {at:?}").into()))
    }
}
