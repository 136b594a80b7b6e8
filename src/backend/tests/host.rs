//! Queues with threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{EAGER, THREAD, copy, finish, queue};
use crate::backend::host::LinkModel;
use crate::backend::queue::Driver;
use crate::backend::{Answer, HostEvent, HostQueue};

/// What a test waits for at most.
const LONG: Duration = Duration::from_secs(20);

/// Queues work that begins, says so, and goes on when told to.
fn gate(queue: &HostQueue) -> Sender<()> {
    let (open, opened) = channel::<()>();
    let (begin, begun) = channel();
    let work = move || {
        begin.send(()).unwrap();
        let _ = opened.recv();
    };
    queue.launch(Box::new(work), "gate", 0);
    begun.recv_timeout(LONG).unwrap();
    open
}

/// Queues work after which the end of the thread can be seen.
fn end_of_thread(queue: &HostQueue) -> Receiver<()> {
    struct Tell(Sender<()>);
    impl Drop for Tell {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    thread_local!(static TELL: Mutex<Option<Tell>> = const { Mutex::new(None) });
    let (tell, told) = channel();
    queue.launch(Box::new(move || TELL.with(|place| *place.lock().unwrap() = Some(Tell(tell)))), "tell", 0);
    told
}

#[test]
fn work_is_done_in_order_and_never_by_the_caller() {
    let queue = queue(THREAD);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for number in 0..1000 {
        let (seen, caller) = (seen.clone(), std::thread::current().id());
        let work = move || {
            assert_ne!(std::thread::current().id(), caller);
            seen.lock().unwrap().push(number);
        };
        queue.launch(Box::new(work), "number", 0);
    }
    finish(&queue);
    assert_eq!(*seen.lock().unwrap(), (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_small_copy_into_an_idle_queue_is_done_at_once() {
    let queue = queue(EAGER);
    let (src, mut dst) = (vec![7; 64 << 10], vec![0; 64 << 10]);
    queue.copy(copy(&src, &mut dst), Vec::new());
    assert_eq!(src, dst);
    let event = Arc::new(HostEvent::default());
    queue.record(&event);
    assert_eq!(event.query(), Answer::Fired);
}

#[test]
fn a_small_copy_stays_behind_what_is_queued() {
    let queue = queue(EAGER);
    let open = gate(&queue);
    let (src, mut dst, event) = ([7; 64], [0; 64], Arc::new(HostEvent::default()));
    let into = copy(&src, &mut dst);
    queue.copy(into, Vec::new());
    queue.record(&event);
    assert_eq!(event.query(), Answer::NotYet);
    open.send(()).unwrap();
    event.block_until(1);
    assert_eq!(dst, src);
}

#[test]
fn eager_copies_and_copies_by_the_thread_keep_their_order() {
    for big in [(64 << 10) + 1, 256 << 10] {
        let queue = queue(EAGER);
        let (first, second) = (vec![1; big], [2; 16]);
        for _ in 0..200 {
            let mut dst = vec![0; big];
            let whole = copy(&first, &mut dst);
            let head = copy(&second, &mut dst[..16]);
            queue.copy(whole, Vec::new());
            queue.copy(head, Vec::new());
            finish(&queue);
            assert_eq!(dst[..16], second);
            assert!(dst[16..].iter().all(|byte| *byte == 1));
        }
    }
}

#[test]
fn a_thread_that_begins_late_does_not_take_the_queue_from_a_caller() {
    for _ in 0..200 {
        let queue = queue(EAGER);
        assert!(queue.0.claim());
        let event = Arc::new(HostEvent::default());
        queue.record(&event);
        for _ in 0..50 {
            std::thread::yield_now();
        }
        assert_eq!(event.query(), Answer::NotYet, "the caller is not done");
        queue.0.unclaim();
        event.block_until(1);
    }
}

#[test]
fn callers_on_many_threads_find_their_own_copies_done() {
    let queue = queue(EAGER);
    std::thread::scope(|scope| {
        for value in 0..4_u8 {
            let queue = &queue;
            scope.spawn(move || {
                for round in 0..500 {
                    let bytes = if round % 7 == 0 { 100_000 } else { 4096 };
                    let (src, mut dst) = (vec![value; bytes], vec![0xFF; bytes]);
                    queue.copy(copy(&src, &mut dst), Vec::new());
                    finish(queue);
                    assert_eq!(src, dst);
                }
            });
        }
    });
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let (ahead, behind) = (queue(THREAD), queue(THREAD));
    let open = gate(&ahead);
    let (event, done) = (Arc::new(HostEvent::default()), Arc::new(HostEvent::default()));
    let ran = Arc::new(AtomicBool::new(false));
    ahead.record(&event);
    behind.wait(&event);
    let sees = ran.clone();
    behind.launch(Box::new(move || sees.store(true, Ordering::Release)), "work", 0);
    behind.record(&done);
    for _ in 0..100 {
        std::thread::yield_now();
    }
    assert!(!ran.load(Ordering::Acquire));
    assert_eq!(done.query(), Answer::NotYet);
    open.send(()).unwrap();
    done.block_until(1);
    assert!(ran.load(Ordering::Acquire));
}

#[test]
fn a_wait_is_for_the_latest_record_at_its_call() {
    let (ahead, behind) = (queue(THREAD), queue(THREAD));
    let event = Arc::new(HostEvent::default());
    let first = gate(&ahead);
    ahead.record(&event);
    behind.wait(&event);
    let (work, worked) = channel();
    behind.launch(Box::new(move || work.send(()).unwrap()), "work", 0);
    first.send(()).unwrap();
    let second = gate(&ahead);
    ahead.record(&event);
    worked.recv_timeout(LONG).unwrap();
    assert_eq!(event.query(), Answer::NotYet, "the second record is still ahead");
    second.send(()).unwrap();
}

#[test]
fn a_wait_for_an_event_never_recorded_holds_up_nothing() {
    let queue = queue(THREAD);
    queue.wait(&Arc::new(HostEvent::default()));
    finish(&queue);
}

#[test]
fn a_panic_of_work_does_not_end_the_stream() {
    let queue = queue(THREAD);
    queue.launch(Box::new(|| panic!("work")), "work", 0);
    drop(gate(&queue));
}

#[test]
fn a_modelled_link_takes_at_least_its_time() {
    let link = LinkModel { bytes_per_second: 1e6, latency: Duration::from_millis(2) };
    let queue = queue(Driver::Thread { link: Some(link), eager: false });
    let (src, mut dst) = (vec![3; 4000], vec![0; 4000]);
    let begun = Instant::now();
    queue.copy(copy(&src, &mut dst), Vec::new());
    finish(&queue);
    assert!(begun.elapsed() >= Duration::from_millis(6));
    assert_eq!(src, dst);
}

#[test]
fn a_link_model_has_a_time_for_every_size() {
    let latency = Duration::MAX;
    for bytes_per_second in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1e9] {
        let link = LinkModel { bytes_per_second, latency };
        assert_eq!(link.time(usize::MAX), Duration::MAX);
    }
}

#[test]
fn invariant_12_a_thread_ends_when_the_handle_is_gone() {
    let queue = queue(THREAD);
    let ended = end_of_thread(&queue);
    drop(queue);
    ended.recv_timeout(LONG).unwrap();
}

#[test]
fn invariant_12_dropping_the_handle_neither_waits_nor_drops_what_is_queued() {
    let queue = queue(THREAD);
    let ended = end_of_thread(&queue);
    let open = gate(&queue);
    let event = Arc::new(HostEvent::default());
    queue.record(&event);
    drop(queue);
    assert_eq!(event.query(), Answer::NotYet, "the work goes on");
    open.send(()).unwrap();
    event.block_until(1);
    ended.recv_timeout(LONG).unwrap();
}

#[test]
fn the_last_handle_may_be_dropped_on_the_queues_own_thread() {
    let queue = queue(THREAD);
    let ended = end_of_thread(&queue);
    let open = gate(&queue);
    let owned = queue.clone();
    queue.launch(Box::new(move || drop(owned)), "drop", 0);
    drop(queue);
    open.send(()).unwrap();
    ended.recv_timeout(LONG).unwrap();
}
