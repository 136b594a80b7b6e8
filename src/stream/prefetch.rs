//! [`Prefetch`], from [`BatchStreamExt::prefetch`](super::BatchStreamExt::prefetch).

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_channel::{Receiver, Sender};
use futures::FutureExt;
use futures::stream::{FusedStream, Stream, StreamExt};
use tokio::task::AbortHandle;

use super::buffered_by::nonzero;
use crate::error::{Error, Result};

/// Stream for the [`prefetch`](super::BatchStreamExt::prefetch) method. Clones share the items: each goes to one of them.
#[derive(Debug)]
#[must_use = "items that nobody takes hold the task up"]
pub struct Prefetch<I> {
    items: Pin<Box<Receiver<I>>>,
    /// Ends the task when the last clone is gone.
    task: Arc<Task>,
}

impl<I> Clone for Prefetch<I> {
    fn clone(&self) -> Self {
        Self { items: Box::pin((*self.items).clone()), task: self.task.clone() }
    }
}

/// Items ahead at most: there is a place for each from the beginning.
const MOST: usize = 1 << 16;

fn checked(ahead: usize) -> Result<usize> {
    if nonzero("prefetch", ahead)? > MOST {
        let value = ahead.to_string();
        return Err(Error::InvalidSetting { name: "prefetch", value, reason: "it must be at most 65536" });
    }
    Ok(ahead)
}

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T, E> Prefetch<Result<T, E>>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    pub(super) fn new(source: impl Stream<Item = Result<T, E>> + Send + 'static, ahead: usize) -> Result<Self> {
        let (sender, items) = async_channel::bounded(checked(ahead)?);
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::Unsupported {
            what: "tokio runtime to spawn a prefetch on",
            device: "this thread".to_owned(),
        })?;
        let task = runtime.spawn(async move {
            let panicked = AssertUnwindSafe(forward(source, &sender)).catch_unwind().await.err();
            if let Some(payload) = panicked {
                // Fails only if nobody listens any more.
                let _ = sender.send(Err(Error::panicked("the source of a prefetch", &*payload).into())).await;
            }
        });
        Ok(Self { items: Box::pin(items), task: Arc::new(Task(task.abort_handle())) })
    }
}

/// Sends all items on, until they end or nobody listens.
async fn forward<I>(source: impl Stream<Item = I>, sender: &Sender<I>) {
    let mut source = std::pin::pin!(source);
    while let Some(item) = source.next().await {
        if sender.send(item).await.is_err() {
            return;
        }
    }
}

impl<I> Stream for Prefetch<I> {
    type Item = I;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<I>> {
        self.items.as_mut().poll_next(context)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Other clones may take what is in the channel.
        let alone = Arc::strong_count(&self.task) == 1;
        (if alone { self.items.len() } else { 0 }, if self.items.is_closed() { Some(self.items.len()) } else { None })
    }
}

impl<I> FusedStream for Prefetch<I> {
    fn is_terminated(&self) -> bool {
        self.items.is_terminated()
    }
}
