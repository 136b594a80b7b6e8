//! What the device brings into order, casts or normalizes, on a driver: as the host does it, bit for bit.

use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};
use half::{bf16, f16};
use inflight::{BatchStreamExt, DeviceBatch, Dtype, Element, FetchKernels, HostArray, HostBatch, Relayout};
use ndarray::{ArrayD, s};

use crate::rig::Rig;

const SHAPE: [usize; 4] = [3, 40, 36, 7];

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

/// Any bits at all; of a few hundred elements each, wide integers are small ones.
fn array(dtype: Dtype) -> HostArray {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let count = SHAPE.iter().product::<usize>();
    let mut bytes = Vec::with_capacity(count * 8);
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Now and then just beside a tie of bfloat16, by less than an f64 tells.
        let tie = ((1_u64 << 63 | 1 << 55) + 1) >> (state >> 61 & 1);
        let value = if state % 61 == 60 { tie } else { (state.cast_signed() >> (state % 61)).cast_unsigned() };
        let value = if dtype == Dtype::Bool { value & 1 } else { value };
        bytes.extend_from_slice(&value.to_le_bytes()[..dtype.size()]);
    }
    HostArray::from_bytes(bytes, dtype, SHAPE).unwrap()
}

/// Orders that take each way through the kernels.
fn views(array: &HostArray) -> Vec<HostArray> {
    vec![
        array.permuted_axes([0, 3, 1, 2]).unwrap(),
        array.permuted_axes([2, 1, 0, 3]).unwrap(),
        array.permuted_axes([0, 2, 3, 1]).unwrap().slice(s![.., ..;-1, .., ..]).unwrap(),
        array.slice(s![..;-1, .., ..;-1, ..;-1]).unwrap(),
    ]
}

/// Sends batches so that the device does what can be done there.
fn sent(rig: &Rig, batch: HostBatch) -> DeviceBatch {
    let source = stream::iter([batch]).to_device(&rig.device).relayout(Relayout::Device);
    block_on(source.buffered(1).try_next()).unwrap().unwrap()
}

/// Whether a field has arrived as the host would have made it; `bits` are the same for all that is NaN.
fn is_as_on_the_host<T: Element, B: PartialEq>(
    batch: &DeviceBatch,
    name: &str,
    host: &HostArray,
    bits: impl Fn(T) -> B,
) -> bool {
    let found = block_on(batch.field(name).unwrap().read_back::<T>().unwrap()).unwrap();
    let expected: ArrayD<T> = host.to_array().unwrap();
    found.shape() == expected.shape() && found.iter().zip(&expected).all(|(a, b)| bits(*a) == bits(*b))
}

/// All views of all types, cast to `T` on the device.
fn all_cast_to<T: Element, B: PartialEq>(rig: &Rig, bits: impl Fn(T) -> B + Copy) {
    for stored in DTYPES {
        let cast: Vec<_> = views(&array(stored)).iter().map(HostArray::cast::<T>).collect();
        let fields = cast.iter().enumerate().map(|(number, view)| (number.to_string(), view.clone()));
        let batch = sent(rig, HostBatch::from_fields(fields));
        for (number, view) in cast.iter().enumerate() {
            let told = &batch.explain().fields[number];
            assert!(told.is_rearranged, "{told}");
            assert!(is_as_on_the_host(&batch, &number.to_string(), view, bits), "{stored} to {}, {number}", T::DTYPE);
        }
    }
}

#[test]
fn all_types_cast_to_all_types_in_several_orders() {
    let Some(rig) = Rig::new() else { return };
    all_cast_to::<bool, _>(&rig, |value| value);
    all_cast_to::<u8, _>(&rig, |value| value);
    all_cast_to::<u16, _>(&rig, |value| value);
    all_cast_to::<u32, _>(&rig, |value| value);
    all_cast_to::<u64, _>(&rig, |value| value);
    all_cast_to::<i8, _>(&rig, |value| value);
    all_cast_to::<i16, _>(&rig, |value| value);
    all_cast_to::<i32, _>(&rig, |value| value);
    all_cast_to::<i64, _>(&rig, |value| value);
    all_cast_to::<f16, _>(&rig, |value| (!value.is_nan()).then_some(value.to_bits()));
    all_cast_to::<bf16, _>(&rig, |value| (!value.is_nan()).then_some(value.to_bits()));
    all_cast_to::<f32, _>(&rig, |value| (!value.is_nan()).then_some(value.to_bits()));
    all_cast_to::<f64, _>(&rig, |value| (!value.is_nan()).then_some(value.to_bits()));
    rig.finish();
}

#[test]
fn images_are_normalized_bit_for_bit() {
    let Some(rig) = Rig::new() else { return };
    let images = array(Dtype::U8);
    let (mean, std) = ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7_f32], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3_f32]);
    for (order, axes) in [("first", [0, 3, 1, 2]), ("last", [0, 1, 2, 3]), ("turned", [3, 2, 1, 0])] {
        let whole = |by: HostArray| by.permuted_axes(axes).unwrap();
        let (single, half, brain) = (
            whole(images.normalized::<f32>(1.0 / 255.0, mean, std).unwrap()),
            whole(images.normalized::<f16>(1.0 / 255.0, mean, std).unwrap()),
            whole(images.normalized::<bf16>(1.0 / 255.0, mean, std).unwrap()),
        );
        let batch = HostBatch::new().with("s", single.clone()).with("h", half.clone()).with("b", brain.clone());
        let batch = sent(&rig, batch);
        assert!(batch.explain().fields.iter().all(|field| field.is_rearranged), "{}", batch.explain());
        assert!(is_as_on_the_host(&batch, "s", &single, f32::to_bits), "channels {order}");
        assert!(is_as_on_the_host(&batch, "h", &half, f16::to_bits), "channels {order}");
        assert!(is_as_on_the_host(&batch, "b", &brain, bf16::to_bits), "channels {order}");
    }
    rig.finish();
}

#[test]
fn rows_and_boxes_of_registered_memory_arrive_by_few_calls() {
    const CALLS: [&str; 3] = ["cuMemcpyBatchAsync_v2", "cuMemcpy3DAsync_v2", "cuMemcpyHtoDAsync_v2"];
    let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Never)) else { return };
    let volume = ndarray::Array::from_shape_fn((70, 80, 9000), |(z, y, x)| (z * 7 + y * 3 + x + x / 251) as u8);
    let registered = block_on(rig.device.register(volume)).unwrap();
    let rows = registered.select_rows([5, 0, 69, 5, 3]).unwrap();
    let part = registered.slice(s![3..67, 5..69, 20..84]).unwrap();
    let count = || rig.stand_in.map(|stand_in| CALLS.map(|name| stand_in.calls(Some(name))));
    let before = count();
    let batch = sent(&rig, HostBatch::new().with("rows", rows.clone()).with("part", part.clone()));
    if let (Some(before), Some(after)) = (before, count()) {
        let calls: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(calls, [1, 1, 0]);
    }
    assert!(is_as_on_the_host(&batch, "rows", &rows, |value: u8| value));
    assert!(is_as_on_the_host(&batch, "part", &part, |value: u8| value));
    drop(batch);
    rig.finish();
}

#[test]
fn a_fault_of_a_kernel_or_of_rows_fails_that_batch_alone() {
    let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Never)) else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let volume = ndarray::Array::from_shape_fn((70, 80, 9000), |(z, y, x)| (z * 7 + y * 3 + x) as u8);
    let registered = block_on(rig.device.register(volume)).unwrap();
    let cases = [
        ("cuLaunchKernel", array(Dtype::F32).permuted_axes([0, 3, 1, 2]).unwrap()),
        ("cuMemcpyBatchAsync_v2", registered.select_rows([5, 0, 69, 5, 3]).unwrap()),
        ("cuMemcpy3DAsync_v2", registered.slice(s![3..67, 5..69, 20..84]).unwrap()),
    ];
    for (function, view) in cases {
        stand_in.fail(Some(function), 1, 2);
        let source = stream::iter([("x", view.clone())]).to_device(&rig.device).relayout(Relayout::Device);
        let error = block_on(source.buffered(1).try_next()).unwrap_err();
        assert!(!error.is_fatal() && error.to_string().contains(function), "{error}");
        assert_eq!(stand_in.faults_left(), 0);
        let batch = sent(&rig, HostBatch::new().with("x", view));
        assert_eq!(batch.explain().fields[0].is_rearranged, function == "cuLaunchKernel");
    }
    rig.finish();
}

#[test]
fn rows_of_which_some_were_enqueued_are_kept_until_those_are_done_i1_i3() {
    let Some(rig) = Rig::with(|builder| builder.memory_bytes(64 << 20)) else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let rows = ndarray::Array::from_shape_fn((8, 40 << 10), |(row, at)| (row + at) as u8);
    let registered = block_on(rig.device.register(rows)).unwrap();
    let view = registered.select_rows([5, 0, 7, 5, 3]).unwrap();
    drop(sent(&rig, HostBatch::new().with("x", view.clone())));
    block_on(rig.device.drain()).unwrap();
    // The call for many is refused; of the copies one by one the third is, behind a link that stands still.
    stand_in.manual(true);
    stand_in.fail(Some("cuMemcpyBatchAsync_v2"), 1, 1);
    stand_in.fail(Some("cuMemcpyHtoDAsync_v2"), 3, 2);
    let mut transfer = rig.device.try_transfer(("x", view)).unwrap();
    crate::rig::eventually("it failed", || {
        futures::FutureExt::now_or_never(&mut transfer).is_some_and(|result| {
            let error = result.unwrap_err();
            assert!(error.take_batch().is_none(), "two rows are on their way: {error}");
            true
        })
    });
    drop(transfer);
    drop(registered);
    let stats = rig.device.stats();
    assert!(stats.device_used > 0 && stats.device_quarantined == 0, "copies are going on into the block");
    stand_in.manual(false);
    rig.finish();
}
