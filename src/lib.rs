//! Keeps a GPU fed: each host-to-device transfer is a future, and `.buffered(n)` says how many batches are in flight.
//!
//! A pipeline is a chain of ordinary [`futures`] stream combinators. [`to_device`](BatchStreamExt::to_device) makes each
//! [`HostBatch`] a [`Transfer`], which is under way when it is yielded and resolves to a [`DeviceBatch`] when the device
//! says that the copy is done.
//!
//! ```
//! # fn main() -> inflight::Result<()> { futures::executor::block_on(async {
//! use futures::{StreamExt, TryStreamExt, stream};
//! use inflight::{BatchStreamExt, ComputeStream, Device, batch};
//!
//! let device = Device::host()?;
//! let ComputeStream::Host(compute) = device.compute_stream()? else { unreachable!() };
//! let source = stream::iter(0..10_u8).map(|n| batch! { raw: vec![f32::from(n); 1000], labels: vec![n; 10] });
//! let mut batches = source.to_device(&device).buffered(4);
//!
//! let mut sums = Vec::new();
//! while let Some(batch) = batches.try_next().await? {
//!     let step = batch.on(&compute)?;
//!     sums.push(step.run(|fields| Ok(fields.view::<f32>("raw")?.sum())));
//!     step.end()?;
//! }
//! assert_eq!(sums.pop().unwrap().await?, 9000.0);
//! # Ok(()) }) }
//! ```
//!
//! # How it works
//!
//! A host batch is planned (which copies does it need?), admitted (is there device memory for it, and does every other
//! pipeline keep its floor?), staged (gathered into page-locked memory, in chunks, unless it lies there already) and
//! enqueued on a stream that does nothing but copies. What the host would have to walk against the order of memory, and what
//! grows, is sent as it lies and rearranged by kernels on a stream of their own ([`Relayout`]; [`Device::explain`] tells
//! which way each array takes). An event behind the copies says when they are done; one thread, the
//! reactor, asks it and wakes the future. A [`Lease`] orders a compute stream after the copies, on the device; when it
//! ends, an event behind its work says when the memory may be used again.
//!
//! # Why not `map` and `spawn_blocking`
//!
//! A blocking copy in a thread holds that thread for as long as the link takes, has nothing to say about device memory,
//! and frees too early or hangs when its handle is dropped. Here the operation owns both ends of a copy until the device
//! is done with them, whatever becomes of the future.
//!
//! # Cancel safety
//!
//! Futures and streams of this crate can be dropped at any moment. Nothing is freed that a copy or queued work still uses,
//! nobody is blocked, and the memory comes back when the device is done with it. What is forgotten with `mem::forget` is
//! leaked and stays counted in [`Stats`].
//!
//! # Features
//!
//! - `cuda` (default): the CUDA backend, through [`cudarc`]. Builds where there is no CUDA; the driver is looked for when a
//!   device is opened.
//! - `tokio` (default): what spawns ([`prefetch`](BatchStreamExt::prefetch)), and tokio's cooperative budget. Without it all
//!   else runs, on any executor.
//!
//! # What it does not do
//!
//! It decodes, augments and shuffles nothing, it runs no kernels of yours, and it moves nothing between GPUs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, reason = "tests stop where they fail"))]

/// The crate that CUDA streams, contexts and slices are types of.
#[cfg(feature = "cuda")]
pub use cudarc;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod admission;
mod backend;
mod batch;
mod device;
mod dtype;
mod error;
mod lease;
mod memory;
#[cfg(all(test, any(inflight_loom, inflight_shuttle)))]
mod models;
mod plan;
mod reactor;
mod readback;
pub mod sim;
mod staging;
mod stream;
mod sync;
mod transfer;

#[cfg(feature = "cuda")]
pub use backend::cuda::hardware::{Hardware, UnifiedMemory};
pub use backend::host::LinkModel;
pub use batch::{Cursor, DeviceArray, DeviceBatch, HostArray, HostBatch, IntoBatch, Ready};
pub use device::{Device, DeviceBuilder, DeviceKind, FetchKernels, Overlap, PipelineStats, Stats};
pub use dtype::{Dtype, Element};
pub use error::{BoxError, Error, Result, Returned};
pub use lease::{
    ComputeStream, Fields, FieldsMut, HostGuard, HostSlice, HostStream, HostTask, HostView, Lease, LeaseStream,
    ReadSource, View, ViewMut, WriteTarget,
};
#[cfg(feature = "cuda")]
pub use lease::{CudaFieldView, CudaFieldViewMut};
pub use memory::{MappedFile, Registered};
pub use plan::{Explanation, FieldExplanation, Relayout, Route};
pub use readback::{BatchReadback, Readback};
pub use staging::PinnedArray;
#[cfg(feature = "tokio")]
pub use stream::Prefetch;
pub use stream::{BatchStreamExt, BufferedBy, Depth, Failure, IntoReadback, ReadBack, ToDevice, UntilError};
pub use transfer::{Early, Transfer};
