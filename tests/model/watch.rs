//! [`Watch`]: holds a future to the rule of wakes (invariant 7), at each poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it is woken.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The waker of one future, and whether the future waits for it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    count: Arc<Count>,
    waits: bool,
}

impl Watch {
    /// Whether nobody polled it in vain, or it was woken since.
    pub(crate) fn is_due(&self) -> bool {
        !self.waits || self.count.0.load(Ordering::SeqCst) > 0
    }

    /// Polls with the waker of before, or with another one.
    ///
    /// Unless it may change its mind `unasked`, a future that said "pending" and was not woken must say so again; nobody wakes itself in its own poll.
    pub(crate) fn poll<T>(
        &mut self,
        fresh: bool,
        unasked: bool,
        what: &str,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let due = self.is_due();
        if fresh {
            self.count = Arc::default();
        }
        self.count.0.store(0, Ordering::SeqCst);
        let waker = Waker::from(self.count.clone());
        let polled = poll(&mut Context::from_waker(&waker));
        self.waits = polled.is_pending();
        match &polled {
            Poll::Ready(_) => assert!(due || unasked, "{what} became ready and was not woken"),
            Poll::Pending => assert!(!self.is_due(), "{what} woke itself in its own poll"),
        }
        polled
    }
}
