//! Kernels: CPU versions of the GPU code that the crate and its tests launch, found by the name that the PTX text gives them.

mod basic;
mod digits;
mod fetch;
mod launch;
mod link;
mod memory;
mod number;
mod rearrange;
mod value;

use std::fmt;

pub(crate) use self::launch::{Launch, Outcome};
use self::memory::Memory;

/// A kernel's CPU version. It is called once a launch, when its turn in the stream has come; the stream goes on when the
/// time is over that the outcome says.
pub(crate) type Kernel = fn(&Launch<'_>) -> Outcome;

/// The CPU version of the kernel of that name.
pub(crate) fn find(name: &str) -> Option<Kernel> {
    let found = basic::find(name).or_else(|| digits::find(name));
    found.or_else(|| link::find(name)).or_else(|| rearrange::find(name)).or_else(|| fetch::find(name))
}

/// A launch as it waits in a stream.
pub(crate) struct Prepared {
    pub(crate) kernel: Kernel,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) params: Vec<Vec<u8>>,
}

impl Prepared {
    pub(crate) fn run(&self) -> Outcome {
        Launch::new(self.grid, self.block, &self.params, Memory).run(self.kernel)
    }

    /// All words of its arguments that may be addresses.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.params.iter().flat_map(|bytes| bytes.as_chunks::<8>().0).map(|word| u64::from_ne_bytes(*word))
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("grid", &self.grid).field("params", &self.params).finish_non_exhaustive()
    }
}
