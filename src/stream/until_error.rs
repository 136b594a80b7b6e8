//! [`UntilError`] and [`Failure`], from [`BatchStreamExt::until_error`](super::BatchStreamExt::until_error).

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::{FusedStream, Stream};
use pin_project::pin_project;

use crate::error::Error;
use crate::sync::{Mutex, lock};

/// Where [`UntilError`] leaves the error that ended it. An error that nobody takes is logged.
#[derive(Debug)]
pub struct Failure<E: Display = Error>(Arc<Kept<E>>);

#[derive(Debug)]
struct Kept<E: Display>(Mutex<Option<E>>);

impl<E: Display> Failure<E> {
    /// A place for an error, empty.
    pub fn new() -> Self {
        Self(Arc::new(Kept(Mutex::new(None))))
    }

    /// Takes the error, if the stream ended with one and nobody took it before.
    pub fn take(&self) -> Option<E> {
        lock(&self.0.0).take()
    }

    /// Takes the error as a result: `Ok` if there was none.
    ///
    /// # Errors
    ///
    /// The error that ended the stream.
    pub fn check(&self) -> Result<(), E> {
        self.take().map_or(Ok(()), Err)
    }

    fn put(&self, error: E) {
        let before = lock(&self.0.0).replace(error);
        if let Some(error) = before {
            untaken(&error);
        }
    }
}

impl<E: Display> Default for Failure<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Display> Clone for Failure<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Display> Drop for Kept<E> {
    fn drop(&mut self) {
        if let Some(error) = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            untaken(&error);
        }
    }
}

fn untaken(error: &impl Display) {
    tracing::error!(%error, "a stream ended early with an error that nobody took");
}

/// Stream for the [`until_error`](super::BatchStreamExt::until_error) method.
#[pin_project]
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct UntilError<St, E: Display> {
    #[pin]
    source: St,
    over: bool,
    failure: Failure<E>,
}

impl<St, E: Display> UntilError<St, E> {
    pub(super) fn new(source: St, failure: &Failure<E>) -> Self {
        Self { source, over: false, failure: failure.clone() }
    }
}

impl<St: Stream<Item = Result<T, E>>, T, E: Display> Stream for UntilError<St, E> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.project();
        if *this.over {
            return Poll::Ready(None);
        }
        match ready!(this.source.poll_next(context)) {
            Some(Ok(item)) => return Poll::Ready(Some(item)),
            Some(Err(error)) => this.failure.put(error),
            None => {}
        }
        *this.over = true;
        Poll::Ready(None)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.over { (0, Some(0)) } else { (0, self.source.size_hint().1) }
    }
}

impl<St: Stream<Item = Result<T, E>>, T, E: Display> FusedStream for UntilError<St, E> {
    fn is_terminated(&self) -> bool {
        self.over
    }
}
