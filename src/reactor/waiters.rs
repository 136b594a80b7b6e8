//! [`Waiters`]: the wakers of all futures that wait for one thing.
//!
//! Who waits registers first and asks afterwards; who changes the state does so first and wakes afterwards. So no wake-up
//! is lost in between (invariant 7).

use std::task::{Poll, Waker};

use smallvec::SmallVec;

use crate::sync::{Mutex, lock, wake};

/// A place in [`Waiters`], kept by the future that waits.
#[derive(Debug, Default)]
pub(crate) struct Key(Option<u64>);

impl Key {
    pub(crate) const NONE: Self = Self(None);

    /// Whether a waker may be in its place.
    pub(crate) const fn is_registered(&self) -> bool {
        self.0.is_some()
    }
}

/// Wakers, each under the key of its future.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    wakers: SmallVec<[(u64, Waker); 1]>,
}

impl Waiters {
    /// Puts `waker` in the place of `key`, replacing the one that was there.
    pub(crate) fn register(&self, key: &mut Key, waker: &Waker) {
        let replaced = {
            let mut inner = lock(&self.0);
            let id = *key.0.get_or_insert_with(|| {
                inner.next += 1;
                inner.next
            });
            match inner.wakers.iter_mut().find(|(of, _)| *of == id) {
                Some((_, old)) if old.will_wake(waker) => None,
                Some((_, old)) => Some(std::mem::replace(old, waker.clone())),
                None => {
                    inner.wakers.push((id, waker.clone()));
                    None
                }
            }
        };
        drop(replaced);
    }

    /// Forgets the waker of `key`.
    pub(crate) fn forget(&self, key: &mut Key) {
        let Some(id) = key.0.take() else { return };
        let forgotten = {
            let mut inner = lock(&self.0);
            let place = inner.wakers.iter().position(|(of, _)| *of == id);
            place.map(|place| inner.wakers.swap_remove(place))
        };
        drop(forgotten);
    }

    /// Wakes all of them. Returns how many there were.
    pub(crate) fn wake(&self) -> usize {
        let woken = std::mem::take(&mut lock(&self.0).wakers);
        let count = woken.len();
        for (_, waker) in woken {
            wake(waker);
        }
        count
    }
}

/// Waits until `ask` has an answer; asked again whenever `waiters` are woken.
pub(crate) async fn until<T>(waiters: &Waiters, mut ask: impl FnMut() -> Option<T>) -> T {
    struct Place<'a>(&'a Waiters, Key);
    impl Drop for Place<'_> {
        fn drop(&mut self) {
            self.0.forget(&mut self.1);
        }
    }
    let mut place = Place(waiters, Key::NONE);
    std::future::poll_fn(|context| {
        place.0.register(&mut place.1, context.waker());
        ask().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
