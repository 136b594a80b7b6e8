//! What a device leaves as it found it, and what it says about the GPU.

use std::sync::Arc;

use futures::executor::block_on;
use inflight::cudarc::driver::{CudaContext, CudaStream, result, sys};
use inflight::{ComputeStream, Device, DeviceKind, Error, UnifiedMemory};

use crate::rig::{Driver, Rig, driver, pattern};

/// What is current on this thread.
fn current() -> Option<usize> {
    result::ctx::get_current().unwrap().map(|context| context as usize)
}

/// Everything that a user's thread may call. Answers with the stream: dropping that is cudarc's affair.
fn use_all(device: &Device) -> Arc<CudaStream> {
    block_on(async {
        let batch = device.transfer(("x", pattern(1, 300_000))).await.unwrap().await.unwrap();
        let small = device.transfer(("x", pattern(1, 100))).await.unwrap().await.unwrap();
        let ComputeStream::Cuda(stream) = device.compute_stream().unwrap() else { panic!("{device:?}") };
        let lease = small.on(&stream).unwrap();
        lease.view::<u8>("x").unwrap();
        lease.end().unwrap();
        batch.field("x").unwrap().read_back::<u8>().unwrap().await.unwrap();
        device.pinned::<f32, _>(100).await.unwrap();
        device.register(vec![1_u8; 10_000]).await.unwrap();
        device.trim();
        device.drain().await.unwrap();
        stream
    })
}

#[test]
fn the_current_context_is_left_as_it_was_found_b107() {
    let Some(rig) = Rig::new() else { return };
    // SAFETY: null is none.
    unsafe { result::ctx::set_current(std::ptr::null_mut()) }.unwrap();
    let device = Device::cuda(0).unwrap();
    assert_eq!(current(), None, "after a build");
    let two = if CudaContext::device_count().unwrap() > 1 { Some(CudaContext::new(1).unwrap()) } else { None };
    for context in [None, Some(rig.context()), two.as_ref()] {
        let wanted = context.map_or(std::ptr::null_mut(), |context| context.cu_ctx());
        // SAFETY: the context lives.
        unsafe { result::ctx::set_current(wanted) }.unwrap();
        let before = current();
        let stream = use_all(&rig.device);
        assert_eq!(current(), before);
        drop(stream);
    }
    drop(device);
    rig.finish();
}

/// Puts this thread in a capture mode; answers with the one that it was in.
fn exchange(mut mode: sys::CUstreamCaptureMode) -> sys::CUstreamCaptureMode {
    // SAFETY: the mode is a known one, and the one before is written in its place.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result().unwrap();
    mode
}

#[test]
fn the_capture_mode_is_left_as_it_was_found() {
    let Some(rig) = Rig::new() else { return };
    for mode in [
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        let found = exchange(mode);
        drop(use_all(&rig.device));
        assert_eq!(exchange(found), mode);
    }
    rig.finish();
}

#[test]
fn two_devices_take_turns_on_one_thread_b105_b107() {
    let Some(rig) = Rig::new() else { return };
    if CudaContext::device_count().unwrap() < 2 {
        return;
    }
    let second = Device::cuda(1).unwrap();
    block_on(async {
        for n in 0..20 {
            let one = rig.device.transfer(("x", pattern(n, 5000))).await.unwrap();
            let two = second.transfer(("x", pattern(n + 1, 70_000))).await.unwrap();
            let (two, one) = (two.await.unwrap(), one.await.unwrap());
            for (batch, n, bytes) in [(one, n, 5000), (two, n + 1, 70_000)] {
                let back = std::thread::spawn(move || {
                    block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap().as_slice().unwrap().to_vec()
                });
                assert_eq!(back.join().unwrap(), pattern(n, bytes));
            }
        }
    });
    assert_eq!(second.name(), "cuda:1");
    rig.finish();
}

#[test]
fn no_other_device_gets_a_context_b106() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let before = stand_in.counter("contexts");
    let second = Device::cuda(1).unwrap();
    drop(use_all(&second));
    assert!(stand_in.counter("contexts") <= before + 1, "its own");
    rig.finish();
}

#[test]
fn a_device_of_a_users_context_works_on_its_streams() {
    let Some(rig) = Rig::new() else { return };
    let (mine, other) = (rig.context().new_stream().unwrap(), CudaContext::new(0).unwrap().new_stream().unwrap());
    // Another handle on the primary context is the same context.
    for stream in [mine, other] {
        rig.batch(1, 1000).on(&stream).unwrap().view::<u8>("x").unwrap();
    }
    assert!(!rig.context().is_in_multi_stream_mode() || rig.context().is_event_tracking(), "left as it was");
    rig.finish();
}

#[test]
fn stats_tell_the_gpu_and_its_driver() {
    let Some(rig) = Rig::new() else { return };
    let stats = rig.device.stats();
    let hardware = stats.hardware.unwrap();
    assert_eq!((stats.kind, hardware.ordinal), (DeviceKind::Cuda, 0));
    assert!(hardware.driver_version >= (12, 0), "{hardware:?}");
    assert!(hardware.compute_capability >= (7, 5) && !hardware.model.is_empty(), "{hardware:?}");
    assert!(hardware.memory_bytes >= stats.device_limit && stats.device_limit > 0);
    rig.finish();
}

#[test]
fn memory_that_is_shared_with_the_host_is_told() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let told = || Device::cuda(0).unwrap().stats().hardware.unwrap().unified_memory;
    assert_eq!(told(), UnifiedMemory::None);
    stand_in.attribute(Some(0), 88, 1);
    stand_in.attribute(Some(0), 100, 1);
    assert_eq!(told(), UnifiedMemory::Coherent);
    stand_in.attribute(Some(0), 18, 1);
    assert_eq!(told(), UnifiedMemory::Integrated);
    stand_in.reset();
    rig.finish();
}

#[test]
fn a_device_without_memory_pools_allocates_plainly() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    stand_in.attribute(Some(0), 115, 0);
    let device = Device::cuda(0).unwrap();
    drop(use_all(&device));
    assert!(stand_in.calls(Some("cuMemAlloc_v2")) > 0);
    drop(device);
    stand_in.reset();
    rig.finish();
}

#[test]
fn an_ordinal_that_does_not_exist_is_an_error() {
    let _alone = crate::rig::alone();
    if matches!(driver(), Driver::None) {
        return;
    }
    let count = CudaContext::device_count().unwrap();
    for ordinal in [99, 1 << 32, usize::MAX] {
        let error = Device::cuda(ordinal).unwrap_err();
        assert!(matches!(error, Error::NoDevice { .. }));
        assert_eq!(
            error.to_string(),
            format!("no such device: cuda:{ordinal} was asked for, and the driver finds {count}, numbered from 0")
        );
    }
}

#[test]
fn device_auto_takes_the_gpu() {
    let _alone = crate::rig::alone();
    if matches!(driver(), Driver::None) {
        return;
    }
    let device = Device::auto().unwrap();
    assert_eq!((device.kind(), device.name()), (DeviceKind::Cuda, "cuda:0"));
}
