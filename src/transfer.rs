//! [`Transfer`]: a batch on its way to the device, as a future; [`Early`]: the same, handed over while it arrives.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::DeviceBatch;
use crate::admission::{Block, Grant, Pipeline};
use crate::batch::{BatchCore, BatchOwner, HostBatch};
use crate::device::{Device, Shared};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::reactor::Key;
use crate::staging::StagedBatch;
use crate::sync::Mutex;

/// A host-to-device transfer that is already under way.
///
/// Resolves when the whole batch has arrived. Polling it moves nothing: the copies go on by themselves.
///
/// # Cancel safety
///
/// Dropping it at any moment frees nothing that a copy still uses and blocks nobody; the copies run to their end and the
/// device memory comes back. Forgetting it (`mem::forget`) leaks the batch's device memory, which stays counted.
#[derive(Debug)]
#[must_use = "a transfer is under way whether it is awaited or not, but only the future has the batch"]
pub struct Transfer(State);

/// A [`Transfer`] that resolves when the batch's first field is queued; from [`Transfer::early`].
///
/// # Cancel safety
///
/// As for [`Transfer`].
#[derive(Debug)]
#[must_use = "a transfer is under way whether it is awaited or not, but only the future has the batch"]
pub struct Early(State);

#[derive(Debug)]
enum State {
    /// Nothing was submitted.
    Failed(Error),
    /// Submitted, and not yet taken by the consumer.
    Flying(Flying),
    /// Resolved.
    Taken,
}

/// Counts as in flight until it is dropped.
#[derive(Debug)]
struct Flying {
    core: BatchOwner,
    key: Key,
}

impl Drop for Flying {
    fn drop(&mut self) {
        self.core.waiters.forget(&mut self.key);
        self.core.pipeline.taken();
    }
}

impl Transfer {
    /// A transfer that keeps the place of a batch which could not be submitted.
    pub(crate) const fn failed(error: Error) -> Self {
        Self(State::Failed(error))
    }

    /// Submits an admitted batch: its copies are enqueued here, or by the staging threads.
    pub(crate) fn submit(
        device: &Arc<Shared>,
        pipeline: &Arc<Pipeline>,
        batch: HostBatch,
        plan: Plan,
        mut grant: Grant,
    ) -> Self {
        let core = BatchOwner::new(BatchCore::new(device.clone(), pipeline.clone(), &batch, &plan));
        let transfer = Self(State::Flying(Flying { core: core.clone(), key: Key::NONE }));
        if plan.parts.is_empty() {
            core.settle();
            return transfer;
        }
        if plan.is_small
            && device.single.is_none()
            && let Some(memory) = grant.block.take()
        {
            core.set_block(Block { memory, pipeline: grant.pipeline });
            device.free_later(crate::backend::Space::Device, std::mem::take(&mut grant.evicted));
            match device.engine.try_inline(&core, &batch, &plan) {
                Some(Ok(())) => return transfer,
                Some(Err(error)) => {
                    core.fail(if core.begun.is_up() { error } else { error.with_batch(batch) });
                    return transfer;
                }
                None => {}
            }
        }
        let grant = if core.has_block() { None } else { Some(grant) };
        device.engine.push(StagedBatch { core, batch, plan, grant: Mutex::new(grant) });
        transfer
    }

    /// Hands the batch over when its first field is queued, while the rest is still arriving.
    ///
    /// Fields that are not queued yet are awaited by [`Lease::queued`](crate::Lease::queued).
    pub fn early(mut self) -> Early {
        Early(std::mem::replace(&mut self.0, State::Taken))
    }

    /// The device it goes to, while it is on its way.
    pub fn device(&self) -> Option<Device> {
        match &self.0 {
            State::Flying(flying) => Some(Device::from_shared(flying.core.device.clone())),
            State::Failed(_) | State::Taken => None,
        }
    }
}

impl State {
    fn poll(&mut self, context: &mut Context<'_>, is_there: impl Fn(&BatchCore) -> bool) -> Poll<Result<DeviceBatch>> {
        let flying = match self {
            Self::Flying(flying) => flying,
            Self::Failed(_) | Self::Taken => {
                return match std::mem::replace(self, Self::Taken) {
                    Self::Failed(error) => Poll::Ready(Err(error)),
                    // Polled after it resolved: there is nothing to wait for.
                    _ => Poll::Pending,
                };
            }
        };
        flying.core.waiters.register(&mut flying.key, context.waker());
        let outcome = match flying.core.failure() {
            Some(error) => Err(error.clone()),
            None if is_there(&flying.core) => Ok(DeviceBatch::new(flying.core.clone())),
            None => return Poll::Pending,
        };
        *self = Self::Taken;
        Poll::Ready(outcome)
    }
}

impl Future for Transfer {
    type Output = Result<DeviceBatch>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context, BatchCore::is_whole)
    }
}

impl Future for Early {
    type Output = Result<DeviceBatch>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context, BatchCore::has_begun)
    }
}
