//! Which public types may go to other threads, be moved while polled, and outlive what made them.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use inflight::sim::{Counters, FaultPoint, Pending, PendingStream, Simulator};
use inflight::{
    BatchReadback, BufferedBy, ComputeStream, Cursor, Depth, Device, DeviceArray, DeviceBatch, DeviceBuilder,
    DeviceKind, Dtype, Early, Error, Failure, Fields, FieldsMut, HostArray, HostBatch, HostGuard, HostSlice,
    HostStream, HostTask, HostView, Lease, LinkModel, MappedFile, Overlap, PinnedArray, PipelineStats, ReadBack,
    Readback, Ready, Registered, Returned, Stats, ToDevice, Transfer, UntilError, View, ViewMut,
};
use ndarray::{Ix2, IxDyn};

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unpin<T: Unpin>() {}
fn forever<T: 'static>() {}
fn clone<T: Clone>() {}
fn copy<T: Copy>() {}
fn future<T: Future + Send + Unpin + 'static>() {}

macro_rules! each {
    ($check:ident: $($type:ty),* $(,)?) => { $($check::<$type>();)* };
}

type Source = futures::stream::Empty<HostBatch>;

#[test]
fn handles_are_shared_between_threads() {
    each!(send: Device, DeviceBatch, DeviceArray, HostArray, HostBatch, Registered, MappedFile, HostStream, ComputeStream, HostSlice<f32>,
        Depth, Failure, Error, Returned, Stats, PipelineStats, Simulator, Dtype, Cursor, DeviceKind, LinkModel,
        Lease<HostStream>, Lease<ComputeStream>, PinnedArray<f32, Ix2>, PinnedArray<bool, IxDyn>, Fields, FieldsMut,
        DeviceBuilder<'static>, Overlap<'static>, Counters, FaultPoint, Pending, PendingStream);
    each!(sync: Device, DeviceBatch, DeviceArray, HostArray, HostBatch, Registered, MappedFile, HostStream, ComputeStream, HostSlice<f32>,
        Depth, Failure, Error, Returned, Stats, PipelineStats, Simulator, Dtype, Cursor, DeviceKind, LinkModel,
        Lease<HostStream>, Lease<ComputeStream>, PinnedArray<f32, Ix2>, PinnedArray<bool, IxDyn>, Fields, FieldsMut,
        DeviceBuilder<'static>, Overlap<'static>, Counters, FaultPoint, Pending, PendingStream);
    each!(forever: Lease<HostStream>, DeviceBatch, DeviceArray, Ready, Error);
    each!(clone: Device, DeviceBatch, DeviceArray, HostArray, HostBatch, Registered, MappedFile, HostStream, ComputeStream, Error,
        Depth, Failure, Simulator);
    each!(copy: View<'static, f32>, Dtype, Cursor, DeviceKind, LinkModel);
}

#[test]
fn futures_are_owned_and_move() {
    each!(future: Transfer, Early, Ready, Readback<f32>, BatchReadback, HostTask<f32>);
    each!(sync: Transfer, Early, Ready, Readback<f32>, BatchReadback);
}

#[test]
fn streams_and_views_go_where_their_parts_go() {
    each!(send: ToDevice<Source>, ReadBack<Source>, UntilError<Source, Error>, View<'static, f32>, ViewMut<'static, f32>,
        HostView<'static, f32>, BufferedBy<futures::stream::Empty<Transfer>>);
    each!(unpin: ToDevice<Source>, ReadBack<Source>, UntilError<Source, Error>);
    each!(sync: HostGuard<'static, f32>);
    #[cfg(feature = "tokio")]
    {
        each!(send: inflight::Prefetch<Result<DeviceBatch, Error>>);
        each!(unpin: inflight::Prefetch<Result<DeviceBatch, Error>>);
        each!(clone: inflight::Prefetch<Result<DeviceBatch, Error>>);
    }
}

/// What a trainer in a task of its own needs: the whole future can be spawned.
#[test]
fn a_training_loop_can_be_spawned() {
    use futures::{StreamExt, TryStreamExt, stream};
    use inflight::BatchStreamExt;

    async fn train(device: Device) -> inflight::Result<usize> {
        let source = stream::iter((0..3_u8).map(|n| ("x", vec![n; 4])));
        let mut batches = source.to_device(&device).named("train").buffered(2);
        let mut count = 0;
        while let Some(batch) = batches.try_next().await? {
            let pinned = device.pinned::<f32, _>((2, 2)).await?;
            drop((batch, pinned));
            count += 1;
        }
        Ok(count)
    }
    fn spawnable<F: Future + Send + 'static>(future: F) -> F {
        future
    }
    let device = Device::host().unwrap();
    assert_eq!(futures::executor::block_on(spawnable(train(device))).unwrap(), 3);
}
