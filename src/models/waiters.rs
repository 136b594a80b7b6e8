//! Registering a waker against waking: no wake-up is lost, whoever comes first (invariant 7, B50).

use std::sync::Arc;
use std::task::Poll;

use super::bed::{block_on, check, thread};
use crate::reactor::{Key, Waiters, until};
use crate::sync::atomic::{AtomicBool, Ordering};

#[test]
fn no_wake_up_is_lost_between_asking_and_registering_b50() {
    check(|| {
        let shared = Arc::new((Waiters::default(), AtomicBool::new(false)));
        let other = shared.clone();
        let waking = thread::spawn(move || {
            other.1.store(true, Ordering::Release);
            other.0.wake();
        });
        block_on(until(&shared.0, || shared.1.load(Ordering::Acquire).then_some(())));
        waking.join().unwrap();
    });
}

#[test]
fn two_wait_one_gives_up_and_the_other_is_woken() {
    check(|| {
        let shared = Arc::new((Waiters::default(), AtomicBool::new(false)));
        let (waking, leaving) = (shared.clone(), shared.clone());
        let waking = thread::spawn(move || {
            waking.1.store(true, Ordering::Release);
            waking.0.wake();
        });
        let leaving = thread::spawn(move || {
            let mut key = Key::NONE;
            leaving.0.register(&mut key, std::task::Waker::noop());
            leaving.0.forget(&mut key);
        });
        block_on(until(&shared.0, || shared.1.load(Ordering::Acquire).then_some(())));
        waking.join().unwrap();
        leaving.join().unwrap();
    });
}

#[test]
fn a_future_that_moved_to_another_task_wakes_that_one_b49() {
    check(|| {
        let shared = Arc::new((Waiters::default(), AtomicBool::new(false)));
        let other = shared.clone();
        let waking = thread::spawn(move || {
            other.1.store(true, Ordering::Release);
            other.0.wake();
        });
        // Polled once by another task, then by this one.
        let mut key = Key::NONE;
        shared.0.register(&mut key, std::task::Waker::noop());
        if !shared.1.load(Ordering::Acquire) {
            block_on(std::future::poll_fn(|context| {
                shared.0.register(&mut key, context.waker());
                if shared.1.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        waking.join().unwrap();
    });
}
