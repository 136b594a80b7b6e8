//! Who owns what while the device is not done (invariants 1, 3 and 4), at sizes from eager copies to chunked ones.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::cudarc::driver::{CudaSlice, CudaStream, PushKernelArg};
use inflight::{BatchStreamExt, Device, DeviceBatch, batch};

use crate::rig::{Rig, SIZES, WIDE, eventually, pattern};

const BUSY: Duration = Duration::from_millis(20);

#[test]
fn a_batch_dropped_while_a_kernel_reads_it_is_not_overwritten_b13_b16() {
    for bytes in SIZES {
        // Room for few: blocks must be used again.
        let Some(rig) = Rig::with(|builder| builder.memory_bytes(6 * bytes.max(1024) * 9 / 8)) else { return };
        let mut errors = rig.errors();
        block_on(async {
            let source = stream::iter((0..20).map(|n| ("x", pattern(n, bytes))));
            let mut batches = source.to_device(&rig.device).buffered(2);
            let mut n = 0;
            while let Some(batch) = batches.try_next().await.unwrap() {
                let lease = batch.on(&rig.stream).unwrap();
                drop(batch);
                rig.spin(&rig.stream, Duration::from_millis(3));
                rig.check(&lease, n, &mut errors);
                lease.end().unwrap();
                n += 1;
            }
            assert_eq!(n, 20);
        });
        assert_eq!(rig.counted(&errors), 0, "{bytes} bytes");
        rig.finish();
    }
}

#[test]
fn a_source_dropped_right_after_the_submit_arrives_whole_b05_b11() {
    for bytes in SIZES {
        let Some(rig) = Rig::new() else { return };
        block_on(async {
            // Something in front, so that the copies wait.
            let ahead = rig.device.transfer(("x", vec![0_u8; 64 << 20])).await.unwrap();
            let pageable = rig.device.transfer(("x", pattern(1, bytes))).await.unwrap();
            let mut pinned = rig.device.pinned::<u8, _>(bytes).await.unwrap();
            pinned.as_slice_mut().unwrap().copy_from_slice(&pattern(2, bytes));
            let pinned = rig.device.transfer(("x", pinned)).await.unwrap();
            let registered = rig.device.register(pattern(3, bytes)).await.unwrap();
            let registered = rig.device.transfer(("x", registered)).await.unwrap();
            // Memory of the same sizes is taken and filled at once.
            let others: Vec<Vec<u8>> = (0..4).map(|_| vec![0xAA; bytes]).collect();
            let mut again = rig.device.pinned::<u8, _>(bytes).await.unwrap();
            again.fill(0xAA);
            for (n, transfer) in [(1, pageable), (2, pinned), (3, registered)] {
                let batch = transfer.await.unwrap();
                let back = batch.field("x").unwrap().read_back::<u8>().unwrap().await.unwrap();
                assert!(back.iter().copied().eq(pattern(n, bytes)), "source {n}, {bytes} bytes");
            }
            drop((ahead, others));
        });
        rig.finish();
    }
}

#[test]
fn transfers_dropped_or_forgotten_on_their_way_free_nothing_early_b32_b33_b35() {
    for bytes in SIZES {
        let Some(rig) = Rig::with(|builder| builder.memory_bytes(64 << 20)) else { return };
        let (mut errors, mut forgotten) = (rig.errors(), 0);
        for n in 0..30 {
            let Ok(transfer) = rig.device.try_transfer(("x", pattern(n, bytes))) else {
                std::thread::yield_now();
                continue;
            };
            match n % 3 {
                0 => drop(transfer),
                1 if n == 1 => {
                    forgotten += 1;
                    #[expect(clippy::mem_forget, reason = "this is what is tried")]
                    std::mem::forget(transfer);
                }
                _ => {
                    let batch = block_on(transfer).unwrap();
                    let lease = batch.on(&rig.stream).unwrap();
                    rig.check(&lease, n, &mut errors);
                }
            }
        }
        assert_eq!(rig.counted(&errors), 0, "{bytes} bytes");
        block_on(rig.device.drain()).unwrap();
        let leaked = || rig.device.stats().device_used;
        eventually("all but what was forgotten is back", || {
            (leaked() > 0) == (forgotten > 0) && leaked() <= bytes.max(1024) * 9 / 8
        });
        if let Some(stand_in) = rig.stand_in {
            assert_eq!(stand_in.violations(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_forgotten_lease_leaks_its_block_and_nothing_else_b33() {
    for bytes in SIZES {
        let Some(rig) = Rig::new() else { return };
        let lease = rig.batch(1, bytes).on(&rig.stream).unwrap();
        lease.view::<u8>("x").unwrap();
        #[expect(clippy::mem_forget, reason = "this is what is tried")]
        std::mem::forget(lease);
        for n in 2..6 {
            let batch = rig.batch(n, bytes);
            let mut errors = rig.errors();
            rig.check(&batch.on(&rig.stream).unwrap(), n, &mut errors);
            assert_eq!(rig.counted(&errors), 0);
        }
        block_on(rig.device.drain()).unwrap();
        eventually("one block is left", || {
            let used = rig.device.stats().device_used;
            used >= bytes && used <= bytes.max(1024) * 9 / 8
        });
    }
}

#[test]
fn a_read_back_keeps_its_batch_b14() {
    for bytes in SIZES {
        let Some(rig) = Rig::with(|builder| builder.memory_bytes(5 * bytes.max(1024) * 9 / 8)) else { return };
        block_on(async {
            for n in 0..8 {
                let batch = rig.device.transfer(("x", pattern(n, bytes))).await.unwrap().await.unwrap();
                let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
                drop(batch);
                let next = rig.device.transfer(("x", vec![0xFF_u8; bytes])).await.unwrap();
                assert!(read.await.unwrap().iter().copied().eq(pattern(n, bytes)), "{bytes} bytes");
                drop(next);
            }
        });
        rig.finish();
    }
}

#[test]
fn a_stream_dropped_with_work_pending_keeps_the_block_b17() {
    for bytes in SIZES {
        let Some(rig) = Rig::with(|builder| builder.memory_bytes(4 * bytes.max(1024) * 9 / 8)) else { return };
        let mut errors = rig.errors();
        for n in 0..6 {
            let batch = rig.batch(n, bytes);
            // A new stream each time: the driver gives the handle of a dropped one out again.
            let stream = rig.context().new_stream().unwrap();
            stream.join(&rig.stream).unwrap();
            let lease = batch.on(&stream).unwrap();
            drop(batch);
            rig.spin(&stream, BUSY);
            rig.check(&lease, n, &mut errors);
            lease.end().unwrap();
            drop(stream);
        }
        rig.context().synchronize().unwrap();
        assert_eq!(rig.counted(&errors), 0, "{bytes} bytes");
        rig.finish();
    }
}

#[test]
fn the_copy_stream_does_not_wait_for_compute_invariant_4() {
    let Some(rig) = Rig::new() else { return };
    let data: Vec<_> = SIZES.iter().flat_map(|bytes| (1..4).map(|n| pattern(n, *bytes))).collect();
    let held: Vec<_> = SIZES.iter().map(|bytes| rig.batch(0, *bytes)).collect();
    let leases: Vec<_> = held.iter().map(|batch| batch.on(&rig.stream).unwrap()).collect();
    for lease in &leases {
        lease.view::<u8>("x").unwrap();
    }
    // Long, so that a slow machine has time for what follows.
    rig.spin(&rig.stream, Duration::from_secs(2));
    drop((held, leases));
    block_on(async {
        for bytes in data {
            rig.device.transfer(("x", bytes)).await.unwrap().await.unwrap();
        }
    });
    assert!(rig.device.stats().limbo_blocks >= SIZES.len(), "the copies arrived while the first blocks were in use");
    rig.context().synchronize().unwrap();
    rig.finish();
}

#[test]
fn dropping_everything_at_once_brings_all_memory_back_b37() {
    for bytes in SIZES {
        let Some(rig) = Rig::new() else { return };
        let device = rig.device.clone();
        let transfers: Vec<_> = (0..4).filter_map(|n| device.try_transfer(("x", pattern(n, bytes))).ok()).collect();
        let batch = rig.batch(9, bytes);
        let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
        let lease = batch.on(&rig.stream).unwrap();
        rig.spin(&rig.stream, BUSY);
        let mut errors = rig.errors();
        rig.check(&lease, 9, &mut errors);
        drop((transfers, read, batch, lease));
        assert_eq!(rig.counted(&errors), 0);
        drop(device);
        rig.finish();
    }
}

#[test]
fn a_tokio_task_aborted_after_its_first_poll_blocks_nobody_b32_b34() {
    let Some(rig) = Rig::with(|builder| builder.memory_bytes(64 << 20)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for bytes in SIZES {
            let device = rig.device.clone();
            let task = tokio::spawn(async move { device.transfer(("x", pattern(1, bytes))).await?.await });
            tokio::task::yield_now().await;
            task.abort();
            // It may have been done by then.
            assert!(task.await.map_or_else(|error| error.is_cancelled(), |batch| batch.is_ok()), "{bytes} bytes");
        }
        rig.device.drain().await.unwrap();
    });
    rig.finish();
}

#[test]
fn early_fields_become_usable_one_by_one() {
    let Some(rig) = Rig::new() else { return };
    let mut errors = rig.errors();
    block_on(async {
        for n in 0..5 {
            let batch = batch! { x: pattern(n, 100_000), labels: pattern(n + 1, 9 << 20), mask: pattern(n, 300_000) };
            let batch = rig.device.transfer(batch).await.unwrap().early().await.unwrap();
            let lease = batch.on(&rig.stream).unwrap();
            rig.check(&lease, n, &mut errors);
            lease.queued("labels").await.unwrap();
            lease.wait("labels").unwrap();
            lease.queued("mask").await.unwrap();
            assert_eq!(lease.view::<u8>("mask").unwrap().len(), 300_000);
            lease.end().unwrap();
        }
    });
    assert_eq!(rig.counted(&errors), 0);
    rig.finish();
}

#[test]
fn a_pipeline_with_one_stream_gives_the_same_results() {
    let Some(rig) = Rig::new() else { return };
    let stream = inflight::ComputeStream::Cuda(rig.stream.clone());
    let builder = Device::builder().context(rig.context()).overlap(inflight::Overlap::Off(&stream));
    let device = builder.build().unwrap();
    let mut errors: CudaSlice<u32> = rig.errors();
    block_on(async {
        let source = stream::iter((0..10).map(|n| ("x", pattern(n, 300_000))));
        let mut batches = source.to_device(&device).buffered(3);
        let mut n = 0;
        while let Some(batch) = batches.next().await {
            rig.check(&batch.unwrap().on(&rig.stream).unwrap(), n, &mut errors);
            n += 1;
        }
        assert_eq!(n, 10);
        device.drain().await.unwrap();
    });
    assert_eq!(rig.counted(&errors), 0);
    assert!(device.transfer(("x", 1_u8)).now_or_never().is_some());
    rig.finish();
}

#[test]
fn a_block_that_two_streams_used_goes_to_a_third_when_both_are_done_b16() {
    for bytes in SIZES {
        let Some(rig) = Rig::with(|builder| builder.memory_bytes(7 * bytes.max(1024) * 9 / 8)) else { return };
        let (second, third) = (rig.context().new_stream().unwrap(), rig.context().new_stream().unwrap());
        let (add, len) = (rig.kernel("add_u8"), bytes as u64);
        let add_one = |batch: &DeviceBatch, stream: &Arc<CudaStream>| {
            let mut lease = batch.on(stream).unwrap();
            let [mut view] = lease.split_mut::<u8, 1>(["x"]).unwrap();
            let mut launch = stream.launch_builder(&add);
            launch.arg(&mut view).arg(&len).arg(&1_u32);
            // SAFETY: the arguments are those of the kernel.
            unsafe { launch.launch(WIDE) }.unwrap();
            lease.end().unwrap();
        };
        let shared = rig.batch(1, bytes);
        // The first stream writes late; the second is done with it in no time, once the first is.
        rig.spin(&rig.stream, Duration::from_millis(60));
        add_one(&shared, &rig.stream);
        let reader = shared.on(&second).unwrap();
        reader.view::<u8>("x").unwrap();
        reader.end().unwrap();
        drop(shared);
        let others: Vec<_> = (2..5).map(|n| rig.batch(n, bytes)).collect();
        others.iter().for_each(|batch| add_one(batch, &third));
        rig.context().synchronize().unwrap();
        for (n, batch) in (2..5).zip(others) {
            let back = block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap();
            let added = pattern(n, bytes).into_iter().map(|byte| byte.wrapping_add(1));
            assert!(back.iter().copied().eq(added), "batch {n}, {bytes} bytes");
        }
        rig.finish();
    }
}

#[test]
fn no_lifetime_depends_on_how_memory_is_freed_b18() {
    for has_pools in [true, false] {
        for bytes in SIZES {
            let Some(rig) = Rig::new() else { return };
            match rig.stand_in {
                Some(stand_in) => stand_in.attribute(Some(0), 115, i32::from(has_pools)),
                None if has_pools => {}
                None => return,
            }
            // Small batches have blocks of their own, which can be freed.
            let device = Device::builder().context(rig.context()).batches_per_call(1).build().unwrap();
            let mut errors = rig.errors();
            for n in 0..6 {
                let batch = block_on(async { device.transfer(("x", pattern(n, bytes))).await?.await }).unwrap();
                let lease = batch.on(&rig.stream).unwrap();
                rig.spin(&rig.stream, Duration::from_millis(3));
                rig.check(&lease, n, &mut errors);
                let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
                drop((lease, batch));
                // What is idle is freed now; what the kernel or the read-back needs is not idle.
                device.trim();
                assert!(block_on(read).unwrap().iter().copied().eq(pattern(n, bytes)), "{bytes} bytes");
            }
            assert_eq!(rig.counted(&errors), 0, "{bytes} bytes, pools: {has_pools}");
            block_on(device.drain()).unwrap();
            drop(device);
            if let Some(stand_in) = rig.stand_in {
                assert_eq!(stand_in.violations(), Vec::<String>::new());
                stand_in.reset();
            }
            rig.finish();
        }
    }
}
