//! Rows of page-locked memory that kernels fetch: as copies would have brought them, for consumers that wait, where that is
//! fast, and with both ends kept until the kernel is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::{StreamExt, stream};
use half::f16;
use inflight::{
    BatchStreamExt, DeviceBatch, DeviceBuilder, Dtype, Element, Error, FetchKernels, HostArray, HostBatch, Relayout,
    Route, batch,
};
use ndarray::{Array, s};

use crate::registered::mapped;
use crate::rig::{Rig, eventually, quiet};

const SHAPE: [usize; 3] = [70, 80, 96];
/// Rows that are few, so that the stand-in takes no time for them, and too short for copies.
const ROWS: [usize; 20] = [7, 3, 6, 9, 12, 15, 18, 22, 24, 27, 30, 33, 37, 39, 42, 45, 48, 51, 55, 57];

/// Values that tell their place, pageable, and the same page-locked.
fn volume<T: Element>(rig: &Rig, of: impl Fn(usize) -> T) -> (HostArray, HostArray) {
    let array = Array::from_shape_fn(SHAPE, |(z, y, x)| of((z * 80 + y) * 96 + x));
    let mut pinned = block_on(rig.device.pinned::<T, _>(SHAPE)).unwrap();
    pinned.assign(&array);
    (HostArray::from(array), pinned.share())
}

fn floats(rig: &Rig) -> HostArray {
    volume(rig, |n| n as f32).1
}

fn sent(rig: &Rig, batch: HostBatch) -> DeviceBatch {
    block_on(async { rig.device.transfer(batch).await?.await }).unwrap()
}

/// Routes of a batch that has arrived.
fn routes(batch: &DeviceBatch) -> Vec<Route> {
    batch.explain().fields.iter().map(|field| field.route).collect()
}

fn is_as_on_the_host<T: Element + PartialEq>(batch: &DeviceBatch, name: &str, host: &HostArray) -> bool {
    let found = block_on(batch.field(name).unwrap().read_back::<T>().unwrap()).unwrap();
    found.iter().eq(host.to_array::<T>().unwrap().iter())
}

/// Where crops begin.
fn corners(count: usize, edge: usize) -> Vec<[usize; 3]> {
    (0..count).map(|n| [n * 7 % (70 - edge), n * 11 % (80 - edge), n * 13 % (96 - edge)]).collect()
}

/// Crops that copies bring where kernels don't.
fn crops(volume: &HostArray) -> HostArray {
    volume.crops(corners(20, 32), [32; 3]).unwrap()
}

/// A device whose kernels fetch all that they can.
fn always() -> Option<Rig> {
    Rig::with(|builder| builder.fetch_kernels(FetchKernels::Always))
}

/// Tries for some seconds whether kernels are known to be fast, by a few long rows, for which the stand-in takes no time
/// either. On a machine that holds threads up they may never seem so.
fn are_fast(rig: &Rig, array: &HostArray) -> bool {
    let rows = array.select_rows(ROWS).unwrap();
    let is_fetched = || routes(&sent(rig, batch! { x: rows.clone() })) == [Route::Fetched];
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        if is_fetched() && is_fetched() {
            return true;
        }
    }
    println!("kernels never seem fast on this machine: nothing is shown");
    false
}

#[test]
fn rows_and_crops_that_kernels_fetch_are_those_of_the_host() {
    let Some(rig) = always() else { return };
    let (floats, doubles) = (volume(&rig, |n| n as f32), volume(&rig, |n| n as f64 / 3.0));
    let (halves, bytes) = (volume(&rig, |n| f16::from_f32((n % 2000) as f32)), volume(&rig, |n| (n / 5) as u8));
    let lines = |count: usize, bytes: usize| {
        let array = Array::from_shape_fn((count, bytes), |(y, x)| ((y * bytes + x) / 5) as u8);
        let mut pinned = block_on(rig.device.pinned::<u8, _>((count, bytes))).unwrap();
        pinned.assign(&array);
        (HostArray::from(array), pinned.share())
    };
    let (long, odd) = (lines(70, 7680), lines(4200, 1039));
    let picked: Vec<_> = (0..900).map(|n| n * 31 % 70).collect();
    let check = |what: &str, of: &(HostArray, HostArray), view: &dyn Fn(&HostArray) -> HostArray, expected: Route| {
        let (host, locked) = (view(&of.0), view(&of.1));
        let arrived = sent(&rig, batch! { x: locked });
        assert_eq!(routes(&arrived), [expected], "{what}");
        let is_same = match host.dtype().size() {
            1 => is_as_on_the_host::<u8>(&arrived, "x", &host),
            2 => is_as_on_the_host::<f16>(&arrived, "x", &host),
            4 => is_as_on_the_host::<f32>(&arrived, "x", &host),
            _ => is_as_on_the_host::<f64>(&arrived, "x", &host),
        };
        assert!(is_same, "{what}");
    };
    for (count, edge) in [(500, 16), (100, 17), (40, 33), (6, 48)] {
        let cut = |array: &HostArray| array.crops(corners(count, edge), [edge; 3]).unwrap();
        check("crops", &floats, &cut, Route::Fetched);
    }
    check("crops of f64", &doubles, &|array| array.crops(corners(60, 20), [20; 3]).unwrap(), Route::Fetched);
    check("longer rows of f64", &doubles, &|array| array.crops(corners(6, 32), [32; 3]).unwrap(), Route::Fetched);
    check("a box", &floats, &|array| array.slice(s![3..60, 9..70, 1..]).unwrap(), Route::Fetched);
    // Elements of two bytes where each row begins at a multiple of four.
    check("rows of f16", &halves, &|array| array.slice(s![.., 3..60, 2..96]).unwrap(), Route::Fetched);
    check("odd rows of f16", &halves, &|array| array.slice(s![.., 3..60, 3..95]).unwrap(), Route::Rows);
    // Whole multiples of 16 bytes that begin anywhere, in an array that ends anywhere: as many as a part of a warp writes, one
    // more and one less, and more than it reads at once.
    for width in [4, 7, 8, 15, 16, 17, 30, 31, 32, 62, 63].map(|units| 16 * units) {
        for last in [1039, 1038, 1035, 1032, 1024] {
            let part = s![.., last - width..last];
            check("rows of u8 that end anywhere", &odd, &|array| array.slice(part).unwrap(), Route::Fetched);
        }
    }
    for (z, y, x, width) in [(0, 0, 0, 32), (1, 1, 1, 32), (3, 7, 5, 40), (2, 0, 7, 88), (0, 3, 15, 80)] {
        let part = s![z.., y..70, x..x + width];
        check("rows of f16 anywhere", &halves, &|array| array.slice(part).unwrap(), Route::Fetched);
    }
    for first in 0..17 {
        let part = s![.., ..79, first..first + 64];
        check("rows of u8 anywhere", &bytes, &|array| array.slice(part).unwrap(), Route::Fetched);
        let part = s![.., first..first + 7600];
        check("long rows of u8", &long, &|array| array.slice(part).unwrap(), Route::Fetched);
    }
    check("the last row", &bytes, &|array| array.slice(s![.., .., 16..]).unwrap(), Route::Fetched);
    check("picked rows", &bytes, &|array| array.select_rows(&picked).unwrap(), Route::Fetched);
    check("few rows", &bytes, &|array| array.select_rows([5, 3]).unwrap(), Route::Staged);
    check("rows apart", &floats, &|array| array.slice(s![..;2, 1..;2, ..48]).unwrap(), Route::Fetched);
    drop((floats, doubles, halves, bytes, long, odd));
    rig.finish();
}

#[test]
fn rows_of_a_mapped_file_are_fetched() {
    let Some(rig) = always() else { return };
    let bytes: Vec<u8> = (0..70 * 15_360).map(|n: usize| (n / 5) as u8).collect();
    let file = mapped(&bytes);
    let array = |of: HostArray| HostArray::select_rows(&of, ROWS).unwrap();
    let host = array(HostArray::from_bytes(bytes, Dtype::U8, (70, 15_360)).unwrap());
    let locked = block_on(rig.device.register(file.array(Dtype::U8, (70, 15_360), 0).unwrap())).unwrap();
    assert!(locked.is_direct());
    let arrived = sent(&rig, batch! { x: array(locked.clone().into()) });
    assert_eq!(routes(&arrived), [Route::Fetched]);
    assert!(is_as_on_the_host::<u8>(&arrived, "x", &host));
    drop((arrived, locked));
    rig.finish();
}

#[test]
fn fetched_rows_are_cast_and_stand_beside_other_fields() {
    let settings =
        |builder: DeviceBuilder<'static>| builder.relayout(Relayout::Device).fetch_kernels(FetchKernels::Always);
    let Some(rig) = Rig::with(settings) else { return };
    let (floats, locked) = volume(&rig, |n| n as f32 / 7.0);
    let labels = HostArray::from(vec![7_u8; 300_000]);
    let wanted = [Route::Staged, Route::Fetched, Route::Fetched, Route::Staged];
    for _ in 0..5 {
        let batch = batch! { a: labels.clone(), b: crops(&locked).cast::<f64>(), c: crops(&locked), d: 5_u8 };
        let arrived = sent(&rig, batch);
        assert_eq!(routes(&arrived), wanted);
        assert!(is_as_on_the_host::<u8>(&arrived, "a", &labels));
        assert!(is_as_on_the_host::<f64>(&arrived, "b", &crops(&floats).cast::<f64>()));
        assert!(is_as_on_the_host::<f32>(&arrived, "c", &crops(&floats)));
        assert!(is_as_on_the_host::<u8>(&arrived, "d", &HostArray::from(5_u8)));
    }
    drop(locked);
    rig.finish();
}

#[test]
fn behind_the_sixty_third_field_nothing_is_fetched() {
    let Some(rig) = always() else { return };
    let (floats, locked) = volume(&rig, |n| n as f32 / 7.0);
    let names: Vec<_> = (0..70).map(|field| field.to_string()).collect();
    let wanted: Vec<_> = (0..70).map(|field| if field < 63 { Route::Fetched } else { Route::Staged }).collect();
    let rows = |of: &HostArray| of.select_rows(ROWS).unwrap();
    let arrived = sent(&rig, HostBatch::from_fields(names.iter().map(|name| (name.clone(), rows(&locked)))));
    assert_eq!(routes(&arrived), wanted);
    for name in ["0", "62", "63", "69"] {
        assert!(is_as_on_the_host::<f32>(&arrived, name, &rows(&floats)), "{name}");
    }
    drop((arrived, locked));
    rig.finish();
}

#[test]
fn while_a_batch_lies_there_for_the_consumer_copies_are_made() {
    let Some(rig) = Rig::new() else { return };
    let floats = floats(&rig);
    let item = || batch! { x: floats.select_rows(ROWS).unwrap() };
    // Until kernels are fast before and after.
    for _ in 0..20 {
        if !are_fast(&rig, &floats) {
            break;
        }
        let (lay_there, other) = block_on(async {
            let lies_there = rig.device.transfer(item()).await.unwrap();
            rig.device.drain().await.unwrap();
            let other = rig.device.transfer(item()).await.unwrap().await.unwrap();
            (lies_there.await.unwrap(), other)
        });
        if routes(&lay_there) == [Route::Fetched] && routes(&sent(&rig, item())) == [Route::Fetched] {
            assert_eq!(routes(&other), [Route::Staged], "one is not taken");
            break;
        }
    }
    let mut lasts = Vec::new();
    for _ in 0..20 {
        if !are_fast(&rig, &floats) {
            break;
        }
        let (first, last) = block_on(async {
            let other = rig.device.transfer(("x", 1_u8)).await.unwrap();
            rig.device.drain().await.unwrap();
            let mut batches = stream::iter((0..3).map(|_| item())).to_device(&rig.device).buffered(2);
            let first = batches.next().await.unwrap().unwrap();
            rig.device.drain().await.unwrap();
            batches.next().await.unwrap().unwrap();
            let last = batches.next().await.unwrap().unwrap();
            drop(other);
            (first, last)
        });
        if routes(&first) == [Route::Fetched] && routes(&sent(&rig, item())) == [Route::Fetched] {
            lasts.push(routes(&last)[0]);
        }
        if lasts.last() == Some(&Route::Staged) {
            break;
        }
    }
    // When the last was sent the second had arrived, in any round in which this thread was not held up.
    assert!(lasts.is_empty() || lasts.contains(&Route::Staged), "{lasts:?}");
    drop(floats);
    rig.finish();
}

#[test]
fn where_it_is_ruled_out_no_kernel_fetches() {
    let Some(rig) = Rig::with(|builder| builder.fetch_kernels(FetchKernels::Never)) else { return };
    let floats = floats(&rig);
    for _ in 0..3 {
        assert_eq!(routes(&sent(&rig, batch! { x: crops(&floats) })), [Route::Rows]);
    }
    let short = floats.crops(corners(500, 16), [16; 3]).unwrap();
    assert_eq!(routes(&sent(&rig, batch! { x: short })), [Route::Staged], "of rows that are too short for copies");
    drop(floats);
    rig.finish();
}

#[test]
fn a_gpu_whose_kernels_can_not_read_the_hosts_memory_copies() {
    const REGISTERED_POINTERS: i32 = 91;
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    stand_in.attribute(None, REGISTERED_POINTERS, 0);
    let device = inflight::Device::from_context(rig.context()).unwrap();
    let mut pinned = block_on(device.pinned::<f32, _>(SHAPE)).unwrap();
    pinned.fill(1.0);
    let batch = batch! { x: crops(&pinned.share()) };
    let arrived = block_on(async { device.transfer(batch).await?.await }).unwrap();
    assert_eq!(routes(&arrived), [Route::Rows]);
    drop(arrived);
    rig.finish();
}

#[test]
fn after_a_slow_kernel_copies_are_made_for_a_while_and_then_one_is_tried_again() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let (floats, rest) = (floats(&rig), Duration::from_millis(100));
    let rows = floats.select_rows(ROWS).unwrap();
    let item = || batch! { x: rows.clone() };
    if !are_fast(&rig, &floats) {
        return;
    }
    stand_in.manual(true);
    let slow = block_on(rig.device.transfer(item())).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(30) {
        std::thread::yield_now();
    }
    stand_in.manual(false);
    let (slow, over) = (block_on(slow).unwrap(), Instant::now());
    let next = sent(&rig, item());
    // Where this thread was held up, nothing is shown.
    if routes(&slow) == [Route::Fetched] && over.elapsed() < rest / 2 {
        assert_eq!(routes(&next), [Route::Staged]);
        eventually("a kernel is tried again", || routes(&sent(&rig, item())) == [Route::Fetched]);
        assert!(over.elapsed() >= rest * 9 / 10, "not before");
    }
    drop((floats, rows, slow, next));
    rig.finish();
}

/// Whole pages, which nothing else has a part of; tells when it is dropped.
struct Watched(Vec<f32>, usize, Arc<AtomicBool>);

impl AsRef<[f32]> for Watched {
    fn as_ref(&self) -> &[f32] {
        &self.0[self.1..][..SHAPE.iter().product()]
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.2.store(true, Ordering::Release);
    }
}

/// Rows of an array that tells when it is dropped, and of which nothing else is left.
fn watched(rig: &Rig) -> (HostBatch, Arc<AtomicBool>) {
    const PAGE: usize = 4096;
    let gone = Arc::new(AtomicBool::new(false));
    let values = vec![1.0; SHAPE.iter().product::<usize>() + PAGE];
    let first = values.as_ptr().align_offset(PAGE);
    let array = HostArray::from_owner::<f32>(Watched(values, first, gone.clone()), SHAPE).unwrap();
    let registered = block_on(rig.device.register(array)).unwrap();
    assert!(registered.is_direct());
    let batch = batch! { x: registered.select_rows(ROWS).unwrap() };
    drop(registered);
    // A block is there, and nobody else calls the driver.
    drop(sent(rig, batch.clone()));
    block_on(rig.device.drain()).unwrap();
    rig.stand_in.into_iter().for_each(quiet);
    (batch, gone)
}

/// The stream of the last call of a function.
fn stream_of(log: &[String], function: &str) -> String {
    let line = log.iter().rfind(|line| line.starts_with(function)).unwrap();
    line.split_once("stream=").unwrap().1.split(' ').next().unwrap().to_owned()
}

#[test]
fn invariant_01_dropped_while_a_kernel_fetches_both_ends_are_kept_until_it_is_done() {
    let Some(rig) = always() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let (batch, gone) = watched(&rig);
    stand_in.log(true);
    stand_in.manual(true);
    let transfer = block_on(rig.device.transfer(batch)).unwrap();
    eventually("the kernel is enqueued", || stand_in.calls(Some("cuEventRecord")) == 1);
    let log = stand_in.log_take();
    assert_eq!(stream_of(&log, "cuEventRecord"), stream_of(&log, "cuLaunchKernel"), "invariant 5");
    drop(transfer);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(20) {
        std::thread::yield_now();
    }
    assert!(!gone.load(Ordering::Acquire), "the kernel reads it");
    assert!(rig.device.stats().device_used > 0, "the kernel writes it");
    stand_in.manual(false);
    eventually("the source is dropped", || gone.load(Ordering::Acquire));
    rig.finish();
}

#[test]
fn a_kernel_that_is_refused_fails_its_batch_and_is_the_last() {
    let Some(rig) = always() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let (batch, gone) = watched(&rig);
    stand_in.fail(Some("cuLaunchKernel"), 1, 1);
    let error = block_on(async { rig.device.transfer(batch).await?.await }).unwrap_err();
    assert!(matches!(error, Error::Driver { code: 1, call: "cuLaunchKernel", .. }), "{error}");
    let batch = error.take_batch().unwrap();
    for _ in 0..3 {
        let arrived = sent(&rig, batch.clone());
        assert_eq!(routes(&arrived), [Route::Staged], "no kernel is asked for any more");
        let found = block_on(arrived.field("x").unwrap().read_back::<f32>().unwrap()).unwrap();
        assert!(found.iter().all(|value| *value == 1.0));
    }
    drop((batch, error));
    eventually("the source is dropped", || gone.load(Ordering::Acquire));
    rig.finish();
}

#[test]
fn a_kernel_without_an_event_keeps_its_source_until_a_later_one_on_its_stream() {
    let Some(rig) = always() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let (batch, gone) = watched(&rig);
    stand_in.manual(true);
    stand_in.log(true);
    stand_in.fail(Some("cuEventRecord"), 1, 1);
    let transfer = block_on(rig.device.transfer(batch)).unwrap();
    eventually("the record failed", || stand_in.faults_left() == 0);
    block_on(transfer).unwrap_err();
    eventually("another is recorded", || stand_in.calls(Some("cuEventRecord")) >= 2);
    let log = stand_in.log_take();
    assert_eq!(stream_of(&log, "cuEventRecord"), stream_of(&log, "cuLaunchKernel"));
    assert!(!gone.load(Ordering::Acquire), "the kernel reads it");
    stand_in.manual(false);
    eventually("the source is dropped", || gone.load(Ordering::Acquire));
    assert!(rig.device.stats().device_quarantined > 0, "the block is not used again");
    block_on(rig.device.drain()).unwrap();
    assert_eq!(stand_in.violations(), Vec::<String>::new());
}
