//! [`BufferedBy`] and [`Depth`], from [`BatchStreamExt::buffered_by`](super::BatchStreamExt::buffered_by).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::Future;
use futures::stream::{FusedStream, FuturesOrdered, Stream, StreamExt};
use pin_project::{pin_project, pinned_drop};

use crate::error::{Error, Result};
use crate::reactor::{Key, Waiters};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// How many futures a [`BufferedBy`] keeps under way: a handle that can change it while the stream runs.
#[derive(Clone, Debug)]
pub struct Depth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    depth: AtomicUsize,
    changed: Waiters,
}

impl Depth {
    /// A depth of `depth`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] for 0: nothing would ever come.
    pub fn new(depth: usize) -> Result<Self> {
        let inner = Inner { depth: AtomicUsize::new(nonzero("depth", depth)?), changed: Waiters::default() };
        Ok(Self(Arc::new(inner)))
    }

    /// The depth now.
    pub fn get(&self) -> usize {
        self.0.depth.load(Ordering::Acquire)
    }

    /// Changes it. A smaller depth takes effect as futures complete.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] for 0; the depth stays as it was.
    pub fn set(&self, depth: usize) -> Result<()> {
        self.0.depth.store(nonzero("depth", depth)?, Ordering::Release);
        self.0.changed.wake();
        Ok(())
    }
}

/// Refuses a depth of 0.
pub(super) fn nonzero(name: &'static str, depth: usize) -> Result<usize> {
    if depth == 0 {
        return Err(Error::InvalidSetting { name, value: "0".to_owned(), reason: "it must be at least 1" });
    }
    Ok(depth)
}

/// Stream for the [`buffered_by`](super::BatchStreamExt::buffered_by) method.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct BufferedBy<St: Stream>
where
    St::Item: Future,
{
    #[pin]
    source: St,
    ended: bool,
    over: bool,
    running: FuturesOrdered<St::Item>,
    depth: Depth,
    key: Key,
}

impl<St: Stream> BufferedBy<St>
where
    St::Item: Future,
{
    pub(super) fn new(source: St, depth: &Depth) -> Self {
        let (depth, key) = (depth.clone(), Key::NONE);
        Self { source, ended: false, over: false, running: FuturesOrdered::new(), depth, key }
    }
}

#[pinned_drop]
impl<St: Stream> PinnedDrop for BufferedBy<St>
where
    St::Item: Future,
{
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        this.depth.0.changed.forget(this.key);
    }
}

impl<St: Stream> Stream for BufferedBy<St>
where
    St::Item: Future,
{
    type Item = <St::Item as Future>::Output;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        this.depth.0.changed.register(this.key, context.waker());
        while !*this.ended && this.running.len() < this.depth.get() {
            match this.source.as_mut().poll_next(context) {
                Poll::Ready(Some(future)) => this.running.push_back(future),
                Poll::Ready(None) => *this.ended = true,
                Poll::Pending => break,
            }
        }
        match this.running.poll_next_unpin(context) {
            Poll::Ready(Some(item)) => Poll::Ready(Some(item)),
            Poll::Ready(None) if *this.ended => {
                *this.over = true;
                Poll::Ready(None)
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let running = self.running.len();
        let (lower, upper) = if self.ended { (0, Some(0)) } else { self.source.size_hint() };
        (lower.saturating_add(running), upper.and_then(|upper| upper.checked_add(running)))
    }
}

impl<St: Stream> FusedStream for BufferedBy<St>
where
    St::Item: Future,
{
    fn is_terminated(&self) -> bool {
        self.over
    }
}
