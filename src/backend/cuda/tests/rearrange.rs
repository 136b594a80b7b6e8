//! Rearrangements on the device, against the host's.

use std::sync::Arc;

use cudarc::driver::{result, sys};
use half::{bf16, f16};

use super::Bed;
use crate::backend::cuda::CudaQueue;
use crate::backend::queue::Driver;
use crate::backend::{Backend, HostEvent, HostQueue, Rearrangement, Severity, Space, StreamHandle};
use crate::batch::{Change, Normalization};
use crate::dtype::Dtype;

const DTYPES: [Dtype; 13] = [
    Dtype::Bool,
    Dtype::U8,
    Dtype::U16,
    Dtype::U32,
    Dtype::U64,
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::Bf16,
    Dtype::F32,
    Dtype::F64,
];

/// A shape, the axes of a dense array that its axes are, and which of them go backwards.
pub(super) type Order = (&'static [usize], &'static [usize], &'static [usize]);

/// Orders that take each way through the kernels.
const ORDERS: [Order; 9] = [
    (&[1], &[0], &[]),
    (&[5000], &[0], &[]),
    (&[37, 53], &[1, 0], &[]),
    (&[70, 33], &[1, 0], &[1]),
    (&[4, 40, 3, 50], &[3, 0, 2, 1], &[0, 2]),
    (&[2, 3, 16, 48], &[0, 2, 3, 1], &[]),
    (&[2, 16, 24, 3], &[0, 3, 1, 2], &[]),
    (&[6, 5, 4, 8], &[1, 0, 2, 3], &[]),
    (&[2, 3, 2, 3, 2, 3, 2, 5], &[7, 5, 3, 1, 6, 4, 2, 0], &[7]),
];

/// Bytes of elements: any at all, and first of all those where types end and roundings change.
fn content(dtype: Dtype, elements: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut any = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let reals =
        [0.0, -0.0, 0.5, -1.5, 2.5, 127.5, 255.9, 256.0, -129.0, 65_504.0, 65_520.0, -1e5, 3e9, -3e9, 1e19, 2e19]
            .into_iter()
            .chain([1e-8, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0 + 2_f64.powi(-11)])
            .chain([1.0 + 2_f64.powi(-8), 1.0 + 2_f64.powi(-8) + 2_f64.powi(-50), 9_223_372_036_854_775_807.0]);
    let mut bytes = Vec::new();
    for real in reals {
        match dtype {
            Dtype::F16 => bytes.extend_from_slice(&f16::from_f64(real).to_le_bytes()),
            Dtype::Bf16 => bytes.extend_from_slice(&bf16::from_f64(real).to_le_bytes()),
            Dtype::F32 => bytes.extend_from_slice(&(real as f32).to_le_bytes()),
            Dtype::F64 => bytes.extend_from_slice(&real.to_le_bytes()),
            _ => {}
        }
    }
    // Just beside ties of the shorter floats, by less than an f64 tells.
    let beside = [(1_u64 << 63) + (1 << 55) + 1, (1 << 62) + (1 << 54) + 1, (1 << 62) + (1 << 51) - 1, u64::MAX];
    if matches!(dtype, Dtype::U64 | Dtype::I64) {
        bytes.extend(beside.into_iter().flat_map(u64::to_le_bytes));
    }
    while bytes.len() < elements * dtype.size() {
        // Some of few bits, so that wide integers are small ones, too.
        let (bits, kept) = (any(), any() % 64);
        let value = ((bits as i64) >> kept) as u64;
        let value = if dtype == Dtype::Bool { value & 1 } else { value };
        bytes.extend_from_slice(&value.to_le_bytes()[..dtype.size()]);
    }
    bytes.truncate(elements * dtype.size());
    bytes
}

/// A dense array's elements in that order, at addresses that begin with `src`.
pub(super) fn rearrangement(
    (shape, axes, backwards): Order,
    stored: Dtype,
    change: Option<Change>,
) -> (Rearrangement, isize) {
    let mut dense = vec![0; shape.len()];
    let mut step = 1;
    let extents: Vec<usize> = {
        let mut extents = vec![0; shape.len()];
        axes.iter().zip(shape).for_each(|(axis, extent)| extents[*axis] = *extent);
        extents
    };
    for (stride, extent) in dense.iter_mut().zip(&extents).rev() {
        (*stride, step) = (step, step * *extent as isize);
    }
    let mut first = 0;
    let strides = axes.iter().enumerate().map(|(number, axis)| {
        if backwards.contains(&number) {
            first += (shape[number] as isize - 1) * dense[*axis];
            return -dense[*axis];
        }
        dense[*axis]
    });
    let strides = strides.collect();
    let (src, dst) = (std::ptr::null(), std::ptr::null_mut());
    (Rearrangement { src, dst, stored, shape: shape.into(), strides, change }, first)
}

/// The same rearrangement of the same bytes, on the device and on the host.
fn both(bed: &Bed, (plan, first): (Rearrangement, isize), content: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let bytes = plan.bytes();
    let moved = |start: *const u8| start.wrapping_offset(first * plan.stored.size() as isize);
    let (mut expected, queue) =
        (vec![0; bytes], HostQueue::new("inflight-test", Driver::Thread { link: None, eager: false }));
    let (queue, event) = (queue.unwrap(), Arc::new(HostEvent::default()));
    let host = Rearrangement { src: moved(content.as_ptr()), dst: expected.as_mut_ptr(), ..plan.clone() };
    queue.rearrange(host, Vec::new());
    queue.record(&event);
    event.block_until(event.latest());

    let stream = bed.backend.streams().relayout.clone();
    let [src, dst] = [content.len(), bytes].map(|bytes| bed.alloc(Space::Device, bytes));
    bed.send(&stream, content, src);
    let device = Rearrangement { src: moved(src), dst, ..plan };
    // SAFETY: both ends live as long as the bed.
    unsafe { bed.backend.rearrange(&stream, device, &[]) }.unwrap();
    (bed.content(&stream, dst, bytes), expected)
}

/// Whether both are the same elements: all that are NaN are taken for the same.
fn are_same(dtype: Dtype, found: &[u8], expected: &[u8]) -> bool {
    let is_nan = |bytes: &[u8]| match dtype {
        Dtype::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Dtype::Bf16 => bf16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Dtype::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Dtype::F64 => f64::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        _ => false,
    };
    let each = |bytes| <[u8]>::chunks_exact(bytes, dtype.size());
    found.len() == expected.len() && each(found).zip(each(expected)).all(|(a, b)| a == b || is_nan(a) && is_nan(b))
}

fn elements(order: Order) -> usize {
    order.0.iter().product()
}

#[test]
fn all_types_in_all_orders_are_as_on_the_host() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    for (order, dtype) in ORDERS.into_iter().flat_map(|order| DTYPES.map(|dtype| (order, dtype))) {
        let (found, expected) = both(&bed, rearrangement(order, dtype, None), &content(dtype, elements(order)));
        assert!(found == expected, "{order:?} {dtype}");
    }
}

#[test]
fn all_casts_are_as_on_the_host() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    // One that is read in order, one in squares.
    for order in [ORDERS[1], ORDERS[3]] {
        for (stored, wanted) in DTYPES.into_iter().flat_map(|stored| DTYPES.map(|wanted| (stored, wanted))) {
            let content = content(stored, elements(order));
            let (found, expected) = both(&bed, rearrangement(order, stored, Some(Change::Cast(wanted))), &content);
            let differs = found.chunks_exact(wanted.size()).zip(expected.chunks_exact(wanted.size()));
            let first = differs.into_iter().position(|(found, expected)| !are_same(wanted, found, expected));
            assert!(first.is_none(), "{order:?} {stored} to {wanted}: element {first:?}");
        }
    }
}

#[test]
fn images_are_normalized_as_on_the_host() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let images: [(Order, Option<usize>); 8] = [
        (ORDERS[6], Some(1)),
        (ORDERS[5], Some(3)),
        (ORDERS[5], Some(2)),
        (ORDERS[2], Some(0)),
        (ORDERS[2], Some(1)),
        (ORDERS[4], Some(2)),
        (ORDERS[1], None),
        (ORDERS[0], Some(0)),
    ];
    for ((order, axis), dtype) in
        images.into_iter().flat_map(|image| [Dtype::F32, Dtype::F16, Dtype::Bf16].map(|dtype| (image, dtype)))
    {
        let channels = axis.map_or(1, |axis| order.0[axis]);
        let mean = (0..channels).map(|channel| 0.485 - 0.013 * channel as f32).collect();
        let std = (0..channels).map(|channel| 0.229 + 0.0041 * channel as f32).collect();
        let by = Normalization { scale: 1.0 / 255.0, mean, std, axis, dtype };
        let content = content(Dtype::U8, elements(order));
        let (found, expected) = both(&bed, rearrangement(order, Dtype::U8, Some(Change::Normalize(by))), &content);
        assert!(found == expected, "{order:?} {axis:?} {dtype}");
    }
}

#[test]
fn repeated_and_empty_axes_are_as_on_the_host() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let content = content(Dtype::F32, 64);
    for (shape, strides) in
        [([64, 40], [1, 0]), ([40, 64], [0, 1]), ([40, 64], [0, 0]), ([0, 64], [64, 1]), ([7, 9], [-7, 1])]
    {
        let first = if strides[0] < 0 { 6 * 7 } else { 0 };
        let (shape, strides) = (shape.as_slice().into(), strides.as_slice().into());
        let (src, dst) = (std::ptr::null(), std::ptr::null_mut());
        let plan = Rearrangement { src, dst, stored: Dtype::F32, shape, strides, change: None };
        let launches = bed.calls(["cuLaunchKernel"]);
        let (found, expected) = both(&bed, (plan.clone(), first), &content);
        assert!(found == expected, "{plan:?}");
        if expected.is_empty() {
            assert_eq!(bed.calls(["cuLaunchKernel"]), launches, "there is nothing to do");
        }
    }
}

#[test]
fn a_stream_that_is_being_captured_is_refused() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let theirs = bed.backend.context.theirs.new_stream().unwrap();
    let stream = StreamHandle::Cuda(CudaQueue::theirs(&theirs));
    let before = bed.calls(["cuLaunchKernel"]);
    let (plan, _) = rearrangement(ORDERS[1], Dtype::U8, None);
    let [src, dst] = [0, 0].map(|_| bed.alloc(Space::Device, plan.bytes()));
    theirs.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    // SAFETY: both ends live as long as the bed.
    let refused = unsafe { bed.backend.rearrange(&stream, Rearrangement { src, dst, ..plan }, &[]) };
    assert_eq!(refused.unwrap_err().severity(), Severity::Later);
    assert_eq!(bed.calls(["cuLaunchKernel"]), before);
    // SAFETY: the capture of this stream was begun above, by this thread.
    unsafe { result::stream::end_capture(theirs.cu_stream()) }.unwrap();
}
