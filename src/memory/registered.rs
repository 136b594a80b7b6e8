//! [`Registered`]: an array of the user's whose memory the device knows, so that it is sent without a staging copy.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::HostArray;
use crate::backend::Severity;
use crate::device::Shared;
use crate::error::{Error, Result};

/// An array in memory that is known to a device; from [`Device::register`](crate::Device::register).
///
/// Derefs to [`HostArray`], so views of it can be made and sent. It is shared and read-only: arrays that it was made of
/// copy on write. The memory is given back to the system when it, its views and all copies from it are gone.
///
/// Where the driver refuses the memory (a part of it is registered already, or it can't be page-locked), the array is sent
/// through staging like any other, and [`is_direct`](Self::is_direct) says so.
#[derive(Clone, Debug)]
pub struct Registered {
    array: HostArray,
    is_direct: bool,
}

/// Undoes the registration, on a staging thread, once nothing uses the memory.
#[derive(Debug)]
struct Registration {
    device: Arc<Shared>,
    /// Keeps the memory until it is unregistered.
    array: Option<HostArray>,
}

impl Registered {
    pub(crate) async fn new(device: &Arc<Shared>, array: HostArray) -> Result<Self> {
        let (done, registered) = futures::channel::oneshot::channel();
        let owner = device.clone();
        device.engine.run(Box::new(move || {
            let outcome = match owner.backend.register(array.span()) {
                Ok(()) => {
                    let registration = Registration { device: owner.clone(), array: Some(array.clone()) };
                    Ok(Self { array: array.locked_for(owner.id, Arc::new(registration)), is_direct: true })
                }
                Err(fault) if fault.severity() == Severity::Operation => {
                    let (from, bytes) = array.span();
                    let error = fault.into_error(&owner.name);
                    tracing::warn!(%error, ?from, bytes, "an array is not registered, and goes through staging");
                    Ok(Self { array, is_direct: false })
                }
                Err(fault) => Err(owner.fault(fault)),
            };
            // Nobody may be waiting any more: then the registration ends here.
            let _ = done.send(outcome);
        }));
        let gone = || Error::Unsupported { what: "thread to register memory on", device: device.name.clone() };
        registered.await.unwrap_or_else(|_| Err(device.lost().unwrap_or_else(gone)))
    }
}

impl Registered {
    /// Whether copies go straight from its memory; else they go through staging.
    pub const fn is_direct(&self) -> bool {
        self.is_direct
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(array) = self.array.take() else { return };
        let device = self.device.clone();
        self.device.engine.run(Box::new(move || {
            if let Err(fault) = device.backend.unregister(array.span()) {
                let bytes = array.span().1;
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
