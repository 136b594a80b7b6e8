//! [`Transfer`]: a batch on its way to the device, as a future; [`Early`]: the same, handed over while it arrives.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::DeviceBatch;
use crate::admission::{Block, Grant, Pipeline};
use crate::batch::{BatchCore, BatchOwner, HostBatch};
use crate::device::{Active, Device, Shared};
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
        self.core.taken();
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
        device.fetching.begun(device, &plan);
        let block = grant.block.take().map(|memory| Block { memory, pipeline: grant.pipeline });
        let inline = plan.layout.is_small && block.is_some() && device.single.is_none();
        let core =
            BatchOwner::new(BatchCore::new(device.clone(), pipeline.clone(), &batch, plan.layout.clone(), block));
        if plan.layout.parts.is_empty() {
            core.settle();
            return Self::flying(core);
        }
        let grant = if core.has_block() {
            device.free_condemned_later(&grant);
            None
        } else {
            Some(grant)
        };
        let left = if inline { device.engine.try_inline(&core, batch, plan) } else { Some((batch, plan)) };
        if let Some((batch, plan)) = left {
            let (core, grant, active) = (core.clone(), Mutex::new(grant), Active::new(device));
            device.engine.push(StagedBatch { core, batch, plan, grant, active });
        }
        Self::flying(core)
    }

    const fn flying(core: BatchOwner) -> Self {
        Self(State::Flying(Flying { core, key: Key::NONE }))
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
        let ask = |core: &BatchOwner| match core.failure() {
            Some(error) => Some(Err(error.clone())),
            None => is_there(core).then(|| Ok(DeviceBatch::new(core.clone()))),
        };
        // Often it is there already, and no waker is needed. Else: registered first, asked afterwards (invariant 7).
        let device = &flying.core.device;
        let Some(outcome) = ask(&flying.core)
            .or_else(|| {
                // What completes below must not wake this very poll (invariant 7).
                if flying.key.is_registered() {
                    flying.core.waiters.forget(&mut flying.key);
                }
                // Who waits for what waits for company sends it: on an H200 that beat waiting for the link to run dry.
                device.engine.together.flush(device);
                device.reactor.help(device);
                ask(&flying.core)
            })
            .or_else(|| {
                flying.core.waiters.register(&mut flying.key, context.waker());
                ask(&flying.core)
            })
        else {
            return Poll::Pending;
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
