//! [`BatchStreamExt`]: what streams of batches can do beside what every stream can. One file an adaptor.

mod buffered_by;
mod fairness;
mod place;
#[cfg(feature = "tokio")]
mod prefetch;
mod read_back;
mod to_device;
mod until_error;

use std::fmt::Display;
use std::future::Future;

use futures::stream::Stream;

pub use buffered_by::{BufferedBy, Depth};
pub(crate) use place::Place;
#[cfg(feature = "tokio")]
pub use prefetch::Prefetch;
pub use read_back::{IntoReadback, ReadBack};
pub use to_device::ToDevice;
pub use until_error::{Failure, UntilError};

use crate::Device;
use crate::batch::IntoBatch;
#[cfg(feature = "tokio")]
use crate::error::Error;
use crate::error::Result;

/// Adaptors for streams of batches. Implemented for every stream; none of the names is one of `futures` or `tokio-stream`.
pub trait BatchStreamExt: Stream {
    /// Sends each batch to `device`: a stream of [`Transfer`](crate::Transfer)s, each under way when it is yielded.
    ///
    /// The source's items are [`HostBatch`](crate::HostBatch)es, or anything that becomes one, or `Result`s of those. An
    /// error of the source, and a batch that can't be sent, becomes a transfer that has already failed and keeps its
    /// place. Where there is no room on the device this waits before it takes the next item, so that back-pressure
    /// reaches the source.
    ///
    /// With `.buffered(n)` behind it, n − 1 batches are on their way while the consumer works on one: none for n = 1.
    /// `.buffered(0)` never ends. If the device is lost, the stream yields one failed transfer and ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream drops the batch that waits for room, if there is one; transfers go on.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> inflight::Result<()> { futures::executor::block_on(async {
    /// use futures::{StreamExt, TryStreamExt, stream};
    /// use inflight::{BatchStreamExt, Device, batch};
    ///
    /// let device = Device::host()?;
    /// let source = stream::iter(0..3_u8).map(|n| batch! { raw: vec![n; 4] });
    /// let mut batches = source.to_device(&device).named("train").buffered(2);
    /// while let Some(batch) = batches.try_next().await? {
    ///     assert_eq!(batch.field("raw")?.shape(), [4]);
    /// }
    /// # Ok(()) }) }
    /// ```
    fn to_device(self, device: &Device) -> ToDevice<Self>
    where
        Self: Sized,
        Self::Item: IntoBatch,
    {
        ToDevice::new(self, device)
    }

    /// Drives what is before it in a tokio task, up to `ahead` items ahead. Clones share the items.
    ///
    /// A panic of the source becomes an error, the last item. The task ends with the source or the last clone.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] for 0 and for more than 65536, [`Error::Unsupported`] outside a tokio runtime.
    #[cfg(feature = "tokio")]
    fn prefetch<T, E>(self, ahead: usize) -> Result<Prefetch<Result<T, E>>>
    where
        Self: Stream<Item = Result<T, E>> + Sized + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        Prefetch::new(self, ahead)
    }

    /// As `buffered`, with a depth that can be changed while the stream runs.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> inflight::Result<()> { futures::executor::block_on(async {
    /// use futures::{StreamExt, TryStreamExt, stream};
    /// use inflight::{BatchStreamExt, Depth, Device};
    ///
    /// let (device, depth) = (Device::host()?, Depth::new(2)?);
    /// let source = stream::iter(0..8_u8).map(|n| ("raw", vec![n; 4]));
    /// let mut batches = source.to_device(&device).buffered_by(&depth);
    /// batches.try_next().await?;
    /// depth.set(4)?;
    /// assert_eq!(batches.count().await, 7);
    /// # Ok(()) }) }
    /// ```
    fn buffered_by(self, depth: &Depth) -> BufferedBy<Self>
    where
        Self: Sized,
        Self::Item: Future,
    {
        BufferedBy::new(self, depth)
    }

    /// Ends at the first error, which `failure` then holds; before that yields plain items.
    fn until_error<T, E>(self, failure: &Failure<E>) -> UntilError<Self, E>
    where
        Self: Stream<Item = Result<T, E>> + Sized,
        E: Display,
    {
        UntilError::new(self, failure)
    }

    /// Begins to read each batch back: a stream of [`BatchReadback`](crate::BatchReadback)s, each under way.
    fn read_back(self) -> ReadBack<Self>
    where
        Self: Sized,
        Self::Item: IntoReadback,
    {
        ReadBack::new(self)
    }
}

impl<St: Stream + ?Sized> BatchStreamExt for St {}
