//! [`Relayout`]: where arrays are brought into C order. [`Terms`]: what a plan must know of its device.

use crate::backend::Rearranges;

/// Where an array whose memory is not in C order is brought into it, and elements are converted.
///
/// For a device: [`DeviceBuilder::relayout`](crate::DeviceBuilder::relayout); for a pipeline:
/// [`ToDevice::relayout`](crate::ToDevice::relayout). [`Device::explain`](crate::Device::explain) tells what comes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Relayout {
    /// Where it is cheaper. What takes a walk against the order of memory, and conversions to larger elements, on a GPU;
    /// the rest, and everything on other devices, by the staging threads; so are batches that would need more than a quarter
    /// of [`memory_bytes`](crate::DeviceBuilder::memory_bytes) with the array as it was sent.
    #[default]
    Auto,
    /// On the host, by the staging threads.
    Host,
    /// On the device, by its relayout stream, which takes device memory for the array as it was sent as well.
    ///
    /// What kernels can't do is done by the host all the same: more than 8 axes that don't join, more than 64 channels, casts
    /// of casts, and what stands behind the 63rd field of a batch.
    Device,
    /// Nowhere, where memory is dense: it is sent as it lies, and the device array reports its strides. Else as `Auto`.
    Preserve,
    /// An error where the host would have to walk against the order of memory.
    Forbid,
}

/// Which rows of page-locked memory kernels fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetches {
    Nothing,
    /// Those for which copies are slower.
    ShortRows,
    AllRows,
}

/// What a plan must know of its device and pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// What the device calls itself.
    pub(crate) device: u64,
    pub(crate) rearranges: Rearranges,
    pub(crate) relayout: Relayout,
    /// Bytes of a chunk of the staging ring.
    pub(crate) chunk_bytes: usize,
    /// The staging threads may write its memory.
    pub(crate) is_in_reach: bool,
    /// What kernels of it fetch now.
    pub(crate) fetches: Fetches,
}

#[cfg(test)]
impl Terms {
    /// Those of the first device, a GPU with kernels, as far as a test of plans asks.
    pub(super) fn of_a_gpu() -> Self {
        Self {
            device: 1,
            rearranges: Rearranges::Fast,
            relayout: Relayout::Auto,
            chunk_bytes: 4 << 20,
            is_in_reach: false,
            fetches: Fetches::Nothing,
        }
    }
}
