//! Whole pipelines on the host backend, with all its threads, in schedules made at random: shuttle's alone, since there
//! are more ways than loom could try.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use super::bed::{at_once_with, block_on, check, thread};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::yield_now;
use crate::{BatchStreamExt, ComputeStream, Device, DeviceBuilder, HostStream, LinkModel, batch};

const BATCHES: u8 = 4;

/// A device whose batches are written into their memory.
fn in_reach(threads: usize) -> DeviceBuilder<'static> {
    let builder = Device::builder().host().staging_threads(threads).staging_bytes(4 << 10).memory_bytes(24 << 10);
    builder.readback_bytes(8 << 10).pinned_bytes(4 << 10)
}

/// One whose batches go through the ring.
fn device(threads: usize) -> Device {
    let link = LinkModel { bytes_per_second: f64::INFINITY, latency: Duration::ZERO };
    in_reach(threads).link_model(link).build().unwrap()
}

fn compute(device: &Device) -> HostStream {
    match device.compute_stream().unwrap() {
        ComputeStream::Host(stream) => stream,
        #[cfg(feature = "cuda")]
        other => panic!("{other:?} on a host device"),
    }
}

/// Small ones and one that goes through the ring in pieces.
fn batches(of: u8) -> impl Iterator<Item = crate::HostBatch> {
    (0..BATCHES).map(move |n| {
        let bytes = if n == 2 { 3000 } else { 100 };
        batch! { x: vec![of + n; bytes], y: [n] }
    })
}

/// Runs a pipeline to its end: each batch is read by work on a compute stream, and in order.
fn train(device: &Device, of: u8) {
    let stream = compute(device);
    let mut arrived = stream::iter(batches(of)).to_device(device).buffered(2);
    block_on(async {
        for n in 0..BATCHES {
            let batch = arrived.try_next().await.unwrap().unwrap();
            let lease = batch.on(&stream).unwrap();
            let task = lease.run(move |fields| Ok(fields.view::<u8>("x")?.iter().all(|byte| *byte == of + n)));
            lease.end().unwrap();
            drop(batch);
            assert!(task.await.unwrap(), "batch {n} of pipeline {of}");
        }
        assert!(arrived.next().await.is_none());
    });
}

/// All that was given out comes back, and the threads end.
fn end(device: Device) {
    block_on(device.drain()).unwrap();
    let stats = device.stats();
    assert_eq!((stats.device_used, stats.limbo_blocks, stats.operations), (0, 0, 0));
}

#[test]
fn two_pipelines_share_a_device() {
    share(|| device(2));
}

#[test]
fn two_pipelines_share_a_device_whose_memory_is_in_reach() {
    share(|| in_reach(2).build().unwrap());
}

fn share(device: fn() -> Device) {
    check(move || {
        let device = device();
        let other = device.clone();
        let training = thread::spawn(move || train(&other, 100));
        train(&device, 10);
        training.join().unwrap();
        end(device);
    });
}

#[test]
fn a_pipeline_dropped_at_any_moment_keeps_nothing_b32() {
    check(|| {
        let device = device(1);
        let taken = Arc::new(AtomicUsize::new(0));
        let (other, seen) = (device.clone(), taken.clone());
        let dropped = thread::spawn(move || {
            let mut arrived = stream::iter(batches(50)).to_device(&other).buffered(3);
            block_on(async {
                let batch = arrived.try_next().await.unwrap().unwrap();
                seen.store(1, Ordering::Release);
                drop((arrived, batch));
            });
        });
        while taken.load(Ordering::Acquire) == 0 {
            yield_now();
        }
        train(&device, 10);
        dropped.join().unwrap();
        end(device);
    });
}

#[test]
fn batches_are_read_back_while_others_are_sent() {
    check(|| {
        let device = device(1);
        let read: Vec<_> = block_on(async {
            let arrived = stream::iter(batches(20)).to_device(&device).buffered(2);
            arrived.and_then(async |batch| batch.field("x")?.read_back::<u8>()?.await).try_collect().await.unwrap()
        });
        for (n, array) in read.iter().enumerate() {
            assert!(array.iter().all(|byte| usize::from(*byte) == 20 + n));
        }
        drop(read);
        end(device);
    });
}

#[test]
fn the_device_goes_first_and_its_transfers_still_arrive_b37() {
    check(|| {
        let device = device(1);
        let transfers: Vec<_> = batches(30).take(2).map(|batch| device.try_transfer(batch).unwrap()).collect();
        let dropping = thread::spawn(move || drop(device));
        for transfer in transfers {
            block_on(transfer).unwrap();
        }
        dropping.join().unwrap();
    });
}

#[test]
fn a_batch_that_waits_for_company_goes_by_itself() {
    check(|| {
        let device = at_once_with(1, |builder| builder.batches_per_call(3));
        let send = || device.try_transfer(batch! { x: vec![0_u8; 100] }).unwrap();
        let made = [(); 3].map(|()| block_on(send()).unwrap());
        drop(made);
        while device.stats().device_idle < 3 * 1024 {
            yield_now();
        }
        // Two are there and not taken when the third is sent, which nobody polls.
        let before = [(); 2].map(|()| send());
        block_on(device.drain()).unwrap();
        let after = send();
        block_on(device.drain()).unwrap();
        drop((before, after));
    });
}
