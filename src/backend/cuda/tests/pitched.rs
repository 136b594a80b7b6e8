//! Copies of rows, against the same copies by hand, and the calls that they are made with.

use cudarc::driver::{result, sys};

use super::Bed;
use crate::backend::cuda::CudaQueue;
use crate::backend::{Backend, Fault, Pitched, Severity, Space, StreamHandle};

pub(super) const CALLS: [&str; 5] =
    ["cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2"];

/// Width, rows, pitch, planes, height.
pub(super) type Shape = [usize; 5];

fn span([width, rows, pitch, planes, height]: Shape) -> usize {
    ((planes - 1) * height + rows - 1) * pitch + width
}

/// Copies pieces of those shapes, which lie one behind the other with a gap; what comes out, and what should.
fn copied(bed: &Bed, stream: &StreamHandle, shapes: &[Shape]) -> Result<(Vec<u8>, Vec<u8>), Fault> {
    const GAP: usize = 5;
    let room: usize = shapes.iter().map(|shape| span(*shape) + GAP).sum();
    let content: Vec<u8> = (0..room).map(|place| (place * 7 + place / 251) as u8).collect();
    let total = shapes.iter().map(|[width, rows, _, planes, _]| width * rows * planes).sum();
    let (src, dst) = (bed.pinned(&content), bed.alloc(Space::Device, total));
    let (mut from, mut to, mut expected, mut copies) = (0, 0, Vec::new(), Vec::new());
    for shape @ [width, rows, pitch, planes, height] in shapes.iter().copied() {
        let (src, dst) = (src.wrapping_add(from), dst.wrapping_add(to));
        copies.push(Pitched { dst, src, width, rows, pitch, planes, height });
        for row in (0..planes).flat_map(|plane| (0..rows).map(move |row| plane * height + row)) {
            expected.extend_from_slice(&content[from + row * pitch..][..width]);
        }
        (from, to) = (from + span(shape) + GAP, to + width * rows * planes);
    }
    // SAFETY: both ends live as long as the bed, and have room for all rows.
    unsafe { bed.backend.copy_pitched(stream, &copies, &[]) }?;
    Ok((bed.content(stream, dst, total), expected))
}

/// The same, on our copy stream, with the calls that it took.
pub(super) fn calls_for(bed: &Bed, shapes: &[Shape]) -> Option<[u64; 5]> {
    let before = bed.calls(CALLS);
    let (found, expected) = copied(bed, &bed.backend.streams().copy.clone(), shapes).unwrap();
    assert!(found == expected, "{shapes:?}");
    Some(std::array::from_fn(|call| bed.calls(CALLS).unwrap_or_default()[call] - before.unwrap_or_default()[call]))
        .filter(|_| before.is_some())
}

#[test]
fn rows_and_planes_arrive_dense_in_one_call_each() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    for (shape, wanted) in [
        ([100, 1, 100, 1, 1], [0, 0, 1, 0, 0]),
        ([10, 7, 10, 3, 7], [0, 0, 1, 0, 0]),
        ([10, 7, 33, 1, 7], [0, 0, 0, 1, 0]),
        ([10, 7, 33, 3, 7], [0, 0, 0, 1, 0]),
        ([10, 1, 33, 3, 7], [0, 0, 0, 1, 0]),
        ([10, 7, 33, 3, 9], [0, 0, 0, 0, 1]),
        ([64, 64, 512, 64, 512], [0, 0, 0, 0, 1]),
        ([10, 7, 10, 3, 9], [0, 0, 0, 0, 1]),
    ] {
        if let Some(calls) = calls_for(&bed, &[shape]) {
            assert_eq!(calls, wanted, "{shape:?}");
        }
    }
}

#[test]
fn plain_copies_go_in_one_call_and_others_one_by_one() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let plain: Vec<Shape> = (1..=300).map(|width| [width, 1, width, 1, 1]).collect();
    let calls = calls_for(&bed, &plain);
    assert!(calls.is_none_or(|calls| calls == [1, 0, 0, 0, 0]), "{calls:?}");
    let calls = calls_for(&bed, &[[9, 1, 9, 1, 1], [0, 1, 0, 1, 1], [4, 2, 6, 1, 2], [4, 2, 6, 2, 3]]);
    assert!(calls.is_none_or(|calls| calls == [0, 0, 1, 1, 1]), "{calls:?}");
}

#[test]
fn rows_further_apart_than_the_device_takes_are_copied_one_by_one() {
    const MOST_PITCH: i32 = 11;
    let Some(bed) = Bed::new(|stand_in| stand_in.attribute(None, MOST_PITCH, 1000)) else { return };
    let calls = calls_for(&bed, &[[10, 3, 1001, 2, 4], [10, 3, 1000, 2, 4]]);
    assert!(calls.is_none_or(|calls| calls == [0, 0, 6, 0, 1]), "{calls:?}");
    // The rows of a plane each, too, where that makes them longer.
    let calls = calls_for(&bed, &[[10, 1, 600, 2, 2]]);
    assert!(calls.is_none_or(|calls| calls == [0, 0, 2, 0, 0]), "{calls:?}");
}

#[test]
fn a_batch_that_the_driver_refuses_is_not_tried_again() {
    let two = [[9, 1, 9, 1, 1], [5, 1, 5, 1, 1]];
    for code in [1, 801] {
        let Some(bed) = Bed::new(|_| {}) else { return };
        let Some(stand_in) = bed.stand_in else { return };
        stand_in.fail(Some(CALLS[0]), 1, code);
        assert_eq!(calls_for(&bed, &two), Some([1, 0, 2, 0, 0]), "code {code}");
        assert_eq!(calls_for(&bed, &two), Some([0, 0, 2, 0, 0]), "code {code}, the second time");
    }
}

#[test]
fn a_batch_that_fails_with_its_copies_is_an_error_and_tried_again() {
    let two = [[9, 1, 9, 1, 1], [5, 1, 5, 1, 1]];
    let Some(bed) = Bed::new(|_| {}) else { return };
    let Some(stand_in) = bed.stand_in else { return };
    let stream = bed.backend.streams().copy.clone();
    stand_in.fail(Some(CALLS[0]), 1, 2);
    let fault = copied(&bed, &stream, &two).unwrap_err();
    assert_eq!(fault, Fault::new(2, CALLS[0]));
    stand_in.fail(Some(CALLS[0]), 1, 1);
    stand_in.fail(Some(CALLS[2]), 2, 1);
    let fault = copied(&bed, &stream, &two).unwrap_err();
    assert_eq!(fault, Fault::new(1, CALLS[2]));
    bed.finish(&stream);
    assert_eq!(calls_for(&bed, &two), Some([1, 0, 0, 0, 0]));
}

#[test]
fn the_legacy_default_stream_takes_plain_copies_one_by_one() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let theirs = bed.backend.context.theirs.default_stream();
    let stream = StreamHandle::Cuda(CudaQueue::theirs(&theirs));
    let (found, expected) = copied(&bed, &stream, &[[9, 1, 9, 1, 1], [5, 1, 5, 1, 1]]).unwrap();
    assert_eq!(found, expected);
    if let Some(calls) = bed.calls(CALLS) {
        assert_eq!(calls, [0, 0, 2, 0, 0]);
    }
}

#[test]
fn a_stream_that_is_being_captured_is_refused() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let theirs = bed.backend.context.theirs.new_stream().unwrap();
    let stream = StreamHandle::Cuda(CudaQueue::theirs(&theirs));
    theirs.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let refused = copied(&bed, &stream, &[[9, 1, 9, 1, 1], [5, 1, 5, 1, 1]]).unwrap_err();
    assert_eq!(refused.severity(), Severity::Later);
    if let Some(calls) = bed.calls(CALLS) {
        assert_eq!(calls, [0; 5], "nothing was enqueued");
    }
    // SAFETY: the capture of this stream was begun above, by this thread.
    unsafe { result::stream::end_capture(theirs.cu_stream()) }.unwrap();
}
