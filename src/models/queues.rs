//! Streams without hardware: a thread that parks, callers that do small copies themselves, and events across streams.

use std::sync::Arc;

use super::bed::{check_with, thread};
use crate::backend::queue::{Driver, HostQueue};
use crate::sync::atomic::{AtomicUsize, Ordering};

fn queue(name: &str) -> Arc<HostQueue> {
    HostQueue::new(name, Driver::Thread { link: None, eager: true }).unwrap()
}

#[test]
fn tasks_of_two_threads_are_all_done_and_the_thread_ends() {
    check_with(2, || {
        let (queue, done) = (queue("one"), Arc::new(AtomicUsize::new(0)));
        let launch = |queue: &HostQueue, done: &Arc<AtomicUsize>| {
            let done = done.clone();
            let task = move || {
                done.fetch_add(1, Ordering::AcqRel);
            };
            queue.launch(Box::new(task), "task", 0);
        };
        let (same, also) = (queue.clone(), done.clone());
        let launching = thread::spawn(move || launch(&same, &also));
        launch(&queue, &done);
        launching.join().unwrap();
        while done.load(Ordering::Acquire) < 2 {
            crate::sync::yield_now();
        }
        // The model ends when all threads have.
        drop(queue);
    });
}
