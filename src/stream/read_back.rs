//! [`ReadBack`], from [`BatchStreamExt::read_back`](super::BatchStreamExt::read_back).

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{FusedStream, Stream};
use pin_project::pin_project;

use crate::DeviceBatch;
use crate::error::{BoxError, Error};
use crate::readback::BatchReadback;

/// What becomes a read-back: a [`DeviceBatch`], or a `Result` of one.
pub trait IntoReadback {
    /// Begins to read it back; an error becomes a read-back that has already failed.
    fn into_readback(self) -> BatchReadback;
}

impl IntoReadback for DeviceBatch {
    fn into_readback(self) -> BatchReadback {
        self.read_back()
    }
}

impl<E: Into<BoxError>> IntoReadback for Result<DeviceBatch, E> {
    fn into_readback(self) -> BatchReadback {
        self.map_or_else(|error| BatchReadback::failed(Error::source(error)), |batch| batch.read_back())
    }
}

/// Stream for the [`read_back`](super::BatchStreamExt::read_back) method.
#[pin_project]
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct ReadBack<St> {
    #[pin]
    source: St,
    over: bool,
}

impl<St> ReadBack<St> {
    pub(super) const fn new(source: St) -> Self {
        Self { source, over: false }
    }
}

impl<St: Stream> Stream for ReadBack<St>
where
    St::Item: IntoReadback,
{
    type Item = BatchReadback;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<BatchReadback>> {
        let this = self.project();
        if *this.over {
            return Poll::Ready(None);
        }
        let next = std::task::ready!(this.source.poll_next(context));
        *this.over = next.is_none();
        Poll::Ready(next.map(IntoReadback::into_readback))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.over { (0, Some(0)) } else { self.source.size_hint() }
    }
}

impl<St: Stream> FusedStream for ReadBack<St>
where
    St::Item: IntoReadback,
{
    fn is_terminated(&self) -> bool {
        self.over
    }
}
