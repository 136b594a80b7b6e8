//! Threads: few, quiet, gone when nothing needs them (invariants 8 and 12); executors of every kind.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Device, LinkModel};

use crate::bed::{elements, host_stream, pattern};

async fn epoch(device: &Device) {
    let stream = host_stream(device);
    let sizes = [100, 200_000, 64, 3 << 20];
    let source = stream::iter((0..24).map(|n| ("x", pattern(n, sizes[n % 4]))));
    let mut batches = source.to_device(device).buffered(4);
    let mut n = 0;
    while let Some(batch) = batches.try_next().await.unwrap() {
        let lease = batch.on(&stream).unwrap();
        let seen = lease.run(|fields| Ok(elements(&fields.view::<u8>("x")?))).await.unwrap();
        assert_eq!(seen, pattern(n, sizes[n % 4]));
        n += 1;
    }
    assert_eq!(n, 24);
}

#[test]
fn it_runs_on_block_on_b51() {
    futures::executor::block_on(epoch(&Device::host().unwrap()));
}

#[tokio::test]
async fn it_runs_on_tokios_current_thread() {
    epoch(&Device::host().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_on_tokios_threads_b28_b107() {
    let device = Device::host().unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let device = device.clone();
            tokio::spawn(async move { epoch(&device).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn it_runs_on_smol() {
    smol::block_on(epoch(&Device::host().unwrap()));
}

#[tokio::test]
async fn invariant_08_dropping_transfers_does_not_hold_up_the_executor_b34() {
    let slow = LinkModel { bytes_per_second: 1e9, latency: Duration::from_millis(200) };
    let device = Device::builder().host().link_model(slow).build().unwrap();
    let ticker = tokio::spawn(async {
        let mut ticks = 0;
        let start = tokio::time::Instant::now();
        while start.elapsed() < Duration::from_millis(150) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            ticks += 1;
        }
        ticks
    });
    for _ in 0..3 {
        let transfer = device.transfer(("x", vec![1_u8; 1 << 20])).await.unwrap();
        tokio::task::yield_now().await;
        drop(transfer);
    }
    let still_there = device.stats().device_used;
    assert!(still_there > 0, "the copies take 200 ms each, and were dropped under way");
    assert!(ticker.await.unwrap() > 0);
    device.drain().await.unwrap();
    assert_eq!(device.stats().device_used, 0);
}

#[test]
fn a_runtime_that_is_dropped_loses_no_memory_b38_b57() {
    let device = Device::host().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for n in 0..8 {
        let device = device.clone();
        runtime.spawn(async move {
            let _transfer = device.transfer(("x", pattern(n, 1 << 20))).await.unwrap();
            std::future::pending::<()>().await;
        });
    }
    runtime.shutdown_background();
    crate::bed::eventually("all blocks are back", || device.stats().device_used == 0);
}

#[test]
fn invariant_12_threads_end_when_nothing_needs_them() {
    // In a process of its own: other tests have threads of ours too.
    const CHILD: &str = "INFLIGHT_TEST_THREADS";
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe().unwrap();
        let name = "threads::invariant_12_threads_end_when_nothing_needs_them";
        let child =
            std::process::Command::new(me).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let (device, stream) = {
        let device = Device::host().unwrap();
        let stream = host_stream(&device);
        (device, stream)
    };
    let batch = futures::executor::block_on(async {
        let batch = device.transfer(("x", vec![1_u8; 1 << 20])).await.unwrap().await.unwrap();
        batch.on(&stream).unwrap().run(|_| Ok(())).await.unwrap();
        batch
    });
    drop((device, stream));
    if let Some(count) = threads_of_ours() {
        assert!(count > 0, "the batch still needs its device");
    }
    // By then they are parked: none of them looks up by itself.
    let pause = Instant::now();
    while pause.elapsed() < Duration::from_millis(100) {
        std::thread::yield_now();
    }
    drop(batch);
    crate::bed::eventually("the threads end", || threads_of_ours().unwrap_or(0) == 0);
}

#[cfg(target_os = "linux")]
fn threads_of_ours() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Some(names.filter(|name| name.starts_with("inflight")).count())
}

#[cfg(not(target_os = "linux"))]
fn threads_of_ours() -> Option<usize> {
    None
}

#[test]
fn invariant_12_a_device_with_nothing_to_do_asks_nothing_b112() {
    let device = Device::host().unwrap();
    futures::executor::block_on(epoch(&device));
    futures::executor::block_on(device.drain()).unwrap();
    std::thread::park_timeout(Duration::from_millis(20));
    let before = device.stats();
    std::thread::park_timeout(Duration::from_millis(300));
    let after = device.stats();
    assert_eq!((before.polls, before.reactor_cpu), (after.polls, after.reactor_cpu));
}

#[test]
#[cfg(unix)]
fn the_child_of_a_fork_gets_an_error_and_no_hang_b56() {
    let device = Device::host().unwrap();
    let error = inflight_fork::in_child(|| {
        let error = device.try_transfer(("x", 1_u8)).map(drop).unwrap_err();
        let text = "host was opened before a fork and can't be used in the child: open one there";
        matches!(error, inflight::Error::Forked { .. }) && error.to_string() == text && error.take_batch().is_some()
    });
    assert!(error);
    assert!(device.try_transfer(("x", 1_u8)).is_ok());
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "there is no safe fork")]
mod inflight_fork {
    /// Runs `check` in a forked child; answers what it answered.
    pub(super) fn in_child(check: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only asks one question of a device and leaves without unwinding or running destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let answer = check();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!answer)) };
        }
        let mut status = 0;
        // SAFETY: `status` is ours and outlives the call.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}
