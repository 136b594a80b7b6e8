//! Wakers: registered before asking, replaced on each poll, never woken by the poll itself (invariant 7).

use std::pin::pin;
use std::task::Context;

use futures::task::noop_waker;
use futures::{FutureExt, StreamExt, stream};
use inflight::BatchStreamExt;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};

use crate::bed::{by_hand, elements, host_stream};

#[test]
fn invariant_07_the_latest_waker_is_woken_b49() {
    let sim = by_hand(1 << 20);
    let mut transfer = sim.device().try_transfer(("x", vec![1_u8; 8])).unwrap();
    let mut first = task::spawn(());
    first.enter(|context, _| assert!(transfer.poll_unpin(context).is_pending()));
    let mut second = task::spawn(transfer);
    assert_pending!(second.poll());
    assert!(sim.complete_next());
    assert!(second.is_woken());
    assert!(!first.is_woken(), "it moved away from there");
    assert_ready_ok!(second.poll());
}

/// Polls `future` in one task and then in another, and answers with what it comes to, of which only the other is told.
fn moved<F: Future + Unpin>(mut future: F, get_on: impl FnOnce()) -> F::Output {
    let mut first = task::spawn(());
    first.enter(|context, _| assert!(future.poll_unpin(context).is_pending()));
    let mut second = task::spawn(future);
    assert!(second.poll().is_pending());
    get_on();
    assert!(second.is_woken() && !first.is_woken());
    assert_ready!(second.poll())
}

#[test]
fn invariant_07_who_waits_may_move_to_another_task_b49() {
    let sim = by_hand(1024);
    let (device, stream) = (sim.device().clone(), host_stream(sim.device()));
    let go = || assert!(sim.complete_next());
    let early = device.try_transfer(("x", vec![1_u8; 8])).unwrap().early().now_or_never().unwrap().unwrap();
    moved(early.field("x").unwrap().ready(), go).unwrap();
    moved(stream.run(|| ()), go).unwrap();
    moved(early.field("x").unwrap().read_back::<u8>().unwrap(), go).unwrap();
    let leave = || {
        drop(early);
        sim.pending();
    };
    let _transfer = moved(Box::pin(device.transfer(("x", vec![2_u8; 8]))), leave).unwrap();
    moved(Box::pin(device.drain()), go).unwrap();
}

#[test]
fn invariant_07_a_pending_poll_wakes_nobody_b52() {
    let sim = by_hand(1 << 20);
    let mut transfers: Vec<_> =
        (0..3).map(|n| task::spawn(sim.device().try_transfer(("x", vec![n as u8; 8])).unwrap())).collect();
    for transfer in &mut transfers {
        for _ in 0..100 {
            assert_pending!(transfer.poll());
        }
        assert!(!transfer.is_woken());
    }
    sim.complete_next();
    let woken: Vec<_> = transfers.iter().map(|transfer| transfer.is_woken()).collect();
    assert_eq!(woken, [true, false, false]);
}

#[test]
fn all_who_wait_for_one_batch_are_woken() {
    let sim = by_hand(1 << 20);
    let early = sim.device().try_transfer(("x", vec![1_u8; 8])).unwrap().early();
    let batch = early.now_or_never().unwrap().unwrap();
    let mut ready: Vec<_> = (0..3).map(|_| task::spawn(batch.field("x").unwrap().ready())).collect();
    ready.iter_mut().for_each(|ready| assert_pending!(ready.poll()));
    drop(ready.pop());
    sim.complete_next();
    for mut ready in ready {
        assert!(ready.is_woken());
        assert_ready_ok!(ready.poll());
    }
}

#[test]
fn readers_and_tasks_are_woken_by_what_they_wait_for() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let mut task = task::spawn(stream.run(|| 7));
    assert_pending!(task.poll());
    let slice = stream.alloc::<f32, _>(3).unwrap();
    let mut read = task::spawn(sim.device().read(&slice, &stream).unwrap());
    assert_pending!(read.poll());
    sim.complete_next();
    assert!(task.is_woken() && !read.is_woken());
    assert_eq!(assert_ready_ok!(task.poll()), 7);
    sim.complete_next();
    assert!(read.is_woken());
    assert_eq!(elements(&assert_ready_ok!(read.poll())), [0.0; 3]);
    let mut drain = task::spawn(sim.device().drain());
    assert_ready_ok!(drain.poll());
}

#[test]
fn drain_waits_for_what_is_pending_and_no_longer() {
    let sim = by_hand(1 << 20);
    drop(sim.device().try_transfer(("x", vec![1_u8; 8])).unwrap());
    let mut drain = task::spawn(sim.device().drain());
    assert_pending!(drain.poll());
    sim.complete_next();
    assert!(drain.is_woken());
    assert_ready_ok!(drain.poll());
}

#[test]
fn polling_after_the_end_is_harmless_b54() {
    let sim = by_hand(1 << 20);
    let mut batches = task::spawn(stream::iter([("x", 1_u8)]).to_device(sim.device()));
    assert_ready!(batches.poll_next());
    for _ in 0..4 {
        assert!(assert_ready!(batches.poll_next()).is_none());
    }
    let transfer = sim.device().try_transfer(("x", 1_u8)).unwrap();
    sim.complete_all();
    let mut transfer = pin!(transfer);
    let waker = noop_waker();
    let mut context = Context::from_waker(&waker);
    assert!(transfer.as_mut().poll(&mut context).is_ready());
    assert!(transfer.as_mut().poll(&mut context).is_pending());
    let mut end = task::spawn(stream::empty::<inflight::HostBatch>().to_device(sim.device()).fuse());
    assert!(assert_ready!(end.poll_next()).is_none());
}

#[test]
fn who_drains_is_woken_when_the_memory_is_back() {
    struct Look(inflight::Device, std::sync::Mutex<Vec<usize>>);
    impl futures::task::ArcWake for Look {
        fn wake_by_ref(this: &std::sync::Arc<Self>) {
            this.1.lock().unwrap().push(this.0.stats().device_used);
        }
    }
    for bytes in [8, 200_000] {
        let sim = by_hand(1 << 20);
        drop(sim.device().try_transfer(("x", vec![1_u8; bytes])).unwrap());
        let look = std::sync::Arc::new(Look(sim.device().clone(), std::sync::Mutex::default()));
        let waker = futures::task::waker(look.clone());
        let device = sim.device().clone();
        let mut drain = pin!(device.drain());
        assert!(drain.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        sim.complete_all();
        assert_eq!(*look.1.lock().unwrap(), [0], "woken once, with nothing in use");
    }
}
