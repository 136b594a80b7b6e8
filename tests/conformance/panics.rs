//! Panics of users' code, in the worst places.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use inflight::{Device, HostArray, LinkModel, Relayout};
use tokio_test::task;

use crate::bed::{by_hand, host_stream};

#[test]
fn a_panic_while_batches_and_transfers_drop_is_the_only_one_b93() {
    for code in [0, 700] {
        let sim = by_hand(1 << 20);
        let stream = host_stream(sim.device());
        let send = |byte: u8| sim.device().try_transfer(("x", vec![byte; 4096])).unwrap();
        let batches: Vec<_> = (0..5)
            .map(|byte| {
                let transfer = send(byte);
                sim.complete_next();
                transfer.now_or_never().unwrap().unwrap()
            })
            .collect();
        let leases: Vec<_> = batches.iter().map(|batch| batch.on(&stream).unwrap()).collect();
        leases.iter().for_each(|lease| drop(lease.run(|_| Ok(()))));
        let transfers: Vec<_> = (0..3).map(send).collect();
        if code != 0 {
            sim.fail_next(code);
        }
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let _all = (leases, batches, transfers);
            panic!("the consumer's own");
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"the consumer's own"));
        sim.complete_all();
        assert_eq!(sim.device().stats().device_used, 0);
    }
}

struct PanickingWaker;

impl std::task::Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("a waker's own");
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_waiting_b99() {
    let link = LinkModel { bytes_per_second: 1e9, latency: Duration::from_millis(5) };
    let device = Device::builder().host().link_model(link).staging_bytes(64 << 10).build().unwrap();
    let waker = Waker::from(Arc::new(PanickingWaker));
    let batch = block_on(async { device.transfer(("x", vec![1_u8; 40_000])).await?.early().await }).unwrap();
    let mut bombs: Vec<_> = (0..3).map(|_| batch.field("x").unwrap().ready()).collect();
    for bomb in &mut bombs {
        assert!(bomb.poll_unpin(&mut Context::from_waker(&waker)).is_pending(), "it is on its way");
    }
    // Waits for the same field, behind the others, and for what comes after it.
    block_on(batch.field("x").unwrap().ready()).unwrap();
    for n in 0..10 {
        block_on(async { device.transfer(("x", vec![n; 40_000])).await?.await }).unwrap();
    }
    assert!(bombs.iter_mut().all(|bomb| bomb.now_or_never().is_some()));
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

struct Source(Vec<u8>, Bomb);

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn a_staged_source_that_panics_while_it_is_dropped_ends_no_thread_b99() {
    for relayout in [Relayout::Auto, Relayout::Host, Relayout::Device, Relayout::Preserve] {
        let builder = Device::builder().host().staging_threads(1).staging_bytes(64 << 10).relayout(relayout);
        let device = builder.build().unwrap();
        for axes in [[0, 1], [1, 0], [1, 0]] {
            let whole = HostArray::from_owner::<u8>(Source(vec![1; 300_000], Bomb), (300, 1000));
            let array = whole.and_then(|whole| whole.permuted_axes(axes)).unwrap();
            block_on(async { device.transfer(("x", array)).await?.await }).unwrap();
        }
        block_on(device.drain()).unwrap();
    }
}

/// Sends a small batch when it is dropped.
struct Sends(Vec<u8>, Device);

impl AsRef<[u8]> for Sends {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Sends {
    fn drop(&mut self) {
        drop(self.1.try_transfer(("y", vec![1_u8; 100])));
    }
}

#[test]
fn a_source_that_sends_while_it_is_dropped_holds_nobody_up() {
    let link = LinkModel { bytes_per_second: 1e9, latency: Duration::from_millis(5) };
    for together in [1, 16] {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let device = Device::builder().host().batches_per_call(together).link_model(link).build().unwrap();
            let send = |array: HostArray| device.try_transfer(("x", array)).unwrap();
            let warm: Vec<_> = (0..6).map(|_| block_on(send(vec![0_u8; 1000].into())).unwrap()).collect();
            drop(warm);
            block_on(device.drain()).unwrap();
            let first = send(vec![1_u8; 1000].into());
            let sends = HostArray::from_owner(Sends(vec![1; 1000], device.clone()), 1000).unwrap();
            drop((first, send(sends)));
            block_on(device.drain()).unwrap();
            done.send(()).unwrap();
        });
        is_done
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|_| panic!("{together} together: nothing goes on"));
    }
}

#[test]
fn a_source_that_panics_while_it_is_dropped_harms_nobody_else_b99() {
    let sim = by_hand(1 << 20);
    let bomb = Source(vec![1; 4096], Bomb);
    let array = HostArray::from_owner::<u8>(bomb, 4096).unwrap();
    let registered = sim.device().register(array).now_or_never().unwrap().unwrap();
    let mut first = task::spawn(sim.device().try_transfer(("x", registered)).unwrap());
    let mut second = task::spawn(sim.device().try_transfer(("x", vec![2_u8; 4096])).unwrap());
    assert!(first.poll().is_pending() && second.poll().is_pending());
    sim.complete_all();
    assert!(first.poll().is_ready() && second.poll().is_ready());
    let third = sim.device().try_transfer(("x", vec![3_u8; 4096])).unwrap();
    sim.complete_all();
    assert!(third.now_or_never().unwrap().is_ok(), "staging threads go on");
}
