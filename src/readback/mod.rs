//! [`Readback`]: a hot future that brings device memory home. Its shared half is in `core.rs`.

mod core;
pub(crate) mod on_stream;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ndarray::IxDyn;

pub(crate) use self::core::{Origin, ReadCore};
use crate::batch::Name;
use crate::dtype::Element;
use crate::error::Result;
use crate::reactor::Key;
use crate::{HostBatch, PinnedArray};

/// A copy from the device that is under way; resolves to the array.
///
/// The result lies in page-locked memory and counts in the device's read-back budget until it is dropped.
///
/// # Cancel safety
///
/// Dropping it drops the result, not the copy: both ends stay until the copy is done.
#[must_use = "a read-back is under way whether it is awaited or not, but only the future has the result"]
pub struct Readback<T: Element> {
    core: Arc<ReadCore>,
    key: Key,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Readback<T> {
    pub(crate) const fn new(core: Arc<ReadCore>) -> Self {
        Self { core, key: Key::NONE, element: PhantomData }
    }
}

impl<T: Element> Future for Readback<T> {
    type Output = Result<PinnedArray<T, IxDyn>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.core.waiters.register(&mut this.key, context.waker());
        this.core.take_array().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T: Element> Drop for Readback<T> {
    fn drop(&mut self) {
        self.core.waiters.forget(&mut self.key);
    }
}

impl<T: Element> std::fmt::Debug for Readback<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readback").field("core", &self.core).finish_non_exhaustive()
    }
}

/// The read-back of all fields of a batch; resolves to a [`HostBatch`] of the same names, dtypes and shapes.
///
/// # Cancel safety
///
/// As for [`Readback`].
#[derive(Debug)]
#[must_use = "a read-back is under way whether it is awaited or not, but only the future has the result"]
pub struct BatchReadback {
    fields: Vec<(Name, Arc<ReadCore>, Key)>,
    failed: Option<crate::Error>,
    batch: HostBatch,
}

impl BatchReadback {
    pub(crate) fn new(batch: HostBatch, fields: impl IntoIterator<Item = (Name, Arc<ReadCore>)>) -> Self {
        let fields = fields.into_iter().map(|(name, core)| (name, core, Key::NONE)).collect();
        Self { fields, failed: None, batch }
    }

    pub(crate) fn failed(error: crate::Error) -> Self {
        Self { fields: Vec::new(), failed: Some(error), batch: HostBatch::new() }
    }
}

impl Future for BatchReadback {
    type Output = Result<HostBatch>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Err(error));
        }
        for (_, core, key) in &mut this.fields {
            core.waiters.register(key, context.waker());
            if !core.is_done() {
                return Poll::Pending;
            }
        }
        let mut batch = std::mem::take(&mut this.batch);
        for (name, core, mut key) in std::mem::take(&mut this.fields) {
            core.waiters.forget(&mut key);
            match core.take_host_array() {
                Some(Ok(array)) => batch = batch.with(name, array),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => {}
            }
        }
        Poll::Ready(Ok(batch))
    }
}

impl Drop for BatchReadback {
    fn drop(&mut self) {
        for (_, core, key) in &mut self.fields {
            core.waiters.forget(key);
        }
    }
}
