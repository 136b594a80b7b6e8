//! Work that keeps the GPU full while something else is measured, and tells how much slower it became.
#![expect(unsafe_code, reason = "launches kernels")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use inflight::cudarc::driver::sys::{CUdevice_attribute, CUevent_flags};
use inflight::cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use inflight::cudarc::nvrtc::Ptx;

use super::raw::spin_until_done;
use super::rig::{Outcome, processor_time_of_thread, timed};

/// What a kernel takes alone, in seconds.
const KERNEL: f64 = 2e-3;
/// Blocks of 256 threads that a multiprocessor holds at once.
const BLOCKS: u32 = 8;
/// Kernels that are queued at once.
const QUEUED: usize = 3;
/// Kernels whose time alone is taken.
const ALONE: usize = 16;

/// Work for the whole GPU.
pub(crate) struct Compute(Arc<Burn>);

struct Burn {
    /// Of the lowest priority, as all are that are made without one.
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    values: CudaSlice<f32>,
    blocks: u32,
    rounds: u32,
}

/// Work that goes on.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Burnt, String>>>,
    alone: f64,
}

/// What became of it.
pub(crate) struct Burnt {
    /// How many times as long as alone a kernel took.
    pub(crate) slower: f64,
    /// Of the thread that launched them, since the first had run, in seconds.
    pub(crate) processor_time: f64,
}

/// A kernel of `benches/kernels/link.cu`.
pub(crate) fn kernel(name: &str, context: &Arc<CudaContext>) -> Outcome<CudaFunction> {
    let module = context.load_module(Ptx::from_src(include_str!("../kernels/link.ptx")))?;
    Ok(module.load_function(name)?)
}

impl Compute {
    /// Finds out how much work a kernel of 2 ms is.
    pub(crate) fn new(context: &Arc<CudaContext>) -> Outcome<Self> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let blocks = u32::try_from(context.attribute(attribute)?)? * BLOCKS;
        let stream = context.new_stream()?;
        let values = stream.alloc_zeros(blocks as usize * 256)?;
        let mut burn = Burn { kernel: kernel("burn", context)?, stream, values, blocks, rounds: 200_000 };
        burn.alone()?;
        burn.rounds = (f64::from(burn.rounds) * KERNEL / burn.alone()?) as u32;
        Ok(Self(Arc::new(burn)))
    }

    /// Begins it; it goes on until the answer is ended or dropped.
    pub(crate) fn begin(&self) -> Outcome<Load> {
        let (burn, alone) = (self.0.clone(), self.0.alone()?);
        let (stop, (begun, is_full)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let seen = stop.clone();
        let thread = thread::spawn(move || burn.until(&seen, &begun).map_err(|error| error.to_string()));
        // An error of the thread comes out where it ends.
        let _ = is_full.recv();
        Ok(Load { stop, thread: Some(thread), alone })
    }
}

impl Burn {
    fn launch(&self) -> Outcome<()> {
        let grid = LaunchConfig { grid_dim: (self.blocks, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.kernel);
        launch.arg(&self.values).arg(&self.rounds);
        // SAFETY: the arguments are those of the kernel, which uses an element for each thread of the grid; kernels of one
        // stream run one after the other, and nobody else uses the elements.
        unsafe { launch.launch(grid) }?;
        Ok(())
    }

    /// What a kernel takes while nothing else goes on, in seconds.
    fn alone(&self) -> Outcome<f64> {
        let kernels = || {
            (0..ALONE).try_for_each(|_| self.launch())?;
            spin_until_done(&self.stream)
        };
        Ok(timed(kernels)?.0 / ALONE as f64)
    }

    /// Launches kernels until it is to stop, without spinning. Says when the first have run.
    fn until(&self, stop: &AtomicBool, begun: &mpsc::Sender<()>) -> Outcome<Burnt> {
        let event = || self.stream.context().new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC));
        let events = (0..QUEUED).map(|_| event()).collect::<Result<Vec<_>, _>>()?;
        let mut launched = 0_usize;
        let (mut first, mut spent) = (Instant::now(), 0.0);
        while !stop.load(Ordering::Relaxed) {
            if let Some(done) = launched.checked_sub(events.len()) {
                events[done % events.len()].synchronize()?;
                if done == 0 {
                    (first, spent) = (Instant::now(), processor_time_of_thread());
                    let _ = begun.send(());
                }
            }
            self.launch()?;
            events[launched % events.len()].record(&self.stream)?;
            launched += 1;
        }
        (0..events.len().min(launched))
            .try_for_each(|back| events[(launched - 1 - back) % events.len()].synchronize())?;
        let each = first.elapsed().as_secs_f64() / launched.saturating_sub(1).max(1) as f64;
        Ok(Burnt { slower: each, processor_time: processor_time_of_thread() - spent })
    }
}

impl Load {
    /// Stops it.
    pub(crate) fn end(mut self) -> Outcome<Burnt> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join).ok_or("it ended before")?;
        let burnt = ended.map_err(|_| "the thread that launches kernels panicked")??;
        Ok(Burnt { slower: burnt.slower / self.alone, ..burnt })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
