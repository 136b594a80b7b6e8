//! [`Kernels`]: our kernels, in `rearrange.cu`, as one context has them; `layout.rs` makes what they are launched with.
#![expect(unsafe_code, reason = "makes driver calls")]

mod axes;
mod layout;

use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUmodule, CUstream};

use self::layout::{Job, Layout, Plan};
use super::context::{Context, Raw};
use crate::backend::{Fault, MOST_AXES, Rearrangement, Severity};

/// Made of `rearrange.cu` by `.ci/ptx`.
const PTX: &str = concat!(include_str!("rearrange.ptx"), "\0");

/// The kernels, in the order of [`place_of`].
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

/// Kernels, loaded.
#[derive(Debug)]
pub(super) struct Kernels {
    context: Arc<Context>,
    module: Raw<CUmodule>,
    functions: Vec<Raw<CUfunction>>,
}

impl Kernels {
    /// Loads them; `None` where this device or driver can't run them.
    ///
    /// Each is launched once, on `stream`, with nothing to do: a first launch may wait for all that the context does.
    pub(super) fn load(context: &Arc<Context>, stream: CUstream) -> Result<Option<Self>, Fault> {
        match Self::loaded(context, stream) {
            Ok(kernels) => Ok(Some(kernels)),
            Err(fault) if matches!(fault.severity(), Severity::Operation | Severity::Later) => {
                let Fault { code, call } = fault;
                tracing::warn!(code, call, "this GPU can't run the kernels: arrays are rearranged on the host");
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn loaded(context: &Arc<Context>, stream: CUstream) -> Result<Self, Fault> {
        let (driver, _inside) = (context.driver, context.enter()?);
        let mut module = std::ptr::null_mut();
        // SAFETY: the text ends with a 0; the handle is written.
        unsafe { driver.module_load(&raw mut module, PTX.as_ptr().cast()) }?;
        let mut kernels = Self { context: context.clone(), module: Raw(module), functions: Vec::new() };
        for name in NAMES {
            let mut function = std::ptr::null_mut();
            // SAFETY: the module is loaded, the name ends with a 0; the handle is written.
            unsafe { driver.module_function(&raw mut function, module, name.as_ptr()) }?;
            kernels.functions.push(Raw(function));
        }
        for plan in idle_plans() {
            // SAFETY: of no elements none is touched.
            unsafe { kernels.start(stream, &plan, (0, 0)) }?;
        }
        // SAFETY: the stream lives.
        unsafe { driver.stream_synchronize(stream) }?;
        Ok(kernels)
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

    /// # Safety
    ///
    /// What the plan reads and writes stays valid until an event behind it has fired.
    unsafe fn start(
        &self,
        stream: CUstream,
        plan: &Plan,
        (mut src, mut dst): (CUdeviceptr, CUdeviceptr),
    ) -> Result<(), Fault> {
        let Some(function) = self.functions.get(place_of(plan)) else {
            return Err(Fault::new(Fault::INVALID_HANDLE, "cuLaunchKernel"));
        };
        let (x, y) = if plan.tiled { (32, 8) } else { (256, 1) };
        let blocks = plan.blocks.clamp(1, MOST_BLOCKS) as c_uint;
        let by: *const c_void = match &plan.job {
            Job::Normalize(by) => (&raw const **by).cast(),
            Job::Copy(_) | Job::Cast => std::ptr::null(),
        };
        let layout: *const Layout = &raw const plan.layout;
        // Those that do not normalize have one parameter less, and the last is not looked at.
        let mut parameters: [*mut c_void; 4] =
            [(&raw mut src).cast(), (&raw mut dst).cast(), layout.cast_mut().cast(), by.cast_mut()];
        let (parameters, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
        let driver = self.context.driver;
        // SAFETY: the arguments are those of the kernel, read during the call; what it touches is the caller's contract.
        unsafe { driver.launch(function.0, blocks, 1, 1, x, y, 1, 0, stream, parameters, none) }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let Ok(_inside) = self.context.enter() else { return };
        // SAFETY: the module is ours and this is its last use; no kernel of it is pending (invariant 12).
        let _ = unsafe { self.context.driver.module_unload(self.module.0) };
    }
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
