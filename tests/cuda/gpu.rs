//! What only hardware can show. Run with `--ignored` on a machine that has a GPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};
use inflight::BatchStreamExt;
use inflight::cudarc::driver::{PushKernelArg, sys};

use crate::rig::{ONE, Rig, SIZES, alone, eventually, pattern};

#[test]
#[ignore = "needs a GPU"]
fn compute_holds_blocks_for_100_ms_and_copies_arrive_meanwhile_invariant_4() {
    for bytes in SIZES.into_iter().chain([38_535_168]) {
        let Some(rig) = Rig::new() else { panic!("no GPU") };
        let mut errors = rig.errors();
        let data: Vec<_> = (0..12).map(|n| ("x", pattern(n, bytes))).collect();
        block_on(async {
            let source = stream::iter(data);
            let mut batches = source.to_device(&rig.device).buffered(4);
            let begun = Instant::now();
            for n in 0..6 {
                let batch = batches.try_next().await.unwrap().unwrap();
                let lease = batch.on(&rig.stream).unwrap();
                if n == 0 {
                    rig.spin(&rig.stream, Duration::from_millis(100));
                }
                rig.check(&lease, n, &mut errors);
            }
            let six = begun.elapsed();
            println!("{bytes} bytes: six batches in hand after {six:?} beside a kernel of 100 ms");
            assert!(six < Duration::from_millis(100), "the copies waited for compute: {six:?}");
            assert!(rig.device.stats().limbo_blocks > 0);
        });
        assert_eq!(rig.counted(&errors), 0);
        rig.finish();
    }
}

#[test]
#[ignore = "needs a GPU, and loses its context"]
fn an_illegal_address_in_a_kernel_is_the_end_within_100_ms() {
    let _alone = alone();
    // A process of its own: the context is lost for all of it.
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "gpu::child_with_an_illegal_address", "--ignored", "--nocapture"])
        .env("INFLIGHT_POKING_CHILD", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    print!("{text}");
    assert!(child.status.success(), "{text}\n{}", String::from_utf8_lossy(&child.stderr));
}

#[test]
#[ignore = "the child of another test"]
fn child_with_an_illegal_address() {
    if std::env::var_os("INFLIGHT_POKING_CHILD").is_none() {
        return;
    }
    let Some(rig) = Rig::with(|builder| builder.memory_bytes(64 << 20)) else { panic!("no GPU") };
    let device = rig.device.clone();
    let batch = rig.batch(1, 1 << 20);
    let lease = batch.on(&rig.stream).unwrap();
    lease.view::<u8>("x").unwrap();
    rig.spin(&rig.stream, Duration::from_millis(50));
    let (poke, address, value) = (rig.kernel("poke"), 0x10_u64, 1_u32);
    // SAFETY: none: the fault is what is tried, in a process of its own.
    unsafe { rig.stream.launch_builder(&poke).arg(&address).arg(&value).launch(ONE) }.unwrap();
    let read = block_on(device.read_wait(&lease.view::<u8>("x").unwrap(), &rig.stream)).unwrap();
    lease.end().unwrap();
    // Waits that end with the fault only: behind the kernel, and for memory that is not free.
    let waiting = std::thread::spawn({
        let device = device.clone();
        move || {
            let held: Vec<_> =
                (0..3).map_while(|_| block_on(device.transfer(("x", vec![0_u8; 14 << 20]))).ok()).collect();
            let admission = block_on(device.transfer(("x", vec![0_u8; 50 << 20])));
            drop(held);
            (admission.is_err(), Instant::now())
        }
    });
    let failed = block_on(read).unwrap_err();
    let first = Instant::now();
    assert!(failed.is_fatal(), "{failed}");
    println!("the read-back: {failed}");
    let drained = block_on(device.drain()).unwrap_err();
    assert!(drained.is_fatal());
    let (admission_failed, last) = waiting.join().unwrap();
    assert!(admission_failed);
    let apart = last.max(Instant::now()).duration_since(first);
    println!("all pending futures were fatal within {apart:?} of the first");
    assert!(apart < Duration::from_millis(100), "{apart:?}");
    assert!(device.try_transfer(("x", 1_u8)).unwrap_err().is_fatal());
    assert!(device.stats().leaked > 0 || device.stats().device_used > 0);
    std::process::exit(0);
}

/// The median time of a launch on a thread of its own.
fn launch_time(rig: &Rig, launches: usize) -> Duration {
    let (spin, time) = (rig.kernel("spin"), 0_u64);
    let stream = rig.context().new_stream().unwrap();
    let mut times = Vec::with_capacity(launches);
    for n in 0..launches {
        let begun = Instant::now();
        // SAFETY: the kernel takes one number and touches no memory.
        unsafe { stream.launch_builder(&spin).arg(&time).launch(ONE) }.unwrap();
        times.push(begun.elapsed());
        if n % 256 == 255 {
            stream.synchronize().unwrap();
        }
    }
    times.sort_unstable();
    times[launches / 2]
}

/// Sends copies of 0.7 ms at depth 4 until told to stop.
fn feed(rig: &Rig, stop: &AtomicBool) {
    block_on(async {
        let mut pinned = rig.device.pinned::<u8, _>(38_535_168).await.unwrap();
        pinned.fill(1);
        let array = pinned.share();
        let source = stream::iter(std::iter::repeat_with(|| ("x", array.clone())));
        let going = source.take_while(|_| std::future::ready(!stop.load(Ordering::Relaxed)));
        going.to_device(&rig.device).buffered(4).try_for_each(|_| std::future::ready(Ok(()))).await.unwrap();
    });
}

/// The same by the driver's calls alone, by a thread that asks nothing and is woken by the driver.
fn feed_bare(rig: &Rig, stop: &AtomicBool) {
    let stream = rig.context().new_stream().unwrap();
    let blocking = Some(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC);
    // SAFETY: every byte is written below before it is read.
    let mut host = unsafe { rig.context().alloc_pinned::<u8>(38_535_168) }.unwrap();
    host.as_mut_slice().unwrap().fill(1);
    let mut slots: Vec<_> = (0..4)
        .map(|_| (stream.alloc_zeros::<u8>(38_535_168).unwrap(), stream.record_event(blocking).unwrap()))
        .collect();
    for slot in (0..4).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (device, done) = &mut slots[slot];
        done.synchronize().unwrap();
        stream.memcpy_htod(&host, device).unwrap();
        done.record(&stream).unwrap();
    }
    stream.synchronize().unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn launches_of_another_thread_are_hardly_slower_beside_the_reactor_b113() {
    let Some(rig) = Rig::new() else { panic!("no GPU") };
    launch_time(&rig, 2000);
    let beside = |feed: fn(&Rig, &AtomicBool)| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| feed(&rig, &stop));
            // The first copies are on their way by then.
            launch_time(&rig, 2000);
            let time = launch_time(&rig, 10_000);
            stop.store(true, Ordering::Relaxed);
            time
        })
    };
    let mut ratios = Vec::new();
    for _ in 0..9 {
        let (alone, bare, ours) = (launch_time(&rig, 10_000), beside(feed_bare), beside(feed));
        ratios.push(ours.as_secs_f64() / bare.as_secs_f64());
        println!("launch {alone:?} alone, {bare:?} beside 0.7 ms copies that nobody asks after, {ours:?} beside ours");
    }
    ratios.sort_by(f64::total_cmp);
    println!("ours over bare, median of 9: {:.3}", ratios[4]);
    rig.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn work_queued_right_behind_a_large_upload_sees_all_of_it_b23_b27() {
    let Some(rig) = Rig::new() else { panic!("no GPU") };
    let mut errors = rig.errors();
    for bytes in [256 << 10, (1 << 20) + 100_000, 64 << 20] {
        let data = [pattern(0, bytes), pattern(1, bytes)];
        for run in 0..100 {
            let transfer = block_on(rig.device.transfer(("x", data[run % 2].clone()))).unwrap();
            let batch = block_on(transfer.early()).unwrap();
            let fresh = rig.context().new_stream().unwrap();
            rig.check(&batch.on(&fresh).unwrap(), run % 2, &mut errors);
        }
    }
    rig.context().synchronize().unwrap();
    assert_eq!(rig.counted(&errors), 0);
    rig.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn a_page_locked_result_is_read_at_the_speed_of_memory_b111() {
    let Some(rig) = Rig::new() else { panic!("no GPU") };
    let bytes = 64 << 20;
    let batch = rig.batch(1, bytes);
    let back = block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap();
    let ordinary = back.as_slice().unwrap().to_vec();
    let timed = |slice: &[u8]| {
        let begun = Instant::now();
        let sum: u64 = slice.iter().map(|byte| u64::from(*byte)).sum();
        (begun.elapsed(), sum)
    };
    let slice = back.as_slice().unwrap();
    timed(slice);
    let (ours, theirs) = (timed(slice), timed(&ordinary));
    println!("sum of 64 MiB: {:?} of page-locked memory, {:?} of a vector", ours.0, theirs.0);
    assert_eq!(ours.1, theirs.1);
    drop(back);
    drop(batch);
    eventually("nothing is pending", || rig.device.stats().limbo_blocks == 0);
    rig.finish();
}
