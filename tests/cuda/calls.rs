//! How many calls of the driver a batch costs, counted by the stand-in.

use futures::executor::block_on;
use futures::{StreamExt, stream};
use inflight::{BatchStreamExt, DeviceBatch, HostBatch, batch};

use crate::rig::{Rig, StandIn};

const BATCHES: u64 = 200;

/// Calls that a batch itself is made of.
const WORK: [&str; 7] = [
    "cuMemcpyHtoDAsync_v2",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuEventCreate",
    "cuMemAllocFromPoolAsync",
    "cuMemHostAlloc",
];
/// Asked once whenever a thread is put into the context.
const ENTERING: &str = "cuCtxGetCurrent";
/// Enters by itself; how often it is called depends on who is quicker.
const ASKING: &str = "cuEventQuery";

fn calls(stand_in: &StandIn, names: &[&str]) -> Vec<u64> {
    names.iter().map(|name| stand_in.calls(Some(name))).collect()
}

/// Calls a batch in steady state, of each of `WORK`; and how often a thread entered the context beside asking.
fn cost(rig: &Rig, stand_in: &StandIn, made: impl Fn() -> HostBatch, used: impl Fn(DeviceBatch)) -> (Vec<f64>, f64) {
    let run = |batches: u64| {
        let source = stream::iter((0..batches).map(|_| made()));
        block_on(source.to_device(&rig.device).buffered(4).for_each(|batch| {
            used(batch.unwrap());
            std::future::ready(())
        }));
        block_on(rig.device.drain()).unwrap();
    };
    run(BATCHES);
    let count = || (calls(stand_in, &WORK), calls(stand_in, &[ENTERING, ASKING]));
    let before = count();
    run(BATCHES);
    let after = count();
    let each = |after: u64, before: u64| (after - before) as f64 / BATCHES as f64;
    let work = after.0.iter().zip(&before.0).map(|(after, before)| each(*after, *before)).collect();
    (work, each(after.1[0], before.1[0]) - each(after.1[1], before.1[1]))
}

#[test]
fn one_field_and_eight_small_ones_cost_a_copy_and_a_record() {
    let Some(rig) = Rig::with(|builder| builder.batches_per_call(1)) else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let one = || batch! { x: vec![1_u8; 4096] };
    let eight = || {
        batch! {
            a: [1_u8; 512], b: [2_u8; 512], c: [3_u8; 512], d: [4_u8; 512],
            e: [5_u8; 512], f: [6_u8; 512], g: [7_u8; 512], h: [8_u8; 512]
        }
    };
    for (what, made) in [("one field", &one as &dyn Fn() -> HostBatch), ("eight small fields", &eight)] {
        let (work, entering) = cost(&rig, stand_in, made, drop);
        println!("{what}: {WORK:?} = {work:?}, entering = {entering}");
        assert_eq!(work[..4], [1.0, 1.0, 0.0, 0.0], "{what}: a copy and a record");
        assert!(work[4..6].iter().all(|calls| *calls <= 0.1) && work[6] == 0.0, "{what}: nothing is made: {work:?}");
        // The reactor's looks between jobs of its own ask what is current, too: a few in a hundred.
        assert!(entering <= 1.2, "{what}: once for both, {entering}");
    }
    rig.finish();
}

#[test]
fn small_batches_of_a_source_that_is_ahead_share_calls_and_records() {
    let Some(rig) = Rig::with(|builder| builder.batches_per_call(8)) else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let calls =
        || [WORK[0], WORK[1], "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"].map(|name| stand_in.calls(Some(name)));
    let run = || {
        let source = stream::iter((0..BATCHES).map(|number| batch! { x: vec![number as u8; 4096] }));
        block_on(source.to_device(&rig.device).buffered(33).for_each(|batch| {
            batch.unwrap();
            std::future::ready(())
        }));
        block_on(rig.device.drain()).unwrap();
    };
    run();
    let before = calls();
    run();
    let [alone, records, old, new] = std::array::from_fn(|place| calls()[place] - before[place]);
    println!("{BATCHES} batches: {alone} copies alone, {} of several, {records} records", old + new);
    assert!(alone + old + new <= BATCHES / 2, "several go in one call");
    assert_eq!(records, alone + old + new, "one record for each call");
    assert!(old + new <= alone / 4, "they lie side by side, here and there: one copy brings several");
    rig.finish();
}

#[test]
fn a_lease_with_a_view_costs_one_record_and_at_most_one_wait() {
    let Some(rig) = Rig::with(|builder| builder.batches_per_call(1)) else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let (work, entering) = cost(
        &rig,
        stand_in,
        || batch! { x: vec![1_u8; 4096] },
        |batch| {
            let lease = batch.on(&rig.stream).unwrap();
            lease.view::<u8>("x").unwrap();
            lease.end().unwrap();
        },
    );
    println!("{WORK:?} = {work:?}, entering = {entering}");
    assert_eq!(work[..2], [1.0, 2.0], "a copy, a record behind it, and one behind the lease");
    assert!(work[2] <= 1.0, "at most one wait");
    assert_eq!(work[3], 2.0, "asked at the lease's begin and end whether the stream is captured");
    // A few more where the machine is slow and more is in limbo than before; not one for each batch.
    assert!(work[4] <= 0.5 && work[5] <= 0.5 && work[6] == 0.0, "nothing is made or allocated: {work:?}");
    rig.finish();
}

#[test]
fn nothing_is_asked_while_nothing_is_pending_b112() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    drop(rig.batch(1, 300_000));
    block_on(rig.device.drain()).unwrap();
    crate::rig::eventually("the reactor rests", || {
        let before = stand_in.calls(None);
        std::thread::yield_now();
        let pause = std::time::Instant::now();
        while pause.elapsed() < std::time::Duration::from_millis(50) {
            std::thread::yield_now();
        }
        stand_in.calls(None) == before
    });
    rig.finish();
}

#[test]
fn no_function_of_the_hosts_is_queued_on_a_stream_b47_b48() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    for bytes in crate::rig::SIZES {
        let batch = rig.batch(1, bytes);
        let lease = batch.on(&rig.stream).unwrap();
        let view = lease.view::<u8>("x").unwrap();
        drop(block_on(block_on(rig.device.read_wait(&view, &rig.stream)).unwrap()).unwrap());
        drop(block_on(batch.read_back()).unwrap());
        let mut slice = rig.stream.alloc_zeros::<u8>(bytes).unwrap();
        block_on(rig.device.write(vec![1_u8; bytes], &mut slice, &rig.stream)).unwrap();
    }
    block_on(rig.device.drain()).unwrap();
    assert!(stand_in.calls(Some("cuEventQuery")) > 0, "events are asked instead");
    assert_eq!(stand_in.calls(Some("cuLaunchHostFunc")), 0);
    rig.finish();
}
