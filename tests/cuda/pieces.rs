//! Copies of many pieces of which the driver refuses one: those before it are under way, and keep what they touch.

use std::sync::Arc;

use futures::executor::block_on;
use inflight::{Dtype, FetchKernels, HostArray};
use ndarray::Array3;

use crate::rig::{Rig, StandIn, eventually, pattern};

const ROW: usize = 64 << 10;
const REFUSED: i32 = 1;

/// Memory that tells whether it is still kept.
struct Source(Vec<u8>, #[expect(dead_code, reason = "counted")] Arc<()>);

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Has the driver refuse copies of many pieces in one call, and of the calls for one each the `kth`.
fn refuse_rows(stand_in: &StandIn, kth: u64) {
    for function in ["cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"] {
        stand_in.fail(Some(function), 1, REFUSED);
    }
    stand_in.fail(Some("cuMemcpyHtoDAsync_v2"), kth, REFUSED);
}

/// Sends an array; operations stay pending, and so does what was enqueued of it.
fn fails(rig: &Rig, stand_in: &StandIn, array: HostArray) {
    stand_in.manual(true);
    assert!(block_on(async { rig.device.transfer(("x", array)).await?.await }).is_err());
    assert!(stand_in.counter("pending") > 0, "pieces before the one that was refused are under way");
}

#[test]
fn rows_that_are_under_way_keep_their_source_i1() {
    for (rows, kth) in [(8, 4), (200, 40)] {
        let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Never)) else { return };
        let Some(stand_in) = rig.stand_in else { return };
        let kept = Arc::new(());
        let memory = HostArray::from_owner::<u8>(Source(pattern(1, 40 * ROW), kept.clone()), (40, ROW)).unwrap();
        let registered = block_on(rig.device.register(memory)).unwrap();
        let view = registered.select_rows((0..rows).map(|n| n * 7 % 40).collect::<Vec<_>>()).unwrap();
        drop(registered);
        refuse_rows(stand_in, kth);
        fails(&rig, stand_in, view);
        // Whoever would drop it would have done so when these are served.
        (0..4).for_each(|n| drop(block_on(rig.device.register(pattern(n, 4 << 20))).unwrap()));
        assert_eq!(Arc::strong_count(&kept), 2, "{rows} rows");
        stand_in.manual(false);
        eventually("it is dropped", || Arc::strong_count(&kept) == 1);
        rig.finish();
    }
}

#[test]
fn pieces_that_are_under_way_keep_their_block_i3() {
    let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Never)) else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let volume = Array3::from_shape_fn((70, 80, 90), |(z, y, x)| (z * 7200 + y * 90 + x) as u32);
    let registered = block_on(rig.device.register(volume)).unwrap();
    let boxes = registered.crops([[0, 0, 0], [1, 2, 3], [9, 9, 9], [30, 7, 20]], [32, 32, 32]).unwrap();
    stand_in.fail(Some("cuMemcpy3DAsync_v2"), 3, REFUSED);
    fails(&rig, stand_in, boxes);
    let stats = rig.device.stats();
    assert!(stats.device_used + stats.device_quarantined as usize > 0, "copies still write to it");
    stand_in.manual(false);
    rig.finish();
}

#[test]
fn pieces_that_are_under_way_spoil_nothing_that_comes_later_i3() {
    let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Never)) else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let memory = HostArray::from_bytes(pattern(1, 40 * ROW), Dtype::U8, (40, ROW)).unwrap();
    let registered = block_on(rig.device.register(memory)).unwrap();
    let view = registered.select_rows((0..100).map(|n| n * 7 % 40).collect::<Vec<_>>()).unwrap();
    // Its block is idle then, and the next one that is asked for.
    drop(rig.batch(0, 100 * ROW));
    block_on(rig.device.drain()).unwrap();
    let mut slice = rig.stream.alloc_zeros::<u8>(100 * ROW).unwrap();
    rig.fill(&rig.stream, &mut slice, 9);
    rig.stream.synchronize().unwrap();
    refuse_rows(stand_in, 60);
    fails(&rig, stand_in, view);
    let read = block_on(rig.device.read_wait(&slice, &rig.stream)).unwrap();
    while stand_in.advance_stream(rig.stream.cu_stream().addr(), 1) > 0 {}
    stand_in.manual(false);
    assert!(block_on(read).unwrap().iter().all(|byte| *byte == 9), "rows of the batch that failed");
    rig.finish();
}
