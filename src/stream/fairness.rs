//! [`Fairness`]: a stream that is always ready lets other tasks of its executor run.

use std::task::{Context, Poll};

/// Without an executor that counts, every so many ready items in a row yield once.
const IN_A_ROW: u32 = 64;

/// Counts ready items where the executor does not.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    ready: u32,
}

/// Leave to go on; say [`made`](Self::made) when an item is ready.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    ready: &'a mut u32,
    #[cfg(feature = "tokio")]
    tokio: tokio::task::coop::RestoreOnPending,
}

impl Fairness {
    /// Takes part in tokio's cooperative budget inside a runtime; elsewhere yields once every 64 ready items.
    pub(super) fn proceed(&mut self, context: &mut Context<'_>) -> Poll<Progress<'_>> {
        #[cfg(feature = "tokio")]
        let tokio = std::task::ready!(tokio::task::coop::poll_proceed(context));
        if self.ready >= IN_A_ROW && !in_tokio() {
            self.ready = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Progress {
            ready: &mut self.ready,
            #[cfg(feature = "tokio")]
            tokio,
        })
    }
}

impl Progress<'_> {
    pub(super) fn made(self) {
        *self.ready = self.ready.saturating_add(1);
        #[cfg(feature = "tokio")]
        self.tokio.made_progress();
    }
}

#[cfg(feature = "tokio")]
fn in_tokio() -> bool {
    tokio::runtime::Handle::try_current().is_ok()
}

#[cfg(not(feature = "tokio"))]
const fn in_tokio() -> bool {
    false
}
