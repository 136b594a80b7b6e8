//! Arrays that do not lie as they are sent, through the engine, beside ndarray's own copies of the same views.
//!
//! `to_owned()` allocates its result each time; `assign` writes to an array that is there. Of a dense array in another order
//! `to_owned()` keeps that order, and so is a plain copy: there `as_standard_layout()` is what puts it in order.

use std::hint::black_box;
use std::time::{Duration, Instant};

use inflight::{Device, HostArray};
use ndarray::{Array, Array2, Array3, ArrayD, ArrayViewD, s};

use crate::{median, pipeline};

const RUNS: usize = 5;

/// A view of the crate's and ndarray's copies of the same.
struct Job<'a> {
    name: &'a str,
    host: HostArray,
    owned: &'a dyn Fn(),
    assign: &'a mut dyn FnMut(),
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn row(device: &Device, runtime: &tokio::runtime::Runtime, job: Job<'_>) {
    let Job { name, host, owned, assign } = job;
    let [mut ours, mut owns, mut assigns] = [const { Vec::new() }; 3];
    for _ in 0..RUNS {
        ours.push(runtime.block_on(pipeline(device, &host, 2, 1)));
        owns.push(timed(owned));
        assigns.push(timed(&mut *assign));
    }
    let [ours, owned, assign] = [ours, owns, assigns].map(|times| median(times).as_secs_f64());
    let rate = |seconds: f64| host.bytes() as f64 / seconds / 1e9;
    println!(
        "{name:46} {:>7.2} {:>9.2} {:>6.1} {:>7.2} {:>6.1}",
        rate(ours),
        rate(owned),
        owned / ours,
        rate(assign),
        assign / ours
    );
}

/// A job of a view, whose copy in logical order is what ndarray's `to_owned` makes of it, or `as_standard_layout`.
fn view<T: inflight::Element>(
    (device, runtime): (&Device, &tokio::runtime::Runtime),
    name: &str,
    host: HostArray,
    view: ArrayViewD<'_, T>,
    is_dense: bool,
) {
    let mut target = ArrayD::from_elem(view.raw_dim(), T::default());
    target.fill(T::default());
    let owned = || {
        if is_dense {
            black_box(view.as_standard_layout().into_owned());
        } else {
            black_box(view.to_owned());
        }
    };
    row(device, runtime, Job { name, host, owned: &owned, assign: &mut || target.assign(&view) });
}

pub(crate) fn table(runtime: &tokio::runtime::Runtime) {
    let device = Device::host().unwrap();
    let on = (&device, runtime);
    println!("gather: through the engine beside ndarray on one thread; medians of {RUNS}, GB/s of the result");
    println!("{:46} {:>7} {:>9} {:>6} {:>7} {:>6}", "", "engine", "to_owned", "ratio", "assign", "ratio");
    matrices(on);
    volumes(on);
}

fn matrices(on: (&Device, &tokio::runtime::Runtime)) {
    let matrix = Array2::from_shape_fn((8192, 8192), |(row, column)| (row * 8192 + column) as f32);
    let host = HostArray::from(matrix.to_shared());
    let turned = host.permuted_axes([1, 0]).unwrap();
    view(on, "transposed f32 8192x8192 (as_standard_layout)", turned, matrix.t().into_dyn(), true);
    let cut = host.slice(s![.., ..8191]).unwrap().permuted_axes([1, 0]).unwrap();
    view(on, "transposed f32 8192x8191 of it", cut, matrix.slice(s![.., ..8191]).reversed_axes().into_dyn(), false);
    let back = host.slice(s![..;-1, ..;-1]).unwrap();
    // Dense, and walked backwards: `to_owned` keeps that as well.
    view(on, "reversed f32 (as_standard_layout)", back, matrix.slice(s![..;-1, ..;-1]).into_dyn(), true);
    let rows = host.slice(s![.., 100..164]).unwrap();
    view(on, "rows of 256 B, 32 KiB apart", rows, matrix.slice(s![.., 100..164]).into_dyn(), false);
}

fn volumes(on: (&Device, &tokio::runtime::Runtime)) {
    let volume = Array3::from_shape_fn((256, 256, 512), |(z, y, x)| (z * 131_072 + y * 512 + x) as f64);
    let host = HostArray::from(volume.to_shared());
    let turned = host.permuted_axes([2, 1, 0]).unwrap();
    view(on, "f64 256x256x512, axes reversed (as_std.)", turned, volume.t().into_dyn(), true);
    let crop = host.slice(s![64..192, 64..192, 100..132]).unwrap();
    view(on, "crop of 128x128 rows of 256 B", crop, volume.slice(s![64..192, 64..192, 100..132]).into_dyn(), false);
    let mut narrow = Array3::<f32>::ones(volume.raw_dim());
    let owned = || drop(black_box(volume.mapv(|value| value as f32)));
    let mut assign = || narrow.zip_mut_with(&volume, |to, from| *to = *from as f32);
    let job =
        Job { name: "f64 to f32 (mapv, zip_mut_with)", host: host.cast::<f32>(), owned: &owned, assign: &mut assign };
    row(on.0, on.1, job);
    let images = Array::from_shape_fn((64, 224, 224, 3), |(n, y, x, c)| (n + y + x + c) as f32);
    let host = HostArray::from(images.to_shared()).permuted_axes([0, 3, 1, 2]).unwrap();
    view(on, "f32 64x224x224x3 to NCHW (as_std.)", host, images.view().permuted_axes([0, 3, 1, 2]).into_dyn(), true);
}
