//! What a batch costs on the host backend above a bare `memcpy` of the same bytes, and what the single steps cost.
//!
//! Criterion reports the times; the ratio and the difference are printed from interleaved runs of both, medians of 15.
//! `engine` and `gather` are tables of large batches: name one to have it alone (`cargo bench --bench overhead -- engine`).
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, reason = "a benchmark prints what it measures")]

#[path = "overhead/engine.rs"]
mod engine;
#[path = "overhead/gather.rs"]
mod gather;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures::task::noop_waker;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, HostArray, HostStream, LinkModel};
use ndarray::ArcArray1;

const DEPTH: usize = 8;

/// Whether a table was asked for: by name, or by none.
fn is_asked(name: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    named.peek().is_none() || named.any(|argument| name.contains(&argument))
}

/// A pipeline over one shared array, so that the source costs next to nothing; the time of a batch.
async fn pipeline(device: &Device, array: &HostArray, batches: usize, depth: usize) -> Duration {
    let source = stream::iter(0..batches).map(|_| ("x", array.clone()));
    let mut transfers = source.to_device(device).buffered(depth);
    let start = Instant::now();
    while let Some(batch) = transfers.try_next().await.unwrap() {
        black_box(&batch);
    }
    start.elapsed() / u32::try_from(batches).unwrap()
}

/// The same bytes copied as often into a ring of as many buffers.
fn memcpy(array: &ArcArray1<u8>, buffers: &mut [Vec<u8>], batches: usize) -> Duration {
    let start = Instant::now();
    for n in 0..batches {
        let place = n % buffers.len();
        buffers[place].copy_from_slice(black_box(array.as_slice().unwrap()));
        black_box(&mut buffers[place]);
    }
    start.elapsed() / u32::try_from(batches).unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints both times, their ratio and difference.
fn compare(name: &str, device: &Device, runtime: &tokio::runtime::Runtime) {
    println!("{name}, depth {DEPTH}, tokio current-thread");
    println!("{:>9} {:>12} {:>12} {:>8} {:>12}", "bytes", "memcpy", "batch", "ratio", "above");
    for bytes in [4 << 10, 64 << 10, 1 << 20] {
        let array = ArcArray1::from_elem(bytes, 7_u8);
        let host = HostArray::from(array.clone());
        let mut buffers = vec![vec![0_u8; bytes]; DEPTH];
        let batches = (64 << 20) / bytes;
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..15 {
            bare.push(memcpy(&array, &mut buffers, batches));
            ours.push(runtime.block_on(pipeline(device, &host, batches, DEPTH)));
        }
        let (bare, ours) = (median(bare), median(ours));
        let ratio = ours.as_secs_f64() / bare.as_secs_f64();
        println!("{bytes:>9} {bare:>12.2?} {ours:>12.2?} {ratio:>8.2} {:>12.2?}", ours.saturating_sub(bare));
    }
}

fn overhead(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    if is_asked("engine") {
        engine::table(&runtime);
    }
    if is_asked("gather") {
        gather::table(&runtime);
    }
    if !is_asked("batch") {
        return;
    }
    compare("host backend", &Device::host().unwrap(), &runtime);
    let link = LinkModel { bytes_per_second: f64::INFINITY, latency: Duration::ZERO };
    let threaded = Device::builder().host().link_model(link).build().unwrap();
    compare("host backend, every copy handed to its thread", &threaded, &runtime);

    let device = Device::host().unwrap();
    let array = HostArray::from(vec![7_u8; 4096]);
    criterion.bench_function("batch of 4 KiB, buffered(8)", |bencher| {
        bencher.iter_custom(|count| {
            let count = usize::try_from(count).unwrap();
            runtime.block_on(pipeline(&device, &array, count, DEPTH)) * u32::try_from(count).unwrap()
        });
    });
}

fn steps(criterion: &mut Criterion) {
    let link = LinkModel { bytes_per_second: f64::INFINITY, latency: Duration::from_secs(3600) };
    let stalled = Device::builder().host().link_model(link).build().unwrap();
    let mut pending = stalled.try_transfer(("x", vec![1_u8; 64])).unwrap();
    let waker = noop_waker();
    let mut context = std::task::Context::from_waker(&waker);
    criterion.bench_function("poll of a pending transfer", |bencher| {
        bencher.iter(|| black_box(pending.poll_unpin(&mut context).is_pending()));
    });

    let device = Device::host().unwrap();
    criterion.bench_function("submit and drop of 4 KiB", |bencher| {
        let array = ArcArray1::from_elem(4096, 7_u8);
        // Busy where the threads lag behind: then this one lets them run.
        bencher.iter(|| {
            while device.try_transfer(("x", array.clone())).is_err() {
                std::thread::yield_now();
            }
        });
    });
    let Ok(ComputeStream::Host(stream)) = device.compute_stream() else { return };
    let batch = futures::executor::block_on(device.try_transfer(("x", vec![1_u8; 4096])).unwrap()).unwrap();
    criterion.bench_function("lease with a view, and its end", |bencher| {
        bencher.iter(|| {
            let lease = batch.on(&stream).unwrap();
            black_box(lease.view::<u8>("x").unwrap());
            lease.end().unwrap();
        });
    });
    wake(criterion, &stream);
}

/// From the end of a task on another thread to the future that waits for it, there and back.
fn wake(criterion: &mut Criterion, stream: &HostStream) {
    criterion.bench_function("task of a host stream, awaited", |bencher| {
        bencher.iter_batched(
            || (),
            |()| futures::executor::block_on(stream.run(|| ())).unwrap(),
            BatchSize::SmallInput,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = overhead, steps
}
criterion_main!(benches);
