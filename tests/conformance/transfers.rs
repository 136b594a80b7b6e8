//! What goes in comes out: sizes, types, layouts, names, what travels along.

use futures::{StreamExt, TryStreamExt, stream};
use half::{bf16, f16};
use inflight::{BatchStreamExt, Cursor, Device, Dtype, Error, HostArray, HostBatch, batch};
use ndarray::{ArcArray, Array, Array2, array, s};

use crate::bed::{by_hand, elements, on_each, on_host, pattern};

#[test]
fn every_size_arrives_whole() {
    for bytes in [0, 1, 64, 255, 256, 257, 4096, 40_000, 65_536, 65_537, 256 * 1024 + 1, 4 << 20, (9 << 20) + 13] {
        on_each(
            |builder| builder.staging_bytes(1 << 20),
            |bed| async move {
                let sent = pattern(1, bytes);
                let batch = bed.device.transfer(("raw", sent.clone())).await.unwrap().await.unwrap();
                let raw = batch.field("raw").unwrap();
                assert_eq!((raw.dtype(), raw.shape(), raw.bytes()), (Dtype::U8, &[bytes][..], bytes));
                assert_eq!(elements(&on_host::<u8>(&batch, "raw").await), sent);
                let back = raw.read_back::<u8>().unwrap().await.unwrap();
                assert_eq!(elements(&back), sent);
            },
        );
    }
}

#[test]
fn every_element_type_is_bit_identical_b76_b82() {
    on_each(
        |builder| builder,
        |bed| async move {
            macro_rules! check {
                ($($type:ty: $values:expr),* $(,)?) => {$({
                    let values: Vec<$type> = $values;
                    let batch = bed.device.transfer(("x", values.clone())).await.unwrap().await.unwrap();
                    let x = batch.field("x").unwrap();
                    let back = x.read_back::<$type>().unwrap().await.unwrap();
                    let bits = |values: &[$type]| values.iter().map(|value| value.to_ne_bytes()).collect::<Vec<_>>();
                    assert_eq!(bits(back.as_slice().unwrap()), bits(&values));
                })*};
            }
            check! {
                u8: vec![0, 255], u16: vec![u16::MAX], u32: vec![u32::MAX], u64: vec![u64::MAX, (1 << 40) + 1],
                i8: vec![i8::MIN], i16: vec![i16::MIN], i32: vec![i32::MIN], i64: vec![i64::MIN, (1 << 40) + 1],
                f16: vec![f16::NAN, f16::MIN_POSITIVE_SUBNORMAL, f16::NEG_ZERO], bf16: vec![bf16::NAN, bf16::NEG_ZERO],
                f32: vec![f32::from_bits(0x7f80_0001), -0.0, 1e-45], f64: vec![0.1, f64::from_bits(0x7ff0_0000_dead_beef)],
            }
            let batch = bed.device.transfer(("x", [true, false, true])).await.unwrap().await.unwrap();
            let back = batch.field("x").unwrap().read_back::<bool>().unwrap().await.unwrap();
            assert_eq!(elements(&back), [true, false, true]);
        },
    );
}

#[test]
fn odd_shapes_keep_their_logical_order_b68_b69_b70() {
    on_each(
        |builder| builder,
        |bed| async move {
            let base = Array::from_shape_fn((4, 6, 5), |(i, j, k)| (i * 30 + j * 5 + k) as f64);
            let reversed = array![1_i32, 2].slice_move(s![..;-1]);
            let views = [
                base.view().reversed_axes().to_owned(),
                base.clone().slice_move(s![..;-1, 1..;2, ..;-2]),
                base.clone().permuted_axes([1, 2, 0]),
                base.slice(s![0..0, .., ..]).to_owned(),
                base.slice(s![0..1, 0..1, 0..1]).to_owned(),
            ];
            for view in views {
                let batch = bed.device.transfer(("x", view.clone())).await.unwrap().await.unwrap();
                let x = batch.field("x").unwrap();
                assert_eq!(on_host::<f64>(&batch, "x").await, view.into_dyn());
                let standard = Array::<u8, _>::zeros(x.shape()).strides().to_vec();
                assert!(x.bytes() == 0 || x.strides() == standard);
            }
            let batch = batch! { r: reversed, point: 7_u8 };
            let batch = bed.device.transfer(batch).await.unwrap().await.unwrap();
            assert_eq!(elements(&on_host::<i32>(&batch, "r").await), [2, 1]);
            assert_eq!(batch.field("point").unwrap().shape(), [0; 0]);
        },
    );
}

#[test]
fn empty_fields_and_empty_batches_need_no_driver_call_b68() {
    let sim = by_hand(1 << 20);
    let before = sim.counters();
    for batch in [HostBatch::new(), batch! { a: Array2::<f32>::zeros((0, 3)), b: Array2::<u8>::zeros((2, 0)) }] {
        let mut transfer = tokio_test::task::spawn(sim.device().try_transfer(batch).unwrap());
        let batch = tokio_test::assert_ready!(transfer.poll()).unwrap();
        for name in batch.names() {
            let mut back = tokio_test::task::spawn(batch.select([name]).unwrap().read_back());
            assert_eq!(tokio_test::assert_ready!(back.poll()).unwrap().field(name).unwrap().len(), 0);
        }
    }
    let after = sim.counters();
    assert_eq!((after.copies_submitted, after.records), (before.copies_submitted, before.records));
    let mixed = batch! { none: Vec::<f32>::new(), some: vec![1_u8] };
    let transfer = sim.device().try_transfer(mixed).unwrap();
    assert_eq!(sim.pending().len(), 1);
    sim.complete_all();
    let batch = futures::executor::block_on(transfer).unwrap();
    assert!(batch.field("none").unwrap().is_ready());
}

#[test]
fn what_travels_along_comes_out() {
    on_each(
        |builder| builder,
        |bed| async move {
            let cursor = Cursor { epoch: 2, row: 640 };
            let batches = (0..3_u32).map(|n| {
                let batch = HostBatch::new().with("x", vec![n; 4]).with("label", vec![n as u8]);
                batch.with_meta(format!("file {n}")).with_cursor(cursor)
            });
            let got: Vec<_> = stream::iter(batches).to_device(&bed.device).buffered(2).try_collect().await.unwrap();
            for (n, batch) in got.iter().enumerate() {
                assert_eq!(batch.index(), n as u64);
                assert_eq!(batch.meta::<String>().unwrap(), &format!("file {n}"));
                assert_eq!(batch.meta::<u32>(), None);
                assert_eq!((batch.cursor(), batch.rows()), (Some(cursor), Some(4)));
                assert_eq!(batch.names().collect::<Vec<_>>(), ["x", "label"]);
            }
        },
    );
}

#[test]
fn a_contiguous_pinned_array_costs_no_cpu_copy() {
    on_each(
        |builder| builder,
        |bed| async move {
            let mut pinned = bed.device.pinned::<f32, _>((64, 100)).await.unwrap();
            pinned.fill(1.5);
            pinned[[3, 4]] = 2.0;
            let first = pinned.as_ptr().cast::<u8>();
            let shared = pinned.share();
            assert_eq!(shared.as_ptr(), first);
            for _ in 0..2 {
                let batch = bed.device.transfer(("x", shared.clone())).await.unwrap().await.unwrap();
                assert_eq!(on_host::<f32>(&batch, "x").await[[3, 4]], 2.0);
            }
            let stats = bed.device.stats();
            assert_eq!((stats.bytes_staged, stats.bytes_sent), (0, 2 * 25_600));
            let registered = bed.device.register(vec![7_u8; 100_000]).await.unwrap();
            bed.device.transfer(("x", registered)).await.unwrap().await.unwrap();
            assert_eq!(bed.device.stats().bytes_staged, 0);
        },
    );
}

#[test]
fn a_new_page_locked_array_is_zero_b79() {
    on_each(
        |builder| builder,
        |bed| async move {
            for len in [1, 1000, 1 << 20, (1 << 20) + 1] {
                let array = bed.device.pinned::<u32, _>(len).await.unwrap();
                assert!(array.iter().all(|element| *element == 0), "{len} elements");
            }
        },
    );
}

#[test]
fn pinned_memory_of_another_device_is_staged() {
    futures::executor::block_on(async {
        let (one, two) = (Device::host().unwrap(), Device::host().unwrap());
        let pinned = one.pinned::<u8, _>(1000).await.unwrap();
        two.transfer(("x", pinned)).await.unwrap().await.unwrap();
        assert_eq!(two.stats().bytes_staged, 1000);
    });
}

#[test]
fn small_neighbours_are_one_copy_b118() {
    let sim = by_hand(1 << 20);
    let fields = (0..8).map(|n| (n.to_string(), vec![n as u8; 512]));
    let transfer = sim.device().try_transfer(HostBatch::from_fields(fields)).unwrap();
    let pending = sim.pending();
    assert_eq!((pending.len(), pending[0].fields.len(), pending[0].bytes), (1, 8, 4096));
    assert_eq!(sim.counters().records, 1);
    sim.complete_all();
    let batch = futures::executor::block_on(transfer).unwrap();
    for n in 0..8_u8 {
        assert_eq!(elements(&batch.field(&n.to_string()).unwrap().as_host::<u8>().unwrap()), [n; 512]);
    }
}

#[test]
fn a_batch_larger_than_the_ring_goes_in_pieces_invariant_9() {
    on_each(
        |builder| builder.staging_bytes(64 << 10).memory_bytes(64 << 20),
        |bed| async move {
            let array = ArcArray::from_shape_fn((100, 1000), |(i, j)| (i * 1000 + j) as f64);
            let batch = batch! { x: array.clone(), t: HostArray::from(array.clone()).permuted_axes([1, 0]).unwrap() };
            let batch = bed.device.transfer(batch).await.unwrap().await.unwrap();
            assert_eq!(on_host::<f64>(&batch, "x").await, array.clone().into_dyn());
            assert_eq!(on_host::<f64>(&batch, "t").await, array.t().into_owned().into_dyn());
        },
    );
}

#[test]
fn the_hosts_array_is_independent_of_its_source_b09_b10() {
    for len in [100, 100_000] {
        on_each(
            |builder| builder,
            |bed| async move {
                let mut source = ArcArray::from_elem(len, 1.0_f32);
                let transfer = bed.device.transfer(("x", source.clone())).await.unwrap();
                source.fill(2.0);
                let batch = transfer.await.unwrap();
                source.fill(3.0);
                assert!(on_host::<f32>(&batch, "x").await.iter().all(|x| *x == 1.0));
            },
        );
    }
}

#[test]
fn bad_batches_come_back_whole() {
    let device = Device::builder().host().memory_bytes(1 << 20).build().unwrap();
    let large = HostBatch::new().with("x", vec![1_u8; 2 << 20]);
    let error = device.try_transfer(large).unwrap_err();
    let text = "the batch needs 2097152 bytes of device memory, the limit is 1048576: send less at once, or raise memory_bytes";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.clone().take_batch().unwrap().bytes(), 2 << 20);
    assert!(error.take_batch().is_none(), "clones share the batch");
    let twice = HostBatch::new().with("x", 1_u8).with("x", 2_u8);
    let error = device.try_transfer(twice).unwrap_err();
    assert_eq!(error.to_string(), "two fields of the batch are named \"x\"");
    assert_eq!(error.take_batch().unwrap().len(), 2);
    let huge = HostArray::zeros::<u8>(vec![usize::MAX / 4]).unwrap().cast::<f64>();
    assert!(matches!(device.try_transfer(("x", huge)), Err(Error::ShapeOverflow { .. })));
    let batch = futures::executor::block_on(device.try_transfer(("x", 1_u8)).unwrap()).unwrap();
    let error = batch.field("y").unwrap_err();
    assert_eq!(error.to_string(), "the batch has no field \"y\"; its fields are [\"x\"]");
    let error = batch.field("x").unwrap().as_host::<f32>().unwrap_err();
    assert_eq!(error.to_string(), "field \"x\" is uint8, not float32");
}
