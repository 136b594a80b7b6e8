//! [`ToDevice`], from [`BatchStreamExt::to_device`](super::BatchStreamExt::to_device).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::{FusedStream, Stream};
use pin_project::pin_project;

use super::Place;
use super::fairness::Fairness;
use crate::batch::{HostBatch, IntoBatch};
use crate::device::planned;
use crate::error::Error;
use crate::plan::{Layout, Plan, Relayout};
use crate::{Device, Transfer};

/// Stream for the [`to_device`](super::BatchStreamExt::to_device) method.
#[pin_project]
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct ToDevice<St> {
    #[pin]
    source: St,
    open: Open,
    /// A batch that waits for admission.
    waiting: Option<Waiting>,
    relayout: Option<Relayout>,
    /// That of the batch before: the next one is mostly like it.
    layout: Option<Arc<Layout>>,
    state: State,
    fairness: Fairness,
}

#[derive(Debug)]
struct Waiting {
    batch: HostBatch,
    plan: Plan,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The source has ended, or the device is lost.
    Ended,
    /// The end was told.
    Over,
}

/// A live pipeline: while it is open, others leave it its floor.
#[derive(Debug)]
struct Open(Place);

impl Open {
    fn close(&self) {
        self.0.device().admission.close(self.0.pipeline().id());
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close();
    }
}

impl<St> ToDevice<St> {
    pub(super) fn new(source: St, device: &Device) -> Self {
        let pipeline = device.shared().admission.open();
        let open = Open(Place::new(device.shared().clone(), pipeline));
        Self {
            source,
            open,
            waiting: None,
            relayout: None,
            layout: None,
            state: State::Open,
            fairness: Fairness::default(),
        }
    }

    /// Names the pipeline: it gets a row of that name in [`Device::stats`](crate::Device::stats).
    pub fn named(self, name: impl AsRef<str>) -> Self {
        self.open.0.pipeline().name(crate::batch::Name::new(name));
        self
    }

    /// Says where this pipeline's arrays are brought into order, in place of the device's
    /// [`DeviceBuilder::relayout`](crate::DeviceBuilder::relayout).
    pub fn relayout(mut self, relayout: Relayout) -> Self {
        self.relayout = Some(relayout);
        self
    }
}

impl<St: Stream> ToDevice<St>
where
    St::Item: IntoBatch,
{
    /// Plans an item of the source. One that can't be sent becomes a transfer that has already failed.
    fn plan(
        open: &Open,
        relayout: Option<Relayout>,
        layout: &mut Option<Arc<Layout>>,
        item: St::Item,
    ) -> Result<Waiting, Error> {
        let batch = item.into_batch()?;
        let device = open.0.device();
        let terms = device.terms(relayout);
        match planned(&batch, &terms, (device, open.0.pipeline()), layout.as_ref()) {
            Ok((plan, bytes)) => {
                if !layout.as_ref().is_some_and(|layout| Arc::ptr_eq(layout, &plan.layout)) {
                    *layout = Some(plan.layout.clone());
                }
                Ok(Waiting { batch, plan, bytes })
            }
            Err(error) => Err(error.with_batch(batch)),
        }
    }
}

impl<St: Stream> Stream for ToDevice<St>
where
    St::Item: IntoBatch,
{
    type Item = Transfer;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Transfer>> {
        let mut this = self.project();
        if *this.state != State::Open {
            *this.state = State::Over;
            return Poll::Ready(None);
        }
        let progress = ready!(this.fairness.proceed(context));
        if this.waiting.is_none() {
            if let Some(error) = this.open.0.lost() {
                *this.state = State::Ended;
                this.open.close();
                return Poll::Ready(Some(Transfer::failed(error)));
            }
            let Some(item) = ready!(this.source.as_mut().poll_next(context)) else {
                *this.state = State::Over;
                this.open.close();
                return Poll::Ready(None);
            };
            match Self::plan(this.open, *this.relayout, this.layout, item) {
                Ok(waiting) => *this.waiting = Some(waiting),
                Err(error) => {
                    progress.made();
                    return Poll::Ready(Some(Transfer::failed(error)));
                }
            }
        }
        let bytes = this.waiting.as_ref().map_or(0, |waiting| waiting.bytes);
        let admitted = ready!(this.open.0.poll(bytes, context));
        progress.made();
        let Some(Waiting { batch, plan, .. }) = this.waiting.take() else { return Poll::Pending };
        Poll::Ready(Some(match admitted {
            Ok(grant) => {
                let (device, pipeline) = (this.open.0.device(), this.open.0.pipeline());
                Transfer::submit(device, pipeline, batch, plan, grant)
            }
            Err(error) => {
                if error.is_fatal() {
                    *this.state = State::Ended;
                    this.open.close();
                }
                Transfer::failed(error.with_batch(batch))
            }
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.state != State::Open {
            return (0, Some(0));
        }
        let waiting = usize::from(self.waiting.is_some());
        let (lower, upper) = self.source.size_hint();
        (lower.saturating_add(waiting), upper.and_then(|upper| upper.checked_add(waiting)))
    }
}

impl<St: Stream> FusedStream for ToDevice<St>
where
    St::Item: IntoBatch,
{
    fn is_terminated(&self) -> bool {
        self.state == State::Over
    }
}
