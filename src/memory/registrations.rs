//! [`Registrations`]: which memory of the user's a device knows, so that arrays in the same memory share a registration.
//!
//! A registration is made, shared while somebody uses it, and ended, all on staging threads. Who asks for memory whose
//! registration is being made or ended is served when that is over: before, a driver would refuse it.

use std::sync::{Arc, Weak};

use super::registered::{Registration, Request};
use crate::backend::Span;
use crate::sync::{Mutex, lock};

/// The registrations of one device.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Mutex<Vec<Entry>>);

/// One of them, from before the driver is asked for it until it has been told to forget it.
#[derive(Debug)]
struct Entry {
    span: Span,
    /// Nobody has it while it is made, and when its last user is gone.
    registration: Weak<Registration>,
    /// To be served when it has been made, or ended.
    waiting: Vec<Request>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Admitted {
    /// Its memory is registered already.
    Shares(Request, Arc<Registration>),
    /// It is to be registered, and nobody else will do so.
    First(Request),
    /// It is served later.
    Waits,
}

impl Registrations {
    /// Finds out what is to be done for a request of the memory `span`.
    pub(super) fn admit(&self, span: Span, request: Request) -> Admitted {
        let mut entries = lock(&self.0);
        let shared = entries.iter().filter(|entry| entry.span.contains(span));
        if let Some(registration) = shared.filter_map(|entry| entry.registration.upgrade()).next() {
            return Admitted::Shares(request, registration);
        }
        // Not by `upgrade`: the last of a registration must not be dropped under the lock.
        let in_the_way = |entry: &&mut Entry| entry.span.touches(span) && entry.registration.strong_count() == 0;
        if let Some(entry) = entries.iter_mut().find(in_the_way) {
            entry.waiting.push(request);
            return Admitted::Waits;
        }
        entries.push(Entry { span, registration: Weak::new(), waiting: Vec::new() });
        Admitted::First(request)
    }

    /// The registration of `span` is there. Answers who waited for it.
    pub(super) fn made(&self, span: Span, registration: &Arc<Registration>) -> Vec<Request> {
        let mut entries = lock(&self.0);
        let Some(entry) = entries.iter_mut().find(|entry| entry.span == span) else { return Vec::new() };
        entry.registration = Arc::downgrade(registration);
        std::mem::take(&mut entry.waiting)
    }

    /// There is no registration of `span`, or no more. Answers who waited for that.
    pub(super) fn ended(&self, span: Span) -> Vec<Request> {
        let mut entries = lock(&self.0);
        let place = entries.iter().position(|entry| entry.span == span);
        place.map(|place| entries.swap_remove(place).waiting).unwrap_or_default()
    }

    /// A registration that shares a page with `span`.
    pub(super) fn beside(&self, span: Span) -> Option<Span> {
        let entries = lock(&self.0);
        entries.iter().map(|entry| entry.span).find(|known| known.touches(span) && *known != span)
    }
}
