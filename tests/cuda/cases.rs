//! Cases of others' failures that need a driver, beside those that other files repeat: see `CASES` numbers in the names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, HostArray, HostBatch};
use ndarray::ArcArray1;

use crate::rig::{Rig, SIZES, eventually, fetched, pattern};

#[test]
fn memory_registered_twice_or_in_part_is_shared_b12() {
    let Some(rig) = Rig::new() else { return };
    for bytes in SIZES {
        block_on(async {
            let array = ArcArray1::from(pattern(1, bytes));
            let mut first = rig.device.register(array.clone()).await.unwrap();
            // What a test before registered in the same page, with another device, may not be unregistered yet.
            let begun = Instant::now();
            while !first.is_direct() {
                assert!(begun.elapsed() < Duration::from_secs(20), "it is refused for ever");
                first = rig.device.register(array.clone()).await.unwrap();
            }
            let whole = rig.device.register(array.clone()).await.unwrap();
            let part =
                rig.device.register(HostArray::from(array).slice(ndarray::s![bytes / 2..]).unwrap()).await.unwrap();
            assert!(whole.is_direct() && part.is_direct());
            for (sent, from) in [(HostArray::from(first), 0), (whole.into(), 0), (part.into(), bytes / 2)] {
                let batch = rig.device.transfer(("x", sent)).await.unwrap().await.unwrap();
                let back = batch.field("x").unwrap().read_back::<u8>().unwrap().await.unwrap();
                assert_eq!(back.as_slice().unwrap(), &pattern(1, bytes)[from..]);
            }
            rig.device.drain().await.unwrap();
            // Registered, dropped, and again: memory of the same size may lie at the same place.
            for n in 0..20 {
                let registered = rig.device.register(pattern(n, bytes)).await.unwrap();
                let batch = rig.device.transfer(("x", registered)).await.unwrap().await.unwrap();
                let back = batch.field("x").unwrap().read_back::<u8>().unwrap().await.unwrap();
                assert_eq!(back.as_slice().unwrap(), pattern(n, bytes));
            }
        });
    }
    rig.finish();
}

#[test]
fn memory_that_can_not_be_unregistered_is_not_given_back_b12() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let kept = Arc::new(());
    // So large that it has pages of its own: it stays registered, and others are tried beside it.
    let bytes = 4 << 20;
    let array = HostArray::from_owner::<u8>(Counted(pattern(1, bytes), kept.clone()), bytes).unwrap();
    let registered = block_on(rig.device.register(array)).unwrap();
    assert!(registered.is_direct());
    stand_in.fail(Some("cuMemHostUnregister"), 1, 1);
    drop(registered);
    eventually("it was tried", || stand_in.faults_left() == 0);
    eventually("it is counted", || rig.device.stats().leaked == bytes as u64);
    assert_eq!(Arc::strong_count(&kept), 2, "what is allocated there next would be page-locked in part");
    rig.finish();
}

/// A source that tells whether it is still kept.
struct Counted(Vec<u8>, #[expect(dead_code, reason = "counted")] Arc<()>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn a_new_block_can_be_copied_to_at_once_b19() {
    let Some(rig) = Rig::new() else { return };
    // The compute stream is busy, where others would allocate.
    rig.spin(&rig.stream, Duration::from_millis(100));
    for (n, bytes) in SIZES.into_iter().enumerate() {
        let batch = rig.batch(n, bytes);
        let other = rig.context().new_stream().unwrap();
        let lease = batch.on(&other).unwrap();
        assert_eq!(fetched(&other, &lease.view::<u8>("x").unwrap()), pattern(n, bytes));
    }
    rig.finish();
}

#[test]
fn polled_on_one_thread_and_used_on_another_b28() {
    let Some(rig) = Rig::new() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for n in 0..40 {
            let (device, stream, bytes) = (rig.device.clone(), rig.context().new_stream().unwrap(), SIZES[n % 3]);
            tasks.push(tokio::spawn(async move {
                let batch = device.transfer(("x", pattern(n, bytes))).await.unwrap().await.unwrap();
                tokio::task::yield_now().await;
                let lease = batch.on(&stream).unwrap();
                tokio::task::spawn_blocking(move || {
                    let view = lease.view::<u8>("x").unwrap();
                    assert_eq!(fetched(lease.stream(), &view), pattern(n, bytes));
                })
                .await
                .unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    rig.finish();
}

#[test]
fn dropping_page_locked_arrays_and_transfers_waits_for_no_copy_b114() {
    let Some(rig) = Rig::new() else { return };
    block_on(async {
        let mut array = rig.device.pinned::<u8, _>(16 << 20).await.unwrap();
        array.fill(3);
        let array = array.share();
        let mut transfers = Vec::new();
        for _ in 0..12 {
            transfers.push(rig.device.transfer(("x", array.clone())).await.unwrap());
        }
        let small = rig.device.pinned::<u8, _>(4096).await.unwrap();
        drop((small, array, transfers));
        assert!(rig.device.stats().operations > 0, "the copies are still under way");
    });
    rig.finish();
}

#[test]
fn many_small_fields_are_one_copy_b118() {
    let Some(rig) = Rig::new() else { return };
    let before = rig.device.stats();
    let batch = (0..32).fold(HostBatch::new(), |batch, n| batch.with(format!("f{n}"), pattern(n, 4096)));
    let batch = block_on(async { rig.device.transfer(batch).await?.await }).unwrap();
    for n in 0..32 {
        let back = block_on(batch.field(&format!("f{n}")).unwrap().read_back::<u8>().unwrap()).unwrap();
        assert_eq!(back.as_slice().unwrap(), pattern(n, 4096));
    }
    let copies = rig.device.stats().copies_sent - before.copies_sent;
    assert!(copies <= 2, "{copies} copies for 32 fields");
    drop(batch);
    rig.finish();
}

/// The median time of one batch, with eight pipelines on threads of their own.
fn time_of_a_batch(rig: &Rig, made: impl Fn() -> HostBatch + Sync, threads: usize) -> f64 {
    const BATCHES: usize = 5000;
    let run = || {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let source = stream::iter((0..BATCHES).map(|_| made()));
                    let batches = source.to_device(&rig.device).buffered(4);
                    block_on(batches.try_for_each(|_| std::future::ready(Ok(())))).unwrap();
                });
            }
        });
        begun.elapsed().as_secs_f64() / (BATCHES * threads) as f64 * 1e6
    };
    let mut times = [run(), run(), run()];
    times.sort_by(f64::total_cmp);
    times[1]
}

#[test]
#[ignore = "needs a GPU"]
fn the_cost_of_fields_and_threads_b117_b118() {
    let Some(rig) = Rig::new() else { panic!("no GPU") };
    for threads in [1, 8] {
        for (fields, bytes) in [(1, 4096), (4, 1024), (16, 256), (32, 4096), (1, 128 << 10)] {
            let arrays: Vec<HostArray> = (0..fields).map(|n| ArcArray1::from(pattern(n, bytes)).into()).collect();
            let names: Vec<_> = (0..fields).map(|n| format!("f{n}")).collect();
            let made = || {
                let pairs = names.iter().zip(&arrays);
                pairs.fold(HostBatch::new(), |batch, (name, array)| batch.with(name, array.clone()))
            };
            let time = time_of_a_batch(&rig, made, threads);
            println!("{threads} threads, {fields} fields of {bytes} bytes, pageable: {time:.2} µs a batch");
        }
    }
    rig.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn the_submit_of_a_large_batch_takes_microseconds_b115_b120() {
    let Some(rig) = Rig::new() else { panic!("no GPU") };
    for (kind, array) in [
        ("pageable", HostArray::from(pattern(1, 64 << 20))),
        ("page-locked", block_on(rig.device.pinned::<u8, _>(64 << 20)).unwrap().share()),
    ] {
        let mut times: Vec<_> = (0..50)
            .map(|_| {
                let (array, begun) = (array.clone(), Instant::now());
                let transfer = rig.device.try_transfer(("x", array)).unwrap();
                let time = begun.elapsed();
                block_on(transfer).unwrap();
                time
            })
            .collect();
        times.sort();
        println!("submit of 64 MiB, {kind}: {:?} p50, {:?} p90", times[25], times[45]);
    }
    rig.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn blocks_of_a_gibibyte_are_not_allocated_again_after_each_synchronisation_b116() {
    let Some(rig) = Rig::with(|builder| builder.memory_bytes(5 << 30).pinned_bytes(2 << 30)) else { panic!("no GPU") };
    let array = block_on(rig.device.pinned::<u8, _>(1 << 30)).unwrap().share();
    let (mut times, before) = (Vec::new(), rig.device.stats().device_allocations);
    for _ in 0..20 {
        let begun = Instant::now();
        drop(block_on(async { rig.device.transfer(("x", array.clone())).await?.await }).unwrap());
        times.push(begun.elapsed());
        rig.context().synchronize().unwrap();
    }
    times.sort();
    println!("1 GiB, synchronised after each: {:?} p50, {:?} at most", times[10], times[19]);
    assert!(rig.device.stats().device_allocations - before <= 2);
    drop(array);
    rig.finish();
}
