//! Random layouts and chains of views of every element type, on the host and through devices, against ndarray's own.

use std::sync::LazyLock;

use futures::FutureExt;
use futures::executor::block_on;
use half::{bf16, f16};
use inflight::sim::Simulator;
use inflight::{Device, DeviceBatch, Element, Error, HostArray, HostBatch, Relayout};
use ndarray::{Array, ArrayD, Axis, SliceInfoElem};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// One axis of an array as it is made: its length, and which part of it is taken, backwards or not.
#[derive(Clone, Debug)]
struct Part {
    len: usize,
    cut: (usize, usize),
    step: isize,
}

/// How an array lies in memory.
#[derive(Clone, Debug)]
struct Layout {
    parts: Vec<Part>,
    /// Sorts the axes.
    order: [u8; 6],
}

fn layouts() -> impl Strategy<Value = Layout> {
    let len = prop_oneof![1 => Just(0_usize), 3 => Just(1), 16 => 2_usize..6];
    let step = prop_oneof![4 => Just(1_isize), 2 => Just(-1), 1 => Just(2), 1 => Just(-2), 1 => Just(3)];
    let cut = prop_oneof![2 => Just((0, 0)), 1 => (0_usize..2, 0_usize..2)];
    let part = (len, cut, step).prop_map(|(len, cut, step)| Part { len, cut, step });
    (vec(part, 0..=6), any::<[u8; 6]>()).prop_map(|(parts, order)| Layout { parts, order })
}

/// A view of a view: its kind, and numbers that say which.
type View = (u8, Vec<usize>);

fn views() -> impl Strategy<Value = Vec<View>> {
    vec((0_u8..5, vec(0_usize..1000, 1..8)), 0..5)
}

/// An array that lies so, of elements that `make` makes.
fn array<T: Element>(layout: &Layout, make: fn(u64) -> T) -> ArrayD<T> {
    let shape: Vec<_> = layout.parts.iter().map(|part| part.len).collect();
    let count = shape.iter().product::<usize>() as u64;
    // Odd, so that different places have different numbers.
    let numbers = (0..count).map(|n| make(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut array = Array::from_iter(numbers).into_shape_with_order(shape).unwrap();
    for (axis, Part { len, cut, step }) in layout.parts.iter().enumerate() {
        let (start, end) = (cut.0.min(*len), len.saturating_sub(cut.1).max(cut.0.min(*len)));
        array.slice_axis_inplace(Axis(axis), ndarray::Slice::new(start as isize, Some(end as isize), *step));
    }
    let mut axes: Vec<_> = (0..layout.parts.len()).collect();
    axes.sort_by_key(|axis| layout.order[*axis]);
    array.permuted_axes(axes)
}

/// One view, of the array here and of ndarray's; `None` for one that does not fit.
fn view<T: Element>(host: &HostArray, array: &ArrayD<T>, (kind, pick): &View) -> Option<(HostArray, ArrayD<T>)> {
    let rank = array.ndim();
    let nth = |n: usize| pick[n % pick.len()];
    match kind {
        0 if rank > 0 && !array.is_empty() => {
            let rows: Vec<_> = pick.iter().map(|row| row % array.shape()[0]).collect();
            Some((host.select_rows(&rows).unwrap(), array.select(Axis(0), &rows)))
        }
        1 => {
            let mut axes: Vec<_> = (0..rank).collect();
            axes.sort_by_key(|axis| nth(*axis));
            Some((host.permuted_axes(&axes).unwrap(), array.view().permuted_axes(axes).to_owned()))
        }
        2 => {
            let elem = |(axis, len): (usize, &usize)| match nth(axis) {
                pick if pick % 5 == 0 && *len > 0 => {
                    SliceInfoElem::Index((pick / 5 % len) as isize - (pick % 2 * len) as isize)
                }
                pick => {
                    let (a, b) = (pick / 5 % (len + 1), pick / 11 % (len + 1));
                    let step = [1, 2, -1, -2, 3][pick % 5];
                    SliceInfoElem::Slice { start: a.min(b) as isize, end: Some(a.max(b) as isize), step }
                }
            };
            let info: Vec<_> = array.shape().iter().enumerate().map(elem).collect();
            Some((host.slice(&info).unwrap(), array.slice(&info[..]).to_owned()))
        }
        3 if rank < 6 => {
            let mut info = vec![SliceInfoElem::Slice { start: 0, end: None, step: 1 }; rank];
            info.insert(nth(0) % (rank + 1), SliceInfoElem::NewAxis);
            Some((host.slice(&info).unwrap(), array.slice(&info[..]).to_owned()))
        }
        4 => match rank {
            1 => boxes::<T, 1>(host, array, pick),
            2 => boxes::<T, 2>(host, array, pick),
            3 => boxes::<T, 3>(host, array, pick),
            4 => boxes::<T, 4>(host, array, pick),
            5 => boxes::<T, 5>(host, array, pick),
            _ => None,
        },
        _ => None,
    }
}

/// Boxes out of an array of `N` axes; `None` where rows were picked before.
fn boxes<T: Element, const N: usize>(
    host: &HostArray,
    array: &ArrayD<T>,
    pick: &[usize],
) -> Option<(HostArray, ArrayD<T>)> {
    let nth = |n: usize| pick[n % pick.len()];
    let size: [usize; N] = std::array::from_fn(|axis| nth(axis) / 7 % (array.shape()[axis] + 1));
    let corner = |k| std::array::from_fn(|axis| nth(k + axis) / 3 % (array.shape()[axis] - size[axis] + 1));
    let corners: Vec<[usize; N]> = (0..nth(0) % 4).map(corner).collect();
    let crops = match host.crops(&corners, size) {
        Err(Error::InvalidView { .. }) => return None,
        crops => crops.unwrap(),
    };
    let mut expected =
        array.slice_each_axis(|axis| (0..size[axis.axis.index()]).into()).insert_axis(Axis(0)).to_owned();
    expected.slice_axis_inplace(Axis(0), (0..0).into());
    for corner in &corners {
        let place = |axis: usize| ndarray::Slice::from(corner[axis]..corner[axis] + size[axis]);
        expected.push(Axis(0), array.slice_each_axis(|axis| place(axis.axis.index()))).unwrap();
    }
    Some((crops, expected))
}

/// The bytes of elements in logical order.
fn bytes<'a, T: 'a>(elements: impl Iterator<Item = &'a T>, bits: fn(&T) -> u64) -> Vec<u8> {
    elements.flat_map(|element| bits(element).to_ne_bytes()).collect()
}

/// Checks a field of a batch that has arrived.
fn check<T: Element>(batch: &DeviceBatch, name: &str, expected: &ArrayD<T>, bits: fn(&T) -> u64) {
    let field = batch.field(name).unwrap();
    assert_eq!(field.shape(), expected.shape());
    assert_eq!(field.dtype(), T::DTYPE);
    assert!(bytes(field.as_host::<T>().unwrap().iter(), bits) == bytes(expected.iter(), bits), "{name} differs");
}

/// Sends `batch` to the host backend, and through a ring of 1 KiB chunks to simulated devices that bring it into order on
/// the host, on the device, and nowhere.
fn send(batch: &HostBatch) -> Vec<DeviceBatch> {
    static HOST: LazyLock<Device> = LazyLock::new(|| Device::host().unwrap());
    let host = block_on(async { HOST.transfer(batch.clone()).await.unwrap().await.unwrap() });
    let simulated = [Relayout::Host, Relayout::Device, Relayout::Preserve].map(|relayout| {
        let sim = Simulator::with(|builder| builder.staging_bytes(4 << 10).relayout(relayout)).unwrap();
        sim.poison(true);
        let transfer = sim.device().try_transfer(registered(&sim, batch, relayout)).unwrap();
        sim.complete_all();
        transfer.now_or_never().unwrap().unwrap()
    });
    simulated.into_iter().chain([host]).collect()
}

/// The batch in memory that the device knows, unless the device is to stage it.
fn registered(sim: &Simulator, batch: &HostBatch, relayout: Relayout) -> HostBatch {
    if relayout == Relayout::Host {
        return batch.clone();
    }
    let register = |name: &str| {
        let array = batch.field(name).unwrap().clone();
        sim.device().register(array).now_or_never().unwrap().unwrap()
    };
    HostBatch::from_fields(batch.names().map(|name| (name, register(name))))
}

/// One element type: views of an array are ndarray's, on the host and on devices, and so are casts of them.
fn run<T: Element>(layout: &Layout, views: &[View], make: fn(u64) -> T, bits: fn(&T) -> u64) {
    let mut expected = array(layout, make);
    let mut host = HostArray::from(expected.clone());
    let shared = HostArray::from(expected.to_shared());
    assert!(bytes(shared.to_array::<T>().unwrap().iter(), bits) == bytes(expected.to_owned().iter(), bits));
    for view in views {
        // The element type is put in between again and again: a cast to it changes nothing.
        if view.1[0] % 3 == 0 {
            host = host.cast::<T>();
        }
        if let Some((picked, of)) = self::view(&host, &expected, view) {
            (host, expected) = (picked, of);
        }
    }
    assert_eq!(host.shape(), expected.shape());
    assert_eq!(host.bytes(), expected.len() * size_of::<T>());
    assert!(bytes(host.to_array::<T>().unwrap().iter(), bits) == bytes(expected.iter(), bits), "the view differs");
    // A cast of the view is the view of a cast: that casts themselves are right is tested elsewhere.
    let dense = HostArray::from(expected.as_standard_layout().into_owned());
    let (small, wide) =
        (dense.cast::<i16>().to_array::<i16>().unwrap(), dense.cast::<f64>().to_array::<f64>().unwrap());
    let batch =
        HostBatch::new().with("same", host.clone()).with("small", host.cast::<i16>()).with("wide", host.cast::<f64>());
    for arrived in send(&batch) {
        check(&arrived, "same", &expected, bits);
        check(&arrived, "small", &small, |value| {
            u64::from(value.to_ne_bytes()[0]) << 8 | u64::from(value.to_ne_bytes()[1])
        });
        check(&arrived, "wide", &wide, |value| value.to_bits());
    }
}

/// `PROPTEST_CASES` cases, or a number that takes a moment; failing seeds are kept.
fn config() -> ProptestConfig {
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layouts/regressions.txt");
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { default.cases } else { 1000 },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_layout_of_any_type_and_any_views_arrive_as_ndarray_has_them(layout in layouts(), views in views(), of in 0..13) {
        match of {
            0 => run(&layout, &views, |n| n >> 40 & 1 == 1, |value| u64::from(*value)),
            1 => run(&layout, &views, |n| (n >> 30) as u8, |value| u64::from(*value)),
            2 => run(&layout, &views, |n| (n >> 30) as u16, |value| u64::from(*value)),
            3 => run(&layout, &views, |n| (n >> 30) as u32, |value| u64::from(*value)),
            4 => run(&layout, &views, |n| n, |value| *value),
            5 => run(&layout, &views, |n| (n >> 30) as i8, |value| *value as u64),
            6 => run(&layout, &views, |n| (n >> 30) as i16, |value| *value as u64),
            7 => run(&layout, &views, |n| (n >> 30) as i32, |value| *value as u64),
            8 => run(&layout, &views, |n| n as i64, |value| *value as u64),
            9 => run(&layout, &views, |n| f16::from_bits((n >> 30) as u16), |value| u64::from(value.to_bits())),
            10 => run(&layout, &views, |n| bf16::from_bits((n >> 30) as u16), |value| u64::from(value.to_bits())),
            11 => run(&layout, &views, |n| f32::from_bits((n >> 30) as u32), |value| u64::from(value.to_bits())),
            _ => run(&layout, &views, f64::from_bits, |value| value.to_bits()),
        }
    }
}
