//! Views as arguments of kernels and of cudarc's calls; streams that leases refuse.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use inflight::cudarc::driver::result::{graph, stream};
use inflight::cudarc::driver::{CudaContext, CudaStream, DeviceSlice, PushKernelArg, sys};
use inflight::{ComputeStream, Device, Error, HostStream};

use crate::rig::{Rig, SIZES, eventually, fetched, overwrite, pattern};

#[test]
fn a_view_is_a_kernels_argument_and_a_source_of_copies() {
    let Some(rig) = Rig::new() else { return };
    for bytes in SIZES {
        let batch = rig.batch(3, bytes);
        let lease = batch.on(&rig.stream).unwrap();
        let mut errors = rig.errors();
        rig.check(&lease, 3, &mut errors);
        let view = lease.view::<u8>("x").unwrap();
        assert_eq!((DeviceSlice::len(&view), view.num_bytes(), view.address() % 256), (bytes, bytes, 0));
        assert_eq!(view.stream(), &rig.stream);
        assert_eq!(fetched(&rig.stream, &view), pattern(3, bytes));
        let mut copy = rig.stream.alloc_zeros::<u8>(bytes).unwrap();
        rig.stream.memcpy_dtod(&view, &mut copy).unwrap();
        assert_eq!(fetched(&rig.stream, &copy), pattern(3, bytes));
        assert_eq!(rig.counted(&errors), 0);
    }
    rig.finish();
}

#[test]
fn a_view_used_on_another_stream_is_ordered_and_blocks() {
    let Some(rig) = Rig::new() else { return };
    let other = rig.context().new_stream().unwrap();
    // Either stream may be the slower one: its work is not done when the other's is.
    for (bytes, own, others) in SIZES.into_iter().flat_map(|bytes| [(bytes, 100, 0), (bytes, 20, 60)]) {
        let batch = rig.batch(1, bytes);
        let mut lease = batch.on(&rig.stream).unwrap();
        // Queued on the lease's stream, behind something slow: the other stream must see it.
        rig.spin(&rig.stream, Duration::from_millis(own));
        let [mut view] = lease.split_mut::<u8, 1>(["x"]).unwrap();
        let (add, len) = (rig.kernel("add_u8"), bytes as u64);
        {
            let mut launch = rig.stream.launch_builder(&add);
            launch.arg(&mut view).arg(&len).arg(&1_u32);
            // SAFETY: the arguments are those of the kernel.
            unsafe { launch.launch(crate::rig::WIDE) }.unwrap();
        }
        let added: Vec<u8> = pattern(1, bytes).into_iter().map(|byte| byte.wrapping_add(1)).collect();
        let mut copy = other.alloc_zeros::<u8>(bytes).unwrap();
        rig.spin(&other, Duration::from_millis(others));
        other.memcpy_dtod(&view, &mut copy).unwrap();
        // The guard has blocked until the copy was done: the lease may end and its memory be used again.
        lease.end().unwrap();
        drop(batch);
        for n in 5..8 {
            drop(rig.batch(n, bytes));
        }
        assert_eq!(fetched(&other, &copy), added, "{bytes} bytes");
    }
    rig.finish();
}

#[test]
fn a_field_can_be_overwritten_through_the_only_lease() {
    let Some(rig) = Rig::new() else { return };
    for bytes in SIZES {
        let batch = rig.batch(1, bytes);
        let mut lease = batch.on(&rig.stream).unwrap();
        let [mut view] = lease.split_mut::<u8, 1>(["x"]).unwrap();
        overwrite(&rig.stream, &mut view, 7);
        lease.end().unwrap();
        let back = block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap();
        assert!(back.iter().all(|byte| *byte == 7));
        let (one, mut two) = (batch.on(&rig.stream).unwrap(), batch.on(&rig.stream).unwrap());
        assert!(matches!(two.split_mut::<u8, 1>(["x"]), Err(Error::Borrowed { .. })));
        drop(one);
    }
    rig.finish();
}

#[test]
fn cudarcs_own_views_can_be_had() {
    let Some(rig) = Rig::new() else { return };
    let batch = rig.batch(2, 5000);
    let mut lease = batch.on(&rig.stream).unwrap();
    {
        let view = lease.view::<u8>("x").unwrap();
        // SAFETY: used on the lease's stream alone.
        let field = unsafe { view.as_cuda_view() }.unwrap();
        assert_eq!(fetched(&rig.stream, &field.view().slice(100..200)), pattern(2, 5000)[100..200]);
    }
    let [view] = lease.split_mut::<u8, 1>(["x"]).unwrap();
    // SAFETY: as above.
    let mut field = unsafe { view.as_cuda_view_mut() }.unwrap();
    rig.stream.memset_zeros(&mut field.view()).unwrap();
    drop(field);
    let view = lease.view::<u8>("x").unwrap();
    assert_eq!(fetched(&rig.stream, &view), vec![0; 5000]);
    lease.end().unwrap();
    drop(batch);
    rig.finish();
}

fn refused(rig: &Rig, stream: &Arc<CudaStream>) -> Error {
    rig.batch(1, 100).on(stream).unwrap_err()
}

#[test]
fn the_per_thread_default_stream_is_refused() {
    let Some(rig) = Rig::new() else { return };
    let error = refused(&rig, &rig.context().per_thread_stream());
    assert!(matches!(error, Error::UnusableStream { .. }), "{error}");
    assert!(error.to_string().contains("per-thread default stream"), "{error}");
    // The legacy one is one stream.
    rig.batch(1, 100).on(&rig.context().default_stream()).unwrap().end().unwrap();
    rig.finish();
}

#[test]
fn a_capturing_stream_is_refused_and_its_capture_goes_on() {
    let Some(rig) = Rig::new() else { return };
    for mode in [
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        let captured = rig.context().new_stream().unwrap();
        let before = rig.batch(1, 100);
        // SAFETY: the stream is new, and ends its capture below.
        unsafe { stream::begin_capture(captured.cu_stream(), mode) }.unwrap();
        let error = before.on(&captured).unwrap_err();
        assert!(matches!(error, Error::UnusableStream { .. }), "{error}");
        assert!(error.to_string().contains("captured"), "{error}");
        // All that we do on this thread meanwhile, and on ours, leaves the capture alone.
        for bytes in SIZES {
            let batch = rig.batch(2, bytes);
            batch.on(&rig.stream).unwrap().view::<u8>("x").unwrap();
            block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap();
        }
        rig.device.trim();
        block_on(rig.device.drain()).unwrap();
        // SAFETY: the capture was begun above.
        let graph = unsafe { stream::end_capture(captured.cu_stream()) }.unwrap();
        // SAFETY: the graph is ours.
        unsafe { graph::destroy(graph) }.unwrap();
    }
    rig.finish();
}

#[test]
fn a_view_is_not_captured_into_a_graph() {
    let Some(rig) = Rig::new() else { return };
    let captured = rig.context().new_stream().unwrap();
    let batch = rig.batch(1, 4096);
    let lease = batch.on(&captured).unwrap();
    let view = lease.view::<u8>("x").unwrap();
    let mut copy = rig.stream.alloc_zeros::<u8>(4096).unwrap();
    rig.stream.synchronize().unwrap();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the capture is ended below.
    unsafe { stream::begin_capture(captured.cu_stream(), mode) }.unwrap();
    // A replay would read the memory when it is another batch's.
    assert!(captured.memcpy_dtod(&view, &mut copy).is_err());
    drop(lease);
    // SAFETY: the capture was begun above; whether it is still valid is the driver's to say.
    if let Ok(graph) = unsafe { stream::end_capture(captured.cu_stream()) }
        && !graph.is_null()
    {
        // SAFETY: the graph is ours.
        unsafe { graph::destroy(graph) }.unwrap();
    }
    drop(batch);
    // Its end could not be recorded there: the block is never used again, and counted.
    eventually("the block is quarantined", || rig.device.stats().device_quarantined >= 4096);
}

#[test]
fn streams_of_other_devices_and_contexts_are_refused_b105() {
    let Some(rig) = Rig::new() else { return };
    let error = rig.batch(1, 100).on(&HostStream::new().unwrap()).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    assert_eq!(error.to_string(), "the compute stream belongs to the host, not to cuda:0");
    let host = Device::host().unwrap();
    let batch = block_on(async { host.transfer(("x", 1_u8)).await?.await }).unwrap();
    let error = batch.on(&rig.stream).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    assert_eq!(error.to_string(), "the compute stream belongs to a GPU, not to host");
    assert!(matches!(batch.on(&ComputeStream::Cuda(rig.stream.clone())), Err(Error::WrongDevice { .. })));
    if CudaContext::device_count().unwrap() > 1 {
        let second = CudaContext::new(1).unwrap();
        let error = refused(&rig, &second.new_stream().unwrap());
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
        assert_eq!(error.to_string(), "the compute stream belongs to another context, of cuda:1, not to cuda:0");
        let device = Device::from_context(&second).unwrap();
        let stream = rig.stream.clone();
        let refused =
            Device::builder().context(&second).overlap(inflight::Overlap::Off(&ComputeStream::Cuda(stream))).build();
        assert!(matches!(refused, Err(Error::WrongDevice { .. })));
        drop(device);
    }
    rig.finish();
}

#[test]
fn two_leases_of_one_stream_and_of_two_share_a_batch() {
    let Some(rig) = Rig::new() else { return };
    let other = rig.context().new_stream().unwrap();
    for bytes in SIZES {
        let batch = rig.batch(4, bytes);
        let mut errors = rig.errors();
        rig.stream.synchronize().unwrap();
        let leases = [batch.on(&rig.stream).unwrap(), batch.on(&other).unwrap(), batch.on(&rig.stream).unwrap()];
        for lease in &leases {
            rig.spin(lease.stream(), Duration::from_millis(2));
            rig.check(lease, 4, &mut errors);
        }
        drop(batch);
        drop(leases);
        for n in 5..8 {
            drop(rig.batch(n, bytes));
        }
        rig.context().synchronize().unwrap();
        assert_eq!(rig.counted(&errors), 0, "{bytes} bytes");
    }
    rig.finish();
}
