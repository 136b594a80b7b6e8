//! Arrays whose memory is in another order than they are, or of another type: where they are brought into order, and that
//! they arrive right whatever the way.

use futures::{StreamExt, TryStreamExt, stream};
use half::bf16;
use inflight::sim::PendingStream;
use inflight::{BatchStreamExt, Device, Error, FetchKernels, HostArray, HostBatch, Relayout, Route, batch};
use ndarray::{Array, Array4, ArrayD, s};

use crate::bed::{by_hand, elements, on_each, on_host};

const ALL: [Relayout; 4] = [Relayout::Auto, Relayout::Host, Relayout::Device, Relayout::Preserve];

/// Large enough for a device to be asked.
fn volume() -> Array4<f32> {
    Array::from_shape_fn((8, 20, 24, 16), |(a, b, c, d)| (a * 100_000 + b * 1000 + c * 20 + d) as f32)
}

/// The views that a layout can be bad in, and how a user would write them with ndarray.
fn views() -> Vec<(&'static str, HostArray, ArrayD<f32>)> {
    let (host, own) = (HostArray::from(volume()), volume());
    let crops = host.select_rows([5, 0, 5, 7]).unwrap();
    vec![
        (
            "transposed",
            host.permuted_axes([3, 1, 2, 0]).unwrap(),
            own.view().permuted_axes([3, 1, 2, 0]).to_owned().into_dyn(),
        ),
        (
            "channels first",
            host.permuted_axes([0, 3, 1, 2]).unwrap(),
            own.view().permuted_axes([0, 3, 1, 2]).to_owned().into_dyn(),
        ),
        (
            "reversed",
            host.slice(s![..;-1, ..;-1, ..;-1, ..;-1]).unwrap(),
            own.slice(s![..;-1, ..;-1, ..;-1, ..;-1]).to_owned().into_dyn(),
        ),
        (
            "a part",
            host.slice(s![1..7, 2..19;2, .., 3..]).unwrap(),
            own.slice(s![1..7, 2..19;2, .., 3..]).to_owned().into_dyn(),
        ),
        ("rows", crops.clone(), own.select(ndarray::Axis(0), &[5, 0, 5, 7]).into_dyn()),
        (
            "rows, transposed",
            crops.permuted_axes([2, 3, 0, 1]).unwrap(),
            own.select(ndarray::Axis(0), &[5, 0, 5, 7]).permuted_axes([2, 3, 0, 1]).into_dyn(),
        ),
        (
            "every other",
            host.slice(s![.., .., .., ..;2]).unwrap().permuted_axes([1, 0, 3, 2]).unwrap(),
            own.slice(s![.., .., .., ..;2]).permuted_axes([1, 0, 3, 2]).to_owned().into_dyn(),
        ),
    ]
}

#[test]
fn every_view_arrives_as_ndarray_has_it_whatever_the_way() {
    for relayout in ALL {
        on_each(
            |builder| builder.relayout(relayout).staging_bytes(64 << 10),
            |bed| async move {
                let registered = bed.device.register(volume()).await.unwrap();
                for (name, view, expected) in views() {
                    let batch = bed.device.transfer(("x", view)).await.unwrap().await.unwrap();
                    assert_eq!(on_host::<f32>(&batch, "x").await, expected, "{name}, {relayout:?}");
                }
                let view = registered.permuted_axes([3, 1, 2, 0]).unwrap();
                let batch = bed.device.transfer(("x", view)).await.unwrap().await.unwrap();
                let expected = volume().permuted_axes([3, 1, 2, 0]).into_dyn();
                assert_eq!(on_host::<f32>(&batch, "x").await, expected, "registered, {relayout:?}");
                let back = batch.field("x").unwrap().read_back::<f32>().unwrap().await.unwrap();
                assert_eq!(back.view(), expected, "read back, {relayout:?}");
            },
        );
    }
}

#[test]
fn casts_and_normalized_images_are_the_same_on_the_host_and_on_the_device() {
    let images = Array::from_shape_fn((6, 40, 48, 3), |(n, y, x, c)| (n * 91 + y * 17 + x * 5 + c * 77) as u8);
    let (mean, std) = ([0.485_f32, 0.456, 0.406], [0.229_f32, 0.224, 0.225]);
    let formula = |byte: u8, channel: usize| (f32::from(byte) * (1.0 / 255.0) - mean[channel]) / std[channel];
    let expected = Array::from_shape_fn((6, 3, 40, 48), |(n, c, y, x)| formula(images[[n, y, x, c]], c)).into_dyn();
    let narrow = expected.mapv(bf16::from_f32);
    for relayout in ALL {
        let (images, expected, narrow) = (&images, &expected, &narrow);
        on_each(
            |builder| builder.relayout(relayout),
            |bed| async move {
                let host = HostArray::from(images.clone());
                let ready =
                    host.normalized::<f32>(1.0 / 255.0, mean, std).unwrap().permuted_axes([0, 3, 1, 2]).unwrap();
                let first = host.permuted_axes([0, 3, 1, 2]).unwrap();
                let halves = first.normalized::<bf16>(1.0 / 255.0, mean, std).unwrap();
                let batch = batch! {
                    ready: ready,
                    halves: halves,
                    wide: host.cast::<f64>(),
                    small: HostArray::from(volume()).cast::<i8>(),
                };
                let batch = bed.device.transfer(batch).await.unwrap().await.unwrap();
                let bits = |array: ArrayD<f32>| array.mapv(f32::to_bits);
                assert_eq!(bits(on_host::<f32>(&batch, "ready").await), bits(expected.clone()), "{relayout:?}");
                assert_eq!(on_host::<bf16>(&batch, "halves").await, *narrow, "{relayout:?}");
                assert_eq!(on_host::<f64>(&batch, "wide").await, images.mapv(f64::from).into_dyn(), "{relayout:?}");
                let small = volume().mapv(|value| value as i8).into_dyn();
                assert_eq!(on_host::<i8>(&batch, "small").await, small, "{relayout:?}");
            },
        );
    }
}

#[test]
fn rows_of_registered_memory_need_no_staging() {
    on_each(
        |builder| builder.fetch_kernels(FetchKernels::Never),
        |bed| async move {
            let images = Array::from_shape_fn((40, 40 << 10), |(row, at)| (row * 7 + at / 251 + at) as u8);
            let registered = bed.device.register(images.clone()).await.unwrap();
            let picked: Vec<_> = (0..600).map(|n| n * 7 % 40).collect();
            let before = bed.device.stats().bytes_staged;
            let batch = batch! { rows: registered.select_rows(&picked).unwrap() };
            let told = bed.device.explain(&batch).unwrap();
            assert_eq!((told.fields[0].route, told.fields[0].pieces), (Route::Rows, 600));
            let batch = bed.device.transfer(batch).await.unwrap().await.unwrap();
            assert_eq!(batch.explain().fields, told.fields);
            assert_eq!(bed.device.stats().bytes_staged, before);
            let expected = images.select(ndarray::Axis(0), &picked).into_dyn();
            assert_eq!(on_host::<u8>(&batch, "rows").await, expected);
        },
    );
}

#[test]
fn boxes_of_a_registered_volume_need_no_staging() {
    on_each(
        |builder| builder.fetch_kernels(FetchKernels::Never),
        |bed| async move {
            let volume = Array::from_shape_fn((70, 80, 90), |(z, y, x)| (z * 7200 + y * 90 + x) as u32);
            let registered = bed.device.register(volume.clone()).await.unwrap();
            let view = registered.slice(s![3..67, 5..69, 20..84]).unwrap();
            let told = bed.device.explain(&("x", view.clone()).into()).unwrap();
            assert_eq!((told.fields[0].route, told.fields[0].pieces, told.fields[0].staged_bytes), (Route::Rows, 1, 0));
            let batch = bed.device.transfer(("x", view)).await.unwrap().await.unwrap();
            assert_eq!(on_host::<u32>(&batch, "x").await, volume.slice(s![3..67, 5..69, 20..84]).to_owned().into_dyn());
        },
    );
}

#[test]
fn preserved_memory_is_sent_as_it_lies_and_tells_its_strides() {
    on_each(
        |builder| builder,
        |bed| async move {
            let view = HostArray::from(volume()).permuted_axes([0, 3, 1, 2]).unwrap();
            let source = stream::iter([("x", view)]).to_device(&bed.device).relayout(Relayout::Preserve);
            let batch = source.buffered(1).try_next().await.unwrap().unwrap();
            let field = batch.field("x").unwrap();
            assert_eq!((field.shape(), field.strides()), (&[8, 16, 20, 24][..], vec![7680, 1, 384, 16]));
            let expected = volume().permuted_axes([0, 3, 1, 2]).into_dyn();
            assert_eq!(on_host::<f32>(&batch, "x").await, expected);
            let told = &batch.explain().fields[0];
            assert!(!told.is_rearranged && told.reason.contains("stays as it lies"), "{told}");
            let back = batch.read_back().await.unwrap();
            assert_eq!(back.field("x").unwrap().to_array::<f32>().unwrap(), expected);
        },
    );
}

#[test]
fn a_forbidden_relayout_is_an_error_that_holds_the_batch() {
    let device = Device::builder().host().relayout(Relayout::Forbid).build().unwrap();
    let view = HostArray::from(volume()).permuted_axes([1, 0, 2, 3]).unwrap();
    let error = device.try_transfer(("labels", view)).unwrap_err();
    assert!(matches!(&error, Error::Relayout { field, .. } if field == "labels"), "{error:?}");
    assert!(error.take_batch().is_some_and(|batch: HostBatch| batch.field("labels").is_ok()));
    // In order is allowed: a part, picked rows, another type.
    let host = HostArray::from(volume());
    let allowed = batch! {
        part: host.slice(s![1.., .., ..;2, ..4]).unwrap(),
        rows: host.select_rows([3, 1]).unwrap(),
        cast: host.cast::<f64>(),
        repeated: HostArray::zeros::<f32>((40, 50)).unwrap(),
        repeated_within: repeated_within(),
    };
    futures::executor::block_on(device.try_transfer(allowed).unwrap()).unwrap();
}

#[test]
fn the_kernel_comes_after_the_copies_and_the_field_after_the_kernel_i3_i4() {
    let sim = by_hand(64 << 20);
    let view = HostArray::from(volume()).permuted_axes([3, 2, 1, 0]).unwrap();
    let source = stream::iter([("x", view)]).to_device(sim.device()).relayout(Relayout::Device);
    let mut transfers = Box::pin(source);
    let mut transfer = futures::executor::block_on(transfers.next()).unwrap();
    let kernels = |sim: &inflight::sim::Simulator| {
        let pending = sim.pending();
        pending.iter().filter(|op| op.stream == PendingStream::Relayout).map(|op| op.runnable).collect::<Vec<_>>()
    };
    assert_eq!(kernels(&sim), [false], "it waits for the copy");
    assert!(futures::FutureExt::now_or_never(&mut transfer).is_none());
    while sim.pending().iter().any(|op| op.stream == PendingStream::Copy) {
        assert!(sim.complete_next());
    }
    assert_eq!(kernels(&sim), [true]);
    assert!(futures::FutureExt::now_or_never(&mut transfer).is_none(), "copied is not arrived");
    // Dropped now: the block is the kernel's until that is done.
    drop(transfer);
    drop(transfers);
    assert!(sim.device().stats().device_used > 0);
    assert!(sim.complete_next());
    sim.complete_all();
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn a_kernel_that_is_refused_fails_its_batch_and_leaks_nothing() {
    use inflight::sim::FaultPoint;

    for point in [FaultPoint::Launch, FaultPoint::Wait] {
        let sim = by_hand(64 << 20);
        sim.inject(point, 1, 1);
        let view = HostArray::from(volume()).permuted_axes([3, 2, 1, 0]).unwrap();
        let source = stream::iter([("x", view)]).to_device(sim.device()).relayout(Relayout::Device);
        let transfer = futures::executor::block_on(Box::pin(source).next()).unwrap();
        sim.complete_all();
        let error = futures::FutureExt::now_or_never(transfer).unwrap().unwrap_err();
        assert!(matches!(error, Error::Driver { code: 1, .. }), "{error:?}");
        let stats = sim.device().stats();
        assert_eq!((stats.device_used, stats.device_quarantined), (0, 0), "{point:?}");
    }
}

#[test]
fn small_fields_stay_together_beside_rearranged_ones() {
    on_each(
        |builder| builder,
        |bed| async move {
            let view = HostArray::from(volume()).permuted_axes([0, 3, 1, 2]).unwrap();
            let batch = batch! { a: vec![1_u8; 300], x: view, b: vec![2_u8; 400], c: vec![3_u8; 5] };
            let source = stream::iter([batch]).to_device(&bed.device).relayout(Relayout::Device);
            let batch = source.buffered(1).try_next().await.unwrap().unwrap();
            assert_eq!(elements(&on_host::<u8>(&batch, "a").await), [1; 300]);
            assert_eq!(on_host::<f32>(&batch, "x").await, volume().permuted_axes([0, 3, 1, 2]).into_dyn());
            assert_eq!(elements(&on_host::<u8>(&batch, "b").await), [2; 400]);
            assert_eq!(elements(&on_host::<u8>(&batch, "c").await), [3; 5]);
            assert!(batch.explain().fields[1].is_rearranged);
        },
    );
}

#[test]
fn on_a_single_stream_the_kernel_is_in_line_as_well() {
    let stream = inflight::ComputeStream::Host(inflight::HostStream::new().unwrap());
    let builder = Device::builder().host().overlap(inflight::Overlap::Off(&stream)).relayout(Relayout::Device);
    let device = builder.build().unwrap();
    futures::executor::block_on(async {
        for (name, view, expected) in views() {
            let batch = device.transfer(("x", view)).await.unwrap().await.unwrap();
            assert_eq!(on_host::<f32>(&batch, "x").await, expected, "{name}");
        }
    });
}

/// `[100, 3, 300]`, of which the middle axis repeats one row.
fn repeated_within() -> HostArray {
    let rows = HostArray::from(Array::from_shape_fn((100, 300), |(row, at)| (row * 300 + at) as f32));
    let one = rows.slice(s![.., ndarray::NewAxis, ..]).unwrap();
    // Three times the one index of the axis that is new.
    one.permuted_axes([1, 0, 2]).unwrap().select_rows([0, 0, 0]).unwrap().permuted_axes([1, 0, 2]).unwrap()
}

#[test]
fn where_scratch_memory_does_not_fit_the_host_brings_arrays_into_order() {
    let bytes = volume().len() * 4;
    // With 12 times its bytes, four batches fit with scratch memory.
    for (limit, fits) in [(bytes + bytes / 2, false), (6 * bytes, false), (12 * bytes, true)] {
        on_each(
            |builder| builder.memory_bytes(limit),
            |bed| async move {
                let view = HostArray::from(volume()).permuted_axes([0, 3, 1, 2]).unwrap();
                let batch = bed.device.transfer(("x", view)).await.unwrap().await.unwrap();
                let is_gpu = bed.device.kind() == inflight::DeviceKind::Cuda;
                assert_eq!(batch.explain().fields[0].is_rearranged, fits && is_gpu, "a limit of {limit} bytes");
                assert_eq!(on_host::<f32>(&batch, "x").await, volume().permuted_axes([0, 3, 1, 2]).into_dyn());
            },
        );
    }
    let device = Device::builder().host().memory_bytes(bytes + bytes / 2).relayout(Relayout::Device).build().unwrap();
    let view = HostArray::from(volume()).permuted_axes([0, 3, 1, 2]).unwrap();
    let error = device.try_transfer(("x", view)).unwrap_err();
    assert!(matches!(error, Error::BatchTooLarge { .. }), "{error:?}");
}
