//! Dropping, aborting and forgetting at every moment (invariants 1, 3 and 8).

use std::sync::Arc;

use futures::FutureExt;
use futures::executor::block_on;
use inflight::{HostArray, HostBatch};
use tokio_test::{assert_pending, task};

use crate::bed::{by_hand, elements, eventually, host_stream, on_each, on_host, on_hosts, pattern};

/// A source that tells whether it is still kept.
struct Source(Vec<u8>, #[expect(dead_code, reason = "counted")] Arc<()>);

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A registered array, and what is shared as long as its source is kept.
pub(crate) async fn registered(device: &inflight::Device, bytes: usize) -> (inflight::Registered, Arc<()>) {
    let kept = Arc::new(());
    let array = HostArray::from_owner::<u8>(Source(pattern(0, bytes), kept.clone()), bytes).unwrap();
    (device.register(array).await.unwrap(), kept)
}

#[test]
fn invariant_01_dropping_in_flight_keeps_both_ends_until_complete_b03_b11() {
    for bytes in [64, 4096, 256 * 1024 + 1, 4 << 20] {
        let sim = by_hand(64 << 20);
        let (source, kept) = registered(sim.device(), bytes).now_or_never().unwrap();
        let transfer = sim.device().try_transfer(("x", source)).unwrap();
        assert_eq!(sim.pending().len(), 1, "something is in flight");
        drop(transfer);
        assert_eq!(Arc::strong_count(&kept), 2, "the copy still reads the source");
        let used = sim.device().stats().device_used;
        assert!(used >= bytes, "and still writes the block");
        sim.complete_all();
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_eq!(sim.device().stats().device_used, 0);
    }
}

#[test]
fn invariant_01_forgetting_leaks_at_worst_and_stays_counted_b33() {
    let sim = by_hand(64 << 20);
    let (source, kept) = registered(sim.device(), 4096).now_or_never().unwrap();
    let mut transfer = task::spawn(sim.device().try_transfer(("x", source)).unwrap());
    assert_pending!(transfer.poll());
    std::mem::forget(transfer);
    assert_eq!(Arc::strong_count(&kept), 2);
    sim.complete_all();
    assert_eq!(Arc::strong_count(&kept), 1, "the copy is done with the source");
    assert_eq!(sim.device().stats().device_used, 4096, "the forgotten batch keeps its block");
}

/// Uses the device when it is dropped.
struct Sender(Vec<u8>, inflight::Device, Arc<std::sync::Mutex<Vec<inflight::Transfer>>>);

impl AsRef<[u8]> for Sender {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Ok(transfer) = self.1.try_transfer(("y", vec![1_u8; 100_000])) {
            self.2.lock().unwrap().push(transfer);
        }
    }
}

#[test]
fn a_source_may_use_the_device_when_it_is_dropped() {
    on_each(
        |builder| builder.staging_bytes(64 << 10),
        async |bed| {
            let sent = Arc::default();
            // Through the threads, in pieces, and the short way.
            for bytes in [300_000, 100] {
                let source = Sender(pattern(0, bytes), bed.device.clone(), Arc::clone(&sent));
                let array = HostArray::from_owner::<u8>(source, bytes).unwrap();
                let batch = bed.device.transfer(("x", array)).await.unwrap().await.unwrap();
                assert_eq!(elements(&on_host::<u8>(&batch, "x").await), pattern(0, bytes));
                eventually("the source is dropped", || !sent.lock().unwrap().is_empty());
                let transfer = sent.lock().unwrap().pop().unwrap();
                transfer.await.unwrap();
            }
        },
    );
}

#[test]
fn invariant_01_dropping_at_each_state_gives_everything_back_b32_b35() {
    for state in 0..5 {
        let sim = by_hand(1 << 20);
        sim.hold_staging(state < 2);
        let batch = HostBatch::new().with("a", vec![1_u8; 100_000]).with("b", vec![2_u8; 100_000]);
        let mut transfer = task::spawn(sim.device().try_transfer(batch).unwrap());
        if state > 0 {
            assert_pending!(transfer.poll());
        }
        if state >= 2 {
            assert_eq!(sim.pending().len(), 2);
        }
        if state >= 3 {
            assert!(sim.complete_field("a"));
        }
        if state >= 4 {
            assert!(sim.complete_field("b"));
        }
        drop(transfer);
        assert_eq!(sim.device().stats().device_used > 0, state < 4, "state {state}");
        sim.hold_staging(false);
        sim.complete_all();
        let stats = sim.device().stats();
        assert_eq!((stats.device_used, stats.operations, stats.limbo_blocks), (0, 0, 0), "state {state}");
        assert!(sim.device().drain().now_or_never().unwrap().is_ok());
    }
}

#[test]
fn invariant_03_a_block_is_reused_only_after_the_work_of_its_leases_b13_b29() {
    let sim = by_hand(64 << 20);
    let stream = host_stream(sim.device());
    let send = |byte: u8| {
        let transfer = sim.device().try_transfer(("x", vec![byte; 4096])).unwrap();
        sim.complete_next();
        transfer.now_or_never().unwrap().unwrap()
    };
    let first = send(1);
    let lease = first.on(&stream).unwrap();
    let seen = lease.run(|fields| Ok(fields.view::<u8>("x")?.to_owned()));
    lease.end().unwrap();
    drop(first);
    assert_eq!(sim.device().stats().limbo_blocks, 1, "its work is queued and not done");
    let second = send_and_keep_task(&sim, 2);
    assert_eq!(sim.device().stats().device_used, 8192, "the next batch has a block of its own");
    sim.complete_all();
    assert!(seen.now_or_never().unwrap().unwrap().iter().all(|byte| *byte == 1), "poison or the next batch was seen");
    let stats = sim.device().stats();
    assert_eq!((stats.limbo_blocks, stats.device_idle), (0, 4096), "now it may be used again");
    drop(second);
}

fn send_and_keep_task(sim: &inflight::sim::Simulator, byte: u8) -> inflight::DeviceBatch {
    let transfer = sim.device().try_transfer(("x", vec![byte; 4096])).unwrap();
    assert!(sim.complete_field("x"));
    transfer.now_or_never().unwrap().unwrap()
}

#[test]
fn invariant_03_a_forgotten_lease_leaks_its_block() {
    let sim = by_hand(64 << 20);
    let stream = host_stream(sim.device());
    let batch = send_and_keep_task(&sim, 1);
    std::mem::forget(batch.on(&stream).unwrap());
    drop(batch);
    sim.complete_all();
    assert_eq!(sim.device().stats().device_used, 4096);
}

#[test]
fn invariant_03_a_lease_that_took_no_view_records_nothing() {
    let sim = by_hand(64 << 20);
    let stream = host_stream(sim.device());
    let batch = send_and_keep_task(&sim, 1);
    let before = sim.counters();
    batch.on(&stream).unwrap().end().unwrap();
    drop(batch.on(&stream).unwrap());
    assert_eq!(sim.counters(), before, "no driver call at all");
}

#[test]
fn invariant_08_a_drop_never_waits_b34() {
    // Nothing on a simulated device gets done by itself: a drop that waited would never return.
    let sim = by_hand(64 << 20);
    let stream = host_stream(sim.device());
    let batch = send_and_keep_task(&sim, 1);
    let lease = batch.on(&stream).unwrap();
    drop(lease.run(|_| Ok(())));
    let read = batch.read_back();
    drop((lease, read, batch, stream));
    drop(sim.device().try_transfer(("x", vec![2_u8; 4096])).unwrap());
    let pending = sim.pending().len();
    assert_eq!(pending, 3);
    sim.complete_all();
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn a_thousand_transfers_dropped_at_random_moments_come_back_clean_b35() {
    on_each(
        |builder| builder.memory_bytes(1 << 20).staging_bytes(64 << 10),
        |bed| async move {
            for n in 0..1000_usize {
                let bytes = [64, 4096, 70_000, 200_000][n % 4];
                let Ok(transfer) = bed.device.try_transfer(("x", pattern(n, bytes))) else { continue };
                match n % 3 {
                    0 => drop(transfer),
                    1 => drop(transfer.early().now_or_never()),
                    _ => {
                        let batch = transfer.await.unwrap();
                        assert_eq!(elements(&on_host::<u8>(&batch, "x").await), pattern(n, bytes));
                    }
                }
            }
            bed.device.drain().await.unwrap();
            eventually("all memory is back", || bed.device.stats().device_used == 0);
        },
    );
}

#[test]
fn dropping_the_device_first_loses_nothing_b37() {
    let sim = by_hand(64 << 20);
    let transfers: Vec<_> = (0..3_u8).map(|n| sim.device().try_transfer(("x", vec![n; 4096])).unwrap()).collect();
    let driver = sim.clone();
    drop(sim);
    driver.complete_all();
    for (n, transfer) in transfers.into_iter().enumerate() {
        let batch = transfer.now_or_never().unwrap().unwrap();
        assert!(batch.field("x").unwrap().as_host::<u8>().unwrap().iter().all(|byte| usize::from(*byte) == n));
    }
}

#[test]
fn who_waits_for_page_locked_memory_gets_that_of_a_small_batch_that_is_sent_b11() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let device = inflight::Device::builder().host().pinned_bytes(4096).build().unwrap();
        block_on(async {
            for n in 0..20 {
                // The last one's memory is all there is. Nothing else goes on that would bring it back by the way.
                let mut array = device.pinned::<u8, _>(4096).await.unwrap();
                array.as_slice_mut().unwrap().copy_from_slice(&pattern(n, 4096));
                let batch = device.transfer(("x", array)).await.unwrap().await.unwrap();
                assert_eq!(elements(&on_host::<u8>(&batch, "x").await), pattern(n, 4096));
            }
        });
        done.send(()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(std::time::Duration::from_secs(60)), Ok(()), "the memory never comes back");
}

#[test]
fn invariant_07_an_array_that_calls_the_device_when_it_is_dropped_stops_nobody() {
    on_hosts(
        |builder| builder,
        |bed| async move {
            let (source, kept) = registered(&bed.device, 400_000).await;
            // Gathered, so that nobody but the batch keeps the registration, which calls the device when it ends.
            let rows = source.slice(ndarray::s![..;2]).unwrap();
            drop(source);
            let device = bed.device.clone();
            let sent =
                std::thread::spawn(move || block_on(async { device.transfer(("x", rows)).await.unwrap().await }));
            eventually("the batch arrives", || sent.is_finished());
            assert!(sent.join().unwrap().is_ok());
            eventually("the registration has ended", || Arc::strong_count(&kept) == 1);
        },
    );
}

#[test]
fn who_drains_waits_until_page_locked_sources_are_back() {
    on_each(
        |builder| builder,
        async |bed| {
            for n in 0..20 {
                let array = bed.device.pinned::<u8, _>(4096).await.unwrap();
                drop(bed.device.transfer(("x", array)).await.unwrap());
                bed.device.drain().await.unwrap();
                assert_eq!(bed.device.stats().pinned_used, 0, "batch {n}");
            }
        },
    );
}
