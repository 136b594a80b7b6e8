//! What comes in: a source whose items come when a step says so, and memory that shows when it was let go of.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use inflight::HostBatch;

/// An error of a source.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) usize);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "item {}", self.0)
    }
}

impl std::error::Error for Refused {}

#[derive(Debug, Default)]
struct Inner {
    items: VecDeque<Result<HostBatch, Refused>>,
    ended: bool,
    waker: Option<Waker>,
}

/// A source and, as a clone, the hand that feeds it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source(Rc<RefCell<Inner>>);

impl Source {
    pub(crate) fn feed(&self, item: Result<HostBatch, Refused>) {
        self.0.borrow_mut().items.push_back(item);
        self.wake();
    }

    pub(crate) fn end(&self) {
        self.0.borrow_mut().ended = true;
        self.wake();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.borrow().ended
    }

    /// How many items nobody has taken yet.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().items.len()
    }

    fn wake(&self) {
        let waker = self.0.borrow_mut().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Stream for Source {
    type Item = Result<HostBatch, Refused>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut inner = self.0.borrow_mut();
        match inner.items.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if inner.ended => Poll::Ready(None),
            None => {
                inner.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Memory that is overwritten when its owner is dropped, and freed only with the yard: who reads it too late sees that.
#[derive(Debug)]
pub(crate) struct Canary {
    bytes: Vec<u8>,
    yard: Yard,
}

/// Where the memory of dropped canaries is kept, and how many live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Yard(Arc<Mutex<(usize, Vec<Vec<u8>>)>>);

impl Yard {
    pub(crate) fn canary(&self, bytes: Vec<u8>) -> Canary {
        self.0.lock().unwrap().0 += 1;
        Canary { bytes, yard: self.clone() }
    }

    pub(crate) fn alive(&self) -> usize {
        self.0.lock().unwrap().0
    }
}

impl AsRef<[u8]> for Canary {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.fill(0xDD);
        let mut yard = self.yard.0.lock().unwrap();
        yard.0 -= 1;
        yard.1.push(bytes);
    }
}
