//! [`Registered`]: an array of the user's whose memory the device knows, so that it is sent without a staging copy.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::channel::oneshot;

use super::registrations::Admitted;
use crate::HostArray;
use crate::backend::{Fault, Severity, Span};
use crate::device::Shared;
use crate::error::{Error, Result};

/// An array in memory that is known to a device; from [`Device::register`](crate::Device::register).
///
/// Derefs to [`HostArray`], so views of it can be made and sent. It is shared and read-only: arrays that it was made of
/// copy on write. The memory is given back to the system when it, its views and all copies from it are gone.
///
/// An array that lies inside memory which the device knows already shares that registration; the device forgets the memory
/// when the last of them is gone. Where the driver refuses the memory (only a part of it is registered, or it can't be
/// page-locked), the array is sent through staging like any other, [`is_direct`](Self::is_direct) says so, and a `tracing`
/// warning tells why.
#[derive(Clone, Debug)]
pub struct Registered {
    array: HostArray,
    is_direct: bool,
}

/// Memory that the device knows. Dropped when nothing uses it any more, it ends on a staging thread.
#[derive(Debug)]
pub(super) struct Registration {
    device: Arc<Shared>,
    span: Span,
    /// Keeps the memory until it is unregistered.
    array: Option<HostArray>,
}

/// Somebody wants an array registered.
#[derive(Debug)]
pub(super) struct Request {
    array: HostArray,
    span: Span,
    done: oneshot::Sender<Result<Registered>>,
}

impl Registered {
    pub(crate) async fn new(device: &Arc<Shared>, array: HostArray) -> Result<Self> {
        let memory = array.span();
        if memory.1 == 0 || array.page_locked() == Some(device.id) {
            return Ok(Self { array, is_direct: true });
        }
        let (done, registered) = oneshot::channel();
        let span = Span::new(memory, array.is_of_file());
        Request { array, span, done }.serve_later(device);
        let gone = || Error::Unsupported { what: "thread to register memory on", device: device.name.clone() };
        registered.await.unwrap_or_else(|_| Err(device.lost().unwrap_or_else(gone)))
    }

    /// Whether copies go straight from its memory; else they go through staging.
    pub const fn is_direct(&self) -> bool {
        self.is_direct
    }
}

impl Request {
    fn serve_later(self, device: &Arc<Shared>) {
        let owner = device.clone();
        device.engine.run(Box::new(move || self.serve(&owner)));
    }

    /// Serves it on a staging thread, now or when what is in its way is over.
    fn serve(self, device: &Arc<Shared>) {
        match device.registrations.admit(self.span, self) {
            Admitted::Shares(request, registration) => request.direct(registration),
            Admitted::First(request) => request.register(device),
            Admitted::Waits => {}
        }
    }

    fn register(self, device: &Arc<Shared>) {
        let (span, array) = (self.span, Some(self.array.clone()));
        let registered = device.backend.register(span);
        let made = registered.map(|()| Arc::new(Registration { device: device.clone(), span, array }));
        let waiting = match &made {
            Ok(registration) => device.registrations.made(span, registration),
            Err(_) => device.registrations.ended(span),
        };
        waiting.into_iter().for_each(|request| request.serve_later(device));
        match made {
            Ok(registration) => self.direct(registration),
            Err(fault) => self.refused(device, fault),
        }
    }

    fn direct(self, registration: Arc<Registration>) {
        let array = self.array.locked_for(registration.device.id, registration);
        // Nobody may be waiting any more: then the registration ends here, unless others use it.
        let _ = self.done.send(Ok(Registered { array, is_direct: true }));
    }

    fn refused(self, device: &Shared, fault: Fault) {
        let Self { array, span, done } = self;
        let outcome = if fault.severity() == Severity::Operation {
            let (error, memory) = (fault.into_error(&device.name), span);
            let registered = device.registrations.beside(span).map(tracing::field::display);
            tracing::warn!(%error, %memory, registered, "an array is not registered, and goes through staging");
            Ok(Registered { array, is_direct: false })
        } else {
            Err(device.fault(fault))
        };
        let _ = done.send(outcome);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(array) = self.array.take() else { return };
        let (device, span) = (self.device.clone(), self.span);
        self.device.engine.run(Box::new(move || {
            let ended = device.backend.unregister(span);
            // While it is there who wants the same memory waits, so that no driver is asked too early.
            let waiting = device.registrations.ended(span);
            waiting.into_iter().for_each(|request| request.serve_later(&device));
            if let Err(fault) = ended {
                let bytes = span.bytes;
                tracing::warn!(code = fault.code, bytes, "an array could not be unregistered: its memory is leaked");
                device.counters.leaked.fetch_add(bytes as u64, Ordering::Relaxed);
                // The driver still takes the memory for page-locked: what is allocated there next would be so in part.
                let _ = std::mem::ManuallyDrop::new(array);
            }
        }));
    }
}

impl Deref for Registered {
    type Target = HostArray;

    fn deref(&self) -> &HostArray {
        &self.array
    }
}

impl From<Registered> for HostArray {
    fn from(registered: Registered) -> Self {
        registered.array
    }
}
