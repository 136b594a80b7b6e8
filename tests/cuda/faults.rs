//! An error at the k-th call of the driver, for every k: all futures resolve, nothing hangs, nothing is freed too early.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures::executor::block_on;
use futures::{StreamExt, stream};
use inflight::cudarc::driver::{CudaContext, CudaStream, sys};
use inflight::{BatchStreamExt, Device, Error, batch};

use crate::rig::{StandIn, alone, eventually, pattern, quiet, stand_in};

/// An array of so many bytes has pages of its own: what stays registered after a fault is in nobody's way.
const OWN_PAGES: usize = 4 << 20;

/// A code of a newer driver.
const UNKNOWN: i32 = 12_345;

/// Everything once: sizes that go inline, in chunks, and direct; leases, reads, writes, early, registration.
///
/// `with_slices` also makes calls of cudarc's own, for which a code that it does not know is undefined behaviour.
async fn everything(context: &Arc<CudaContext>, stream: &Arc<CudaStream>, with_slices: bool) -> Vec<Error> {
    let mut errors = Vec::new();
    let builder = Device::builder().context(context).memory_bytes(8 << 20).staging_bytes(256 << 10).staging_threads(2);
    let device = match builder.build() {
        Ok(device) => device,
        Err(error) => return vec![error],
    };
    let mut note = |error: Error| errors.push(error);
    let sizes = [100, 70_000, 600_000, 4096];
    let source = stream::iter(sizes.into_iter().enumerate().map(|(n, bytes)| ("x", pattern(n, bytes))));
    let batches: Vec<_> = source.to_device(&device).buffered(3).collect().await;
    for (n, batch) in batches.into_iter().enumerate() {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                note(error);
                continue;
            }
        };
        match batch.on(stream) {
            Ok(lease) => {
                let viewed = lease.view::<u8>("x").map(|_| ());
                viewed.and_then(|()| lease.end()).unwrap_or_else(&mut note);
            }
            Err(error) => note(error),
        }
        match batch.field("x").and_then(|field| field.read_back::<u8>()) {
            Ok(read) => match read.await {
                // What arrives is right, whatever went wrong elsewhere.
                Ok(array) => assert!(array.iter().copied().eq(pattern(n, sizes[n])), "wrong bytes after a fault"),
                Err(error) => note(error),
            },
            Err(error) => note(error),
        }
    }
    match device.transfer(batch! { raw: pattern(1, 5000), labels: pattern(2, 300_000) }).await {
        Ok(transfer) => match transfer.early().await {
            Ok(early) => {
                if let Ok(lease) = early.on(stream).inspect_err(|error| note(error.clone())) {
                    lease.queued("labels").await.unwrap_or_else(&mut note);
                    drop(lease.view::<u8>("labels"));
                }
            }
            Err(error) => note(error),
        },
        Err(error) => note(error),
    }
    match device.register(vec![5_u8; OWN_PAGES]).await {
        Ok(registered) => match device.transfer(("x", registered)).await {
            Ok(transfer) => drop(transfer.await.map_err(&mut note)),
            Err(error) => note(error),
        },
        Err(error) => note(error),
    }
    drop(device.pinned::<u8, _>(100_000).await.map_err(&mut note));
    let slice = if with_slices { stream.alloc_zeros::<u8>(100_000).ok() } else { None };
    if let Some(mut slice) = slice {
        device.write(vec![1_u8; 100_000], &mut slice, stream).await.unwrap_or_else(&mut note);
        match device.read_wait(&slice, stream).await {
            Ok(read) => drop(read.await.map_err(&mut note)),
            Err(error) => note(error),
        }
        if stream.synchronize().is_err() {
            // A lost context: cudarc's own free would only fail as well.
            let _ = slice.leak();
        }
    }
    // Dropped on their way.
    drop(device.try_transfer(("x", pattern(3, 200_000))));
    drop(device.try_transfer(("x", pattern(4, 100))));
    device.trim();
    device.drain().await.unwrap_or_else(&mut note);
    errors
}

/// A context of its own: one that a fault has hit stays lost.
fn fresh_context() -> Arc<CudaContext> {
    let device = CudaContext::new(0).unwrap().cu_device();
    let mut raw = std::ptr::null_mut();
    // SAFETY: the handle is written; without parameters nothing special is asked for.
    unsafe { sys::cuCtxCreate_v4(&raw mut raw, std::ptr::null_mut(), 0, device).result() }.unwrap();
    // SAFETY: the context was just made and nobody else destroys it.
    unsafe { CudaContext::from_raw_context(0, device, raw) }.unwrap()
}

/// Runs it with a fault at the `k`-th call of `function`; answers whether there was such a call.
fn with_fault(stand_in: &'static StandIn, function: Option<&'static str>, k: u64, code: i32, sticky: bool) -> bool {
    stand_in.reset();
    stand_in.log(true);
    let context = fresh_context();
    // SAFETY: cudarc's own bookkeeping is not what is tested here, and would run into the faults.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().unwrap();
    let (done, outcome) = mpsc::channel();
    if sticky {
        stand_in.fail_for_good(function, k, code);
    } else {
        stand_in.fail(function, k, code);
    }
    let thread = std::thread::spawn(move || {
        let errors = block_on(everything(&context, &stream, code != UNKNOWN));
        let _ = done.send(errors);
        (context, stream)
    });
    let errors = outcome.recv_timeout(Duration::from_secs(30));
    let was_met = stand_in.faults_left() == 0;
    let what = format!("code {code} at call {k} of {}", function.unwrap_or("any function"));
    let errors =
        errors.unwrap_or_else(|error| panic!("{what}: {error}; the calls:\n{}", stand_in.log_take().join("\n")));
    if sticky && was_met {
        assert!(errors.iter().all(Error::is_fatal), "{what}: {errors:?}");
    }
    assert_eq!(stand_in.violations(), Vec::<String>::new(), "{what}");
    // The faults end, so that cudarc's objects can go.
    stand_in.reset();
    let cudarcs = thread.join().unwrap();
    if code == UNKNOWN {
        // Its drops would read the code as one of an enum's.
        let _ = std::mem::ManuallyDrop::new(cudarcs);
    }
    assert_eq!(stand_in.violations(), Vec::<String>::new(), "{what}: at the end");
    was_met
}

fn at_calls(function: Option<&'static str>, code: i32, sticky: bool, every: u64) {
    let _alone = alone();
    let Some(stand_in) = stand_in() else { return };
    // Opening the driver is for `open.rs`, and happens once in a process.
    stand_in.reset();
    drop(Device::cuda(0).unwrap());
    quiet(stand_in);
    let mut k = 1;
    while with_fault(stand_in, function, k, code, sticky) {
        k += every;
    }
    println!("{} calls to fail", k - 1);
    assert!(k > 3);
    stand_in.reset();
}

#[test]
fn an_error_of_one_operation_at_every_call() {
    at_calls(None, 1, false, 1);
}

#[test]
fn out_of_memory_at_every_third_call() {
    at_calls(None, 2, false, 3);
}

#[test]
fn a_lost_device_at_every_call() {
    at_calls(None, 700, true, 1);
}

#[test]
fn an_unknown_code_at_every_third_call() {
    at_calls(None, UNKNOWN, true, 3);
}

#[test]
fn a_driver_that_shuts_down_at_every_third_call_b103() {
    at_calls(None, 4, true, 3);
}

#[test]
fn each_function_that_a_batch_needs_fails_in_turn() {
    for function in [
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuEventRecord",
        "cuEventQuery",
        "cuStreamWaitEvent",
        "cuMemAllocFromPoolAsync",
    ] {
        for code in [1, 2, 999] {
            at_calls(Some(function), code, code == 999, 1);
        }
    }
}

#[test]
fn asking_again_is_all_that_a_capture_elsewhere_costs() {
    let _alone = alone();
    let Some(stand_in) = stand_in() else { return };
    for code in [600, 900, 906, 907] {
        stand_in.reset();
        let device = Device::cuda(0).unwrap();
        stand_in.fail(Some("cuEventQuery"), 1, code);
        let batch = block_on(async { device.transfer(("x", pattern(1, 1000))).await?.await }).unwrap();
        assert!(batch.is_ready());
        assert_eq!(stand_in.faults_left(), 0);
    }
    stand_in.reset();
}

#[test]
fn out_of_memory_is_an_error_and_then_forgotten_b94_b97() {
    let _alone = alone();
    let Some(stand_in) = stand_in() else { return };
    stand_in.reset();
    // Beside what tests of lost contexts have left.
    stand_in.memory(stand_in.counter("device_bytes") + (40 << 20));
    let device = Device::builder().cuda(0).memory_bytes(64 << 20).build().unwrap();
    block_on(async {
        let error = device.transfer(("x", vec![0_u8; 50 << 20])).await.unwrap().await.unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert!(error.take_batch().is_some(), "the batch comes back");
        device.transfer(("x", vec![0_u8; 20 << 20])).await.unwrap().await.unwrap();
    });
    stand_in.reset();
}

#[test]
fn the_end_of_a_lost_device_frees_nothing() {
    let _alone = alone();
    let Some(stand_in) = stand_in() else { return };
    stand_in.reset();
    let context = CudaContext::new(0).unwrap();
    let frees = || stand_in.calls(Some("cuMemFreeAsync"));
    for code in [1, 700] {
        let device = Device::builder().context(&context).build().unwrap();
        // Its block is idle then.
        drop(block_on(async { device.transfer(("x", pattern(1, 1000))).await?.await }).unwrap());
        stand_in.fail(Some("cuEventQuery"), 1, code);
        assert!(block_on(async { device.transfer(("x", pattern(2, 300_000))).await?.await }).is_err());
        let freed = frees();
        drop(device);
        eventually("the device is gone", || Arc::strong_count(&context) == 1);
        assert_eq!(frees() == freed, code == 700, "after {code}");
    }
    stand_in.reset();
}
