//! What the examples compute: sums, by closures on a host stream or by a kernel on a GPU's.
#![allow(dead_code, reason = "each example does a part of it")]

#[cfg(feature = "cuda")]
mod gpu;
mod host;

use futures::future::BoxFuture;
use inflight::{Lease, LeaseStream, Result};

#[cfg(feature = "cuda")]
pub(crate) use gpu::Gpu;
pub(crate) use host::Host;

/// Work that is queued on a stream of some backend.
pub(crate) trait Work: Sync {
    type Stream: LeaseStream;

    /// The stream that the work is queued on.
    fn stream(&self) -> &Self::Stream;

    /// Queues a sum over a whole field of `f32`, when that field is there; resolves to it.
    fn sum(
        &self,
        step: &Lease<Self::Stream>,
        field: &'static str,
    ) -> impl Future<Output = Result<BoxFuture<'static, Result<f32>>>> + Send;

    /// Queues the writing of each row's sum into another field; resolves when it is known to have gone well.
    fn sum_rows(
        &self,
        step: &mut Lease<Self::Stream>,
        from: &'static str,
        to: &'static str,
    ) -> Result<BoxFuture<'static, Result<()>>>;
}
