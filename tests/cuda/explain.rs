//! What `explain` says is what the driver is asked to do: checked against the stand-in's log of calls.

use futures::executor::block_on;
use half::f16;
use inflight::{FetchKernels, HostArray, HostBatch, Relayout, Route, batch};
use ndarray::{Array, Array2, s};

use crate::rig::Rig;

/// What the log says of copies to the device and launches.
#[derive(Debug, Default, PartialEq, Eq)]
struct Logged {
    plain: usize,
    boxes: usize,
    /// Calls for many copies, and how many those are.
    batches: usize,
    batched: usize,
    launches: usize,
    bytes: usize,
}

/// The number behind `name=` in a line.
fn number(line: &str, name: &str) -> usize {
    let mark = format!(" {name}=");
    line.split_once(&mark).and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).unwrap_or(1)
}

impl Logged {
    fn of(lines: &[String]) -> Self {
        let mut logged = Self::default();
        for line in lines {
            match line.split(' ').next().unwrap_or_default() {
                "cuMemcpyHtoDAsync_v2" => {
                    logged.plain += 1;
                    logged.bytes += number(line, "bytes");
                }
                "cuMemcpy2DAsync_v2" | "cuMemcpy3DAsync_v2" => {
                    logged.boxes += 1;
                    logged.bytes += number(line, "width") * number(line, "height") * number(line, "depth");
                }
                "cuMemcpyBatchAsync" | "cuMemcpyBatchAsync_v2" => {
                    logged.batches += 1;
                    logged.batched += number(line, "count");
                    logged.bytes += number(line, "bytes");
                }
                "cuLaunchKernel" => logged.launches += 1,
                _ => {}
            }
        }
        logged
    }
}

/// Sends a batch, and compares what was told before and after with what the driver was asked for.
fn check(rig: &Rig, what: &str, batch: HostBatch, expected: (Route, bool), most_at_once: usize) {
    let Some(stand_in) = rig.stand_in else { return };
    let told = rig.device.explain(&batch).unwrap();
    let staged_before = rig.device.stats().bytes_staged;
    stand_in.log(true);
    let arrived = block_on(async { rig.device.transfer(batch).await?.await }).unwrap();
    let logged = Logged::of(&stand_in.log_take());
    stand_in.log(false);
    assert_eq!(arrived.explain().fields, told.fields, "{what}: what was done is what was planned");
    let field = &told.fields[0];
    assert_eq!((field.route, field.is_rearranged), expected, "{what}: {field}");
    assert_eq!(logged.bytes, field.link_bytes, "{what}: {logged:?}, {field}");
    assert_eq!(logged.launches, usize::from(field.is_rearranged), "{what}");
    assert_eq!(rig.device.stats().bytes_staged - staged_before, field.staged_bytes as u64, "{what}");
    let copies = (logged.plain, logged.boxes, logged.batches, logged.batched);
    let pieces = field.pieces;
    let wanted = match field.route {
        Route::Empty => (0, 0, 0, 0),
        Route::Rows if most_at_once > 1 => (0, 0, pieces.div_ceil(most_at_once), pieces),
        Route::Rows => (0, pieces, 0, 0),
        _ => (pieces, 0, 0, 0),
    };
    assert_eq!(copies, wanted, "{what}: {field}");
}

#[test]
fn each_way_makes_the_calls_that_it_tells() {
    let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Never)) else { return };
    // In memory of their own: neighbours on the heap may share a page, which can be registered once.
    let locked_bytes = |rows: &Array2<u8>| {
        let mut pinned = block_on(rig.device.pinned::<u8, _>(rows.raw_dim())).unwrap();
        pinned.assign(rows);
        pinned.share()
    };
    let volume = HostArray::from(Array::from_shape_fn((80, 90, 100), |(z, y, x)| (z * 9000 + y * 100 + x) as f32));
    let bytes = Array::from_shape_fn((50, 40 << 10), |(row, at)| (row + at) as u8);
    let rows = HostArray::from(bytes.clone());
    let doubles = HostArray::from(vec![0.5_f64; 300_000]);
    let locked = block_on(rig.device.register(volume.clone())).unwrap();
    assert!(locked.is_direct());
    let at = [[0, 0, 0], [7, 3, 9], [1, 20, 30]];
    let straight = |route| (route, false);

    check(&rig, "nothing", batch! { x: Vec::<u8>::new() }, straight(Route::Empty), 1);
    check(&rig, "pageable", batch! { x: vec![1_u8; 9 << 20] }, straight(Route::Staged), 1);
    check(&rig, "page-locked", batch! { x: HostArray::from(locked.clone()) }, straight(Route::Direct), 1);
    check(&rig, "boxes", batch! { x: locked.crops(at, [40, 40, 40]).unwrap() }, straight(Route::Rows), 1);
    check(&rig, "boxes, pageable", batch! { x: volume.crops(at, [40, 40, 40]).unwrap() }, straight(Route::Staged), 1);
    let picked: Vec<_> = (0..700).map(|n| n * 3 % 50).collect();
    let batch = batch! { x: locked_bytes(&bytes).select_rows(&picked).unwrap() };
    check(&rig, "rows", batch, straight(Route::Rows), 256);
    check(&rig, "rows, pageable", batch! { x: rows.select_rows(&picked).unwrap() }, straight(Route::Staged), 1);
    let transposed = |array: &HostArray| array.permuted_axes([2, 0, 1]).unwrap();
    check(&rig, "transposed", batch! { x: transposed(&volume) }, (Route::Staged, true), 1);
    check(&rig, "transposed, page-locked", batch! { x: transposed(&locked) }, (Route::Direct, true), 1);
    let reversed = batch! { x: volume.slice(s![..;-1, ..;-1, ..;-1]).unwrap() };
    check(&rig, "reversed", reversed, (Route::Staged, true), 1);
    check(&rig, "narrowed", batch! { x: doubles.cast::<f32>() }, straight(Route::Staged), 1);
    let batch = batch! { x: locked.cast::<f16>() };
    check(&rig, "narrowed, page-locked", batch, (Route::Direct, true), 1);
    check(&rig, "widened", batch! { x: rows.cast::<f32>() }, (Route::Staged, true), 1);
    let repeated = HostArray::zeros::<f32>((1000, 1000)).unwrap();
    check(&rig, "one element", batch! { x: repeated }, (Route::Staged, true), 1);
    rig.finish();
}

#[test]
fn on_the_host_and_nowhere_no_kernel_runs() {
    for relayout in [Relayout::Host, Relayout::Preserve] {
        let Some(rig) = Rig::with(|builder| builder.relayout(relayout)) else { return };
        let volume = HostArray::from(Array::from_shape_fn((80, 90, 100), |(z, y, x)| (z * 9000 + y * 100 + x) as f32));
        let batch = batch! { x: volume.permuted_axes([2, 0, 1]).unwrap() };
        check(&rig, "transposed", batch, (Route::Staged, false), 1);
        rig.finish();
    }
}

#[test]
fn what_a_kernel_fetches_takes_the_launches_that_are_told() {
    for (count, launches) in [(20, 1), (700, 2)] {
        let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Always)) else { return };
        let Some(stand_in) = rig.stand_in else { return };
        let pinned = block_on(rig.device.pinned::<u8, _>([50, 16 << 10])).unwrap();
        let picked: Vec<_> = (0..count).map(|n| n * 7 % 50).collect();
        let batch = batch! { x: pinned.share().select_rows(&picked).unwrap() };
        let told = rig.device.explain(&batch).unwrap();
        stand_in.log(true);
        let arrived = block_on(async { rig.device.transfer(batch).await?.await }).unwrap();
        let logged = Logged::of(&stand_in.log_take());
        stand_in.log(false);
        assert_eq!(arrived.explain().fields, told.fields);
        let field = &told.fields[0];
        assert_eq!((field.route, field.pieces, field.staged_bytes), (Route::Fetched, launches, 0), "{field}");
        assert_eq!(logged, Logged { launches, ..Logged::default() }, "no copies");
        drop(arrived);
        rig.finish();
    }
}
