//! [`Kernels`]: our kernels, as one context has them: `rearrange.cu` brings what was copied into order, `layout.rs` makes
//! what it is launched with; `fetch.cu` reads page-locked memory, with `fetch.rs`. `module.rs` loads either.
#![expect(unsafe_code, reason = "makes driver calls")]

mod axes;
mod fetch;
mod layout;
mod module;

use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};

use self::fetch::{Launch, Reads};
use self::layout::{Job, Layout, Plan};
use self::module::Module;
use super::context::Context;
use super::hardware::{Hardware, UnifiedMemory};
use crate::backend::{Fault, MOST_AXES, Pitched, Rearrangement, Severity};

/// Texts that `.ci/ptx` made of the `.cu` files.
const REARRANGE: &CStr = text(concat!(include_str!("rearrange.ptx"), "\0"));
const FETCH: &CStr = text(concat!(include_str!("fetch.ptx"), "\0"));

/// The kernels of `rearrange.cu`, in the order of [`place_of`].
const NAMES: [&CStr; 14] = [
    c"gather_1",
    c"gather_2",
    c"gather_4",
    c"gather_8",
    c"gather_16",
    c"gather_cast",
    c"gather_normalized",
    c"tile_1",
    c"tile_2",
    c"tile_4",
    c"tile_8",
    c"tile_16",
    c"tile_cast",
    c"tile_normalized",
];
/// As many blocks as the largest GPUs run at once, about; each goes on until all is done.
const MOST_BLOCKS: u64 = 1024;
/// Threads of a block that fetches: all of a multiprocessor's, or half.
const FETCHERS: c_uint = 1024;
/// Blocks that fetch, at most, and for so many multiprocessors one. On an H200 16 are as fast as more for rows of 128 bytes.
const MOST_FETCHING: u32 = 16;
const MULTIPROCESSORS_A_BLOCK: u32 = 8;

const fn text(with_end: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(with_end.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("PTX has no 0 in it"),
    }
}

/// Kernels, loaded.
#[derive(Debug)]
pub(super) struct Kernels {
    rearranging: Module,
    /// With how many blocks; `None` where no kernel fetches.
    fetching: Option<(Module, c_uint)>,
}

impl Kernels {
    /// Loads them; `None` where this device or driver can't run them.
    ///
    /// Each is launched once, on `stream`, with nothing to do: a first launch may wait for all that the context does.
    pub(super) fn load(context: &Arc<Context>, stream: CUstream, hardware: &Hardware) -> Result<Option<Self>, Fault> {
        let Some(mut kernels) = without(Self::loaded(context, stream), "arrays are rearranged on the host")? else {
            return Ok(None);
        };
        let blocks = MOST_FETCHING.min(hardware.multiprocessors / MULTIPROCESSORS_A_BLOCK);
        if blocks > 0 && hardware.reads_registered && hardware.unified_memory == UnifiedMemory::None {
            kernels.fetching = without(Self::loaded_fetching(context, stream, blocks), "copies bring all rows")?;
        }
        Ok(Some(kernels))
    }

    fn loaded(context: &Arc<Context>, stream: CUstream) -> Result<Self, Fault> {
        let (driver, _inside) = (context.driver, context.enter()?);
        let kernels = Self { rearranging: Module::load(context, REARRANGE, &NAMES)?, fetching: None };
        for plan in idle_plans() {
            // SAFETY: of no elements none is touched.
            unsafe { kernels.start(stream, &plan, (0, 0)) }?;
        }
        // SAFETY: the stream lives.
        unsafe { driver.stream_synchronize(stream) }?;
        Ok(kernels)
    }

    fn loaded_fetching(context: &Arc<Context>, stream: CUstream, blocks: c_uint) -> Result<(Module, c_uint), Fault> {
        let (driver, _inside) = (context.driver, context.enter()?);
        let fetching = (Module::load(context, FETCH, &Reads::ALL.map(|(_, name)| name))?, blocks);
        for (reads, _) in Reads::ALL {
            // SAFETY: of no units none is touched.
            unsafe { start_fetch(&fetching, stream, Launch::idle(reads)) }?;
        }
        // SAFETY: the stream lives.
        unsafe { driver.stream_synchronize(stream) }?;
        Ok(fetching)
    }

    /// Whether some of them fetch.
    pub(super) const fn fetch_rows(&self) -> bool {
        self.fetching.is_some()
    }

    /// Enqueues a rearrangement. The context is current.
    ///
    /// # Safety
    ///
    /// The contract of `Backend::rearrange`; the stream lives.
    pub(super) unsafe fn rearrange(&self, stream: CUstream, rearrangement: &Rearrangement) -> Result<(), Fault> {
        let plan = Plan::of(rearrangement)?;
        if plan.layout.count == 0 {
            return Ok(());
        }
        let ends = (rearrangement.src.addr() as u64, rearrangement.dst.addr() as u64);
        // SAFETY: the caller's contract; the plan touches what the rearrangement does.
        unsafe { self.start(stream, &plan, ends) }
    }

    /// Enqueues copies of one shape, to places one behind the other, from page-locked memory. The context is current.
    ///
    /// # Safety
    ///
    /// The contract of `Backend::fetch`; the stream lives.
    pub(super) unsafe fn fetch(&self, stream: CUstream, copies: &[Pitched]) -> Result<(), Fault> {
        let refused = Fault::new(Fault::NOT_SUPPORTED, "cuLaunchKernel");
        let (Some(fetching), Some(launch)) = (&self.fetching, Launch::of(copies)) else { return Err(refused) };
        // SAFETY: the caller's contract; the launch reads and writes what the copies do, and around a row up to 15 bytes more
        // of its pages, which are page-locked as a whole; what is there does not matter.
        unsafe { start_fetch(fetching, stream, launch) }
    }

    /// # Safety
    ///
    /// What the plan reads and writes stays valid until an event behind it has fired.
    unsafe fn start(
        &self,
        stream: CUstream,
        plan: &Plan,
        (mut src, mut dst): (CUdeviceptr, CUdeviceptr),
    ) -> Result<(), Fault> {
        let threads = if plan.tiled { (32, 8) } else { (256, 1) };
        let blocks = plan.blocks.clamp(1, MOST_BLOCKS) as c_uint;
        let by: *const c_void = match &plan.job {
            Job::Normalize(by) => (&raw const **by).cast(),
            Job::Copy(_) | Job::Cast => std::ptr::null(),
        };
        let layout: *const Layout = &raw const plan.layout;
        // Those that do not normalize have one parameter less, and the last is not looked at.
        let mut parameters: [*mut c_void; 4] =
            [(&raw mut src).cast(), (&raw mut dst).cast(), layout.cast_mut().cast(), by.cast_mut()];
        // SAFETY: the arguments are those of the kernel, read during the call; what it touches is the caller's contract.
        unsafe { self.rearranging.launch(place_of(plan), stream, (blocks, threads), &mut parameters) }
    }
}

/// What was loaded, or nothing where this device or driver can't run it: then it is done `otherwise`.
fn without<T>(loaded: Result<T, Fault>, otherwise: &str) -> Result<Option<T>, Fault> {
    match loaded {
        Ok(loaded) => Ok(Some(loaded)),
        Err(fault) if matches!(fault.severity(), Severity::Operation | Severity::Later) => {
            let Fault { code, call } = fault;
            tracing::warn!(code, call, "this GPU can't run some kernels: {otherwise}");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// # Safety
///
/// What the launch reads and writes stays valid until an event behind it has fired.
unsafe fn start_fetch((module, blocks): &(Module, c_uint), stream: CUstream, mut launch: Launch) -> Result<(), Fault> {
    let place = launch.reads as usize;
    let pieces: *mut fetch::Pieces = &raw mut *launch.pieces;
    let mut parameters = [(&raw mut launch.dst).cast(), pieces.cast()];
    // SAFETY: the arguments are those of the kernel, read during the call; what it touches is the caller's contract.
    unsafe { module.launch(place, stream, (*blocks, (FETCHERS, 1)), &mut parameters) }
}

/// Where a plan's kernel is in [`NAMES`].
fn place_of(plan: &Plan) -> usize {
    let job = match &plan.job {
        Job::Copy(size) => size.trailing_zeros() as usize,
        Job::Cast => 5,
        Job::Normalize(_) => 6,
    };
    if plan.tiled { job + NAMES.len() / 2 } else { job }
}

/// A plan for each kernel, of no elements.
fn idle_plans() -> impl Iterator<Item = Plan> {
    let normalize = Job::Normalize(Box::default());
    let jobs = [1, 2, 4, 8, 16].map(Job::Copy).into_iter().chain([Job::Cast, normalize]);
    let layout = Layout { shape: [1; MOST_AXES], axes: 2, ..Layout::default() };
    jobs.flat_map(move |job| {
        let layout = layout.clone();
        [false, true].map(|tiled| Plan { layout: layout.clone(), job: job.clone(), tiled, blocks: 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::{NAMES, idle_plans, place_of};

    #[test]
    fn each_kernel_is_launched_once_when_it_is_loaded() {
        let mut places: Vec<_> = idle_plans().map(|plan| place_of(&plan)).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..NAMES.len()));
    }
}
