//! Batches that are handed over while they arrive.

use futures::{FutureExt, StreamExt, stream};
use inflight::{BatchStreamExt, DeviceBatch, Error, Transfer, batch};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

use crate::bed::{by_hand, host_stream, on_hosts, pattern};

const RAW: usize = 100_000;
const LABELS: usize = 1_000_000;

fn early(sim: &inflight::sim::Simulator) -> DeviceBatch {
    let batch = batch! { raw: pattern(1, RAW), labels: pattern(2, LABELS) };
    sim.device().try_transfer(batch).unwrap().early().now_or_never().unwrap().unwrap()
}

#[test]
fn an_early_batch_comes_when_its_first_field_is_queued() {
    let sim = by_hand(64 << 20);
    sim.hold_staging(true);
    let batch = batch! { raw: pattern(1, RAW), labels: pattern(2, LABELS) };
    let mut early = task::spawn(sim.device().try_transfer(batch).unwrap().early());
    assert_pending!(early.poll());
    sim.hold_staging(false);
    assert!(early.is_woken());
    let batch = assert_ready_ok!(early.poll());
    assert!(!batch.is_ready() && !batch.field("raw").unwrap().is_ready());
    let error = batch.field("raw").unwrap().as_host::<u8>().unwrap_err();
    assert_eq!(error.to_string(), "field \"raw\" has not arrived yet: await its `ready`");
}

#[test]
fn raw_is_used_while_labels_are_on_their_way() {
    let sim = by_hand(64 << 20);
    let stream = host_stream(sim.device());
    let batch = early(&sim);
    let lease = batch.on(&stream).unwrap();
    lease.view::<u8>("raw").unwrap();
    let mut forward = task::spawn(stream.run(|| "forward"));
    assert_pending!(forward.poll());
    assert!(sim.complete_field("raw"));
    assert!(sim.complete_on(inflight::sim::PendingStream::Compute(0)), "forward runs behind raw alone");
    assert_eq!(assert_ready_ok!(forward.poll()), "forward");
    assert!(batch.field("raw").unwrap().is_ready() && !batch.field("labels").unwrap().is_ready());
    lease.view::<u8>("labels").unwrap();
    let mut loss = task::spawn(stream.run(|| "loss"));
    assert!(!sim.complete_on(inflight::sim::PendingStream::Compute(0)), "the loss waits for the labels, on the device");
    while sim.complete_field("labels") {}
    assert!(sim.complete_on(inflight::sim::PendingStream::Compute(0)));
    assert_eq!(assert_ready_ok!(loss.poll()), "loss");
}

#[test]
fn work_on_raw_alone_begins_while_labels_are_on_their_way() {
    let sim = by_hand(64 << 20);
    let stream = host_stream(sim.device());
    let batch = early(&sim);
    let lease = batch.on(&stream).unwrap();
    let mut forward = task::spawn(lease.run_on(&["raw"], |fields| {
        assert!(matches!(fields.view::<u8>("labels"), Err(Error::NotQueued { .. })));
        Ok(fields.view::<u8>("raw")?.len())
    }));
    let mut loss = task::spawn(lease.run(|fields| Ok(fields.view::<u8>("labels")?.len())));
    let mut unknown = task::spawn(lease.run_on(&["mask"], |_| Ok(())));
    assert!(matches!(assert_ready_err!(unknown.poll()), Error::UnknownField { .. }));
    assert!(sim.complete_field("raw"));
    assert!(sim.complete_on(inflight::sim::PendingStream::Compute(0)));
    assert_eq!(assert_ready_ok!(forward.poll()), RAW);
    assert!(!batch.field("labels").unwrap().is_ready());
    sim.complete_all();
    assert_eq!(assert_ready_ok!(loss.poll()), LABELS);
}

#[test]
fn invariant_05_a_field_that_is_not_queued_can_only_be_awaited() {
    let sim = by_hand(64 << 20);
    let settings = |builder: inflight::DeviceBuilder<'static>| builder.staging_bytes(128 << 10);
    let small_ring = inflight::sim::Simulator::with(settings).unwrap();
    drop(sim);
    let sim = small_ring;
    let stream = host_stream(sim.device());
    let batch = early(&sim);
    let lease = batch.on(&stream).unwrap();
    lease.view::<u8>("raw").unwrap();
    for error in [lease.view::<u8>("labels").unwrap_err(), lease.wait("labels").unwrap_err()] {
        assert_eq!(
            error.to_string(),
            "the copies of field \"labels\" are not all enqueued yet: await `queued` of the lease"
        );
    }
    let mut task = task::spawn(lease.run(|fields| fields.view::<u8>("labels").map(|_| ())));
    let mut queued = task::spawn(lease.queued("labels"));
    assert_pending!(queued.poll());
    while queued.poll().is_pending() {
        assert!(sim.complete_next());
    }
    assert!(!batch.field("labels").unwrap().is_ready(), "queued is not arrived");
    drop(queued);
    lease.view::<u8>("labels").unwrap();
    sim.complete_all();
    assert!(matches!(assert_ready_err!(task.poll()), Error::NotQueued { .. }), "the work was queued before the labels");
    assert_eq!(sim.counters().unrecorded_queries, 0);
}

#[test]
fn a_failure_after_the_early_hand_over_is_seen_by_all_who_wait() {
    let sim = by_hand(64 << 20);
    let stream = host_stream(sim.device());
    let batch = early(&sim);
    let lease = batch.on(&stream).unwrap();
    let mut ready = task::spawn(batch.field("labels").unwrap().ready());
    let mut work = task::spawn(lease.run(|fields| Ok(fields.view::<u8>("labels")?.len())));
    assert_pending!(ready.poll());
    sim.complete_field("raw");
    assert!(sim.fail_next(1));
    sim.complete_all();
    assert_ready_err!(ready.poll());
    assert_ready_err!(work.poll());
    assert!(batch.on(&stream).is_err());
    assert!(batch.field("raw").unwrap().is_ready(), "what arrived has arrived");
}

#[test]
fn early_streams_keep_order_and_arrive_whole() {
    on_hosts(
        |builder| builder,
        |bed| async move {
            let stream = host_stream(&bed.device);
            let source = stream::iter(0..6_usize).map(|n| batch! { raw: pattern(n, RAW), labels: pattern(n, LABELS) });
            let mut batches = source.to_device(&bed.device).map(Transfer::early).buffered(3);
            let mut sums = Vec::new();
            while let Some(batch) = batches.next().await {
                let batch = batch.unwrap();
                let lease = batch.on(&stream).unwrap();
                lease.queued("labels").await.unwrap();
                sums.push(lease.run(|fields| {
                    let sum = |name| fields.view::<u8>(name).map(|x| x.iter().map(|x| u64::from(*x)).sum::<u64>());
                    Ok((sum("raw")?, sum("labels")?))
                }));
            }
            for (n, sum) in sums.into_iter().enumerate() {
                let total = |bytes| pattern(n, bytes).into_iter().map(u64::from).sum::<u64>();
                assert_eq!(sum.await.unwrap(), (total(RAW), total(LABELS)));
            }
        },
    );
}

#[test]
fn an_early_batch_of_nothing_is_there_at_once() {
    let sim = by_hand(1 << 20);
    let early = sim.device().try_transfer(inflight::HostBatch::new()).unwrap().early();
    let mut early = task::spawn(early);
    assert!(assert_ready!(early.poll()).unwrap().is_ready());
}

#[test]
fn a_field_of_which_one_chunk_failed_does_not_arrive() {
    let sim = inflight::sim::Simulator::with(|builder| builder.staging_bytes(1 << 20)).unwrap();
    let stream = host_stream(sim.device());
    let batch = early(&sim);
    let mut ready = task::spawn(batch.field("labels").unwrap().ready());
    let work = batch.on(&stream).unwrap().run(|fields| fields.view::<u8>("labels").map(|_| ()));
    assert!(sim.complete_field("raw"));
    assert_pending!(ready.poll());
    assert!(sim.fail_next(1), "the first of four chunks");
    assert!(ready.is_woken());
    sim.complete_all();
    let error = assert_ready_err!(ready.poll());
    assert!(matches!(error, Error::Driver { code: 1, .. }), "{error}");
    assert!(!batch.field("labels").unwrap().is_ready() && batch.field("raw").unwrap().is_ready());
    assert!(work.now_or_never().unwrap().is_err(), "work that was queued before does not see half a field");
}
