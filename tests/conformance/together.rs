//! Small batches that go to the device in one call where the source is ahead.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::try_join_all;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::sim::{FaultPoint, PendingStream, Simulator};
use inflight::{BatchStreamExt, Device, DeviceBatch, Error, HostArray, LinkModel, Transfer};

use crate::bed::{elements, on_each, on_host, pattern};

fn sim(together: usize) -> Simulator {
    let sim = Simulator::with(|builder| builder.memory_bytes(64 << 20).batches_per_call(together)).unwrap();
    sim.poison(true);
    // Batches that get new memory go through the staging threads; what is waited for here is where memory is used again.
    let first: Vec<_> = [1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1 << 20]
        .map(|bytes| sim.device().try_transfer(("x", vec![0_u8; bytes])).unwrap())
        .into();
    sim.complete_all();
    drop(first);
    sim
}

fn submit(sim: &Simulator, count: u8) -> Vec<Transfer> {
    (0..count).map(|n| sim.device().try_transfer(("x", vec![n; 1024])).unwrap()).collect()
}

fn copies(sim: &Simulator) -> Vec<(usize, usize)> {
    sim.pending().iter().map(|op| (op.fields.len(), op.bytes)).collect()
}

#[test]
fn every_batch_arrives_in_order_and_by_itself() {
    for depth in [1, 2, 7, 40] {
        on_each(
            |builder| builder.batches_per_call(8),
            |bed| async move {
                let source = stream::iter((0..200).map(|n| ("x", pattern(n, 1 + n * 37 % 5000))));
                let mut batches = source.to_device(&bed.device).buffered(depth);
                let mut count = 0;
                while let Some(batch) = batches.try_next().await.unwrap() {
                    assert_eq!(batch.index(), count as u64);
                    assert_eq!(elements(&on_host::<u8>(&batch, "x").await), pattern(count, 1 + count * 37 % 5000));
                    count += 1;
                }
                assert_eq!(count, 200);
                drop(batches);
                bed.device.drain().await.unwrap();
                assert_eq!(bed.device.stats().device_used, 0);
            },
        );
    }
}

#[test]
fn the_first_goes_at_once_and_what_follows_goes_together() {
    let sim = sim(4);
    let mut transfers = submit(&sim, 4);
    assert_eq!(copies(&sim), [(1, 1024)], "three wait while the first is on its way");
    transfers.extend(submit(&sim, 1));
    assert_eq!(copies(&sim), [(1, 1024), (4, 4096)], "four are enough");
    assert!(sim.complete_next());
    assert!(transfers.remove(0).now_or_never().unwrap().is_ok());
    assert!(transfers.iter_mut().all(|transfer| transfer.now_or_never().is_none()));
    assert!(sim.complete_next());
    for (n, transfer) in (0_u8..).zip(transfers) {
        let batch = transfer.now_or_never().unwrap().unwrap();
        let expected = if n == 3 { 0 } else { n + 1 };
        assert_eq!(batch.field("x").unwrap().as_host::<u8>().unwrap().as_slice().unwrap(), [expected; 1024]);
    }
}

#[test]
fn who_polls_what_waits_sends_it() {
    let sim = sim(16);
    let mut transfers = submit(&sim, 4);
    assert_eq!(copies(&sim).len(), 1);
    assert!((&mut transfers[3]).now_or_never().is_none());
    assert_eq!(copies(&sim), [(1, 1024), (3, 3072)]);
    sim.complete_all();
    assert!(transfers.into_iter().all(|transfer| transfer.now_or_never().unwrap().is_ok()));
}

#[test]
fn a_read_back_that_takes_long_holds_nothing_up() {
    let sim = sim(16);
    let first = submit(&sim, 1).remove(0);
    sim.complete_all();
    let batch = first.now_or_never().unwrap().unwrap();
    let read = batch.read_back();
    assert_eq!(copies(&sim).len(), 1, "the read-back");
    let _transfers = submit(&sim, 1);
    assert_eq!(copies(&sim).len(), 2, "the link to the device is idle");
    sim.complete_all();
    drop(read);
}

#[test]
fn what_nobody_polls_goes_when_the_link_has_run_dry() {
    let sim = sim(16);
    let transfers = submit(&sim, 3);
    assert_eq!(copies(&sim), [(1, 1024)]);
    assert!(sim.complete_next());
    assert_eq!(copies(&sim), [(2, 2048)], "nothing is on its way any more");
    drop(transfers);
    sim.complete_all();
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn a_large_batch_does_not_overtake_small_ones_that_wait_i11() {
    let sim = sim(16);
    let source = stream::iter([1024, 1024, 1024, 1 << 20].map(|bytes| ("x", vec![1_u8; bytes])));
    let mut source = Box::pin(source.to_device(sim.device()));
    let transfers: Vec<_> = (0..4).map(|_| block_on(source.next()).unwrap()).collect();
    let order: Vec<_> = copies(&sim).iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(order, [1024, 2048, 1 << 20]);
    drop(transfers);
    sim.complete_all();
}

#[test]
fn dropped_while_they_wait_they_still_go_and_free_everything_i1() {
    let sim = sim(16);
    drop(submit(&sim, 5));
    assert!(sim.device().stats().device_used > 0);
    assert_eq!(copies(&sim).len(), 1);
    sim.complete_all();
    assert!(sim.device().drain().now_or_never().unwrap().is_ok());
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn a_call_that_is_refused_fails_each_of_its_batches_and_leaks_nothing() {
    let sim = sim(16);
    let mut transfers = submit(&sim, 4);
    sim.inject(FaultPoint::Submit, 1, 1);
    assert!(sim.complete_next());
    for transfer in transfers.drain(1..) {
        let error = transfer.now_or_never().unwrap().unwrap_err();
        assert!(matches!(error, Error::Driver { code: 1, .. }), "{error}");
        assert!(error.take_batch().is_some(), "they are one copy, so nothing of it is pending");
    }
    drop(transfers);
    sim.complete_all();
    let stats = sim.device().stats();
    assert_eq!((stats.device_used, stats.device_quarantined), (0, 0));
    // The ring is whole: as much as it holds goes through it.
    let again: Vec<_> = (0..70).map(|_| sim.device().try_transfer(("x", vec![3_u8; 60_000])).unwrap()).collect();
    sim.complete_all();
    assert!(again.into_iter().all(|transfer| transfer.now_or_never().unwrap().is_ok()));
}

#[test]
fn a_record_that_is_refused_quarantines_each_block() {
    let sim = sim(16);
    let mut transfers = submit(&sim, 3);
    sim.inject(FaultPoint::Record, 1, 1);
    assert!(sim.complete_next());
    assert!(transfers.remove(1).now_or_never().unwrap().is_err());
    drop(transfers);
    sim.complete_all();
    assert_eq!(sim.device().stats().device_quarantined, 2 * 1024);
}

#[test]
fn a_loss_ends_what_waits_and_gives_it_back() {
    let sim = sim(16);
    let mut transfers = submit(&sim, 3);
    assert!(sim.fail_next(700));
    sim.complete_all();
    for transfer in transfers.drain(1..) {
        let error = transfer.now_or_never().unwrap().unwrap_err();
        assert!(error.is_fatal(), "{error}");
        assert!(error.take_batch().is_some(), "nothing of it was enqueued");
    }
    assert!(transfers.remove(0).now_or_never().unwrap().is_err());
}

#[test]
fn one_call_of_eight_counts_once_and_is_asked_once() {
    let sim = sim(8);
    let (before, transfers) = (sim.counters(), submit(&sim, 9));
    let after = sim.counters();
    assert_eq!((after.copies_submitted - before.copies_submitted, after.records - before.records), (2, 2));
    assert_eq!(copies(&sim), [(1, 1024), (8, 8192)]);
    sim.complete_all();
    assert_eq!(sim.pending().iter().filter(|op| op.stream == PendingStream::Copy).count(), 0);
    drop(transfers);
}

#[test]
fn what_lies_side_by_side_is_one_copy_padding_and_all() {
    let sim = sim(16);
    let sizes = [1024, 600, 2000, 1000, 16 << 10, 900];
    let mut transfers: Vec<_> =
        (0_u8..).zip(sizes).map(|(n, bytes)| sim.device().try_transfer(("x", vec![n; bytes])).unwrap()).collect();
    assert!((&mut transfers[5]).now_or_never().is_none(), "it sends all that waits");
    // In blocks of 1024, 2048, 1024 and 16384 bytes.
    assert_eq!(copies(&sim), [(1, 1024), (5, 1024 + 2048 + 1024 + 16_384 + 900)]);
    sim.complete_all();
    for ((n, bytes), transfer) in (0_u8..).zip(sizes).zip(transfers) {
        let batch = transfer.now_or_never().unwrap().unwrap();
        assert_eq!(elements(&batch.field("x").unwrap().as_host::<u8>().unwrap().to_owned()), vec![n; bytes]);
    }
}

#[test]
fn what_does_not_lie_side_by_side_is_copied_apart() {
    // So little that no memory is kept for small batches beside it.
    let builder = |builder: inflight::DeviceBuilder<'static>| builder.memory_bytes(32 << 20).batches_per_call(16);
    let sim = Simulator::with(builder).unwrap();
    let send = |bytes: usize| sim.device().try_transfer(("x", vec![5_u8; bytes])).unwrap();
    // What gets new memory goes through the staging threads.
    let first: Vec<_> = [1000; 8].map(send).into();
    sim.complete_all();
    drop(first);
    let mut transfers: Vec<_> = [1000, 1000, 1000].map(send).into();
    sim.inject(FaultPoint::Submit, 1, 1);
    let error = (&mut transfers[2]).now_or_never().unwrap().unwrap_err();
    assert!(error.take_batch().is_none(), "one of the copies may be pending");
    assert_eq!(copies(&sim), [(1, 1000)]);
    let _fourth = send(1000);
    let mut fifth = send(1000);
    assert!((&mut fifth).now_or_never().is_none());
    assert_eq!(copies(&sim), [(1, 1000), (2, 2000)]);
}

#[test]
fn the_block_of_another_batch_is_not_written_i1() {
    const BYTES: usize = 16 << 10;
    let sim = sim(16);
    let send = |n: u8| sim.device().try_transfer(("x", vec![n; BYTES])).unwrap();
    // As many as lie side by side in all, so that the next ones begin at the front again.
    let all: Vec<_> = (0..128).map(send).collect();
    sim.complete_all();
    let mut batches: Vec<_> = all.into_iter().map(|transfer| transfer.now_or_never().unwrap().unwrap()).collect();
    let kept = batches.remove(2);
    drop(batches);
    // The first goes at once; the second lies before the one that is in use, the third behind it.
    let again: Vec<_> = (201..204).map(send).collect();
    sim.complete_all();
    let found = |batch: &DeviceBatch| elements(&batch.field("x").unwrap().as_host::<u8>().unwrap().to_owned());
    assert_eq!(found(&kept), [2; BYTES]);
    let blocks: Vec<_> = (201..204)
        .zip(again)
        .map(|(n, transfer)| {
            let batch = transfer.now_or_never().unwrap().unwrap();
            assert_eq!(found(&batch), [n; BYTES]);
            batch.field("x").unwrap().as_host::<u8>().unwrap().as_ptr().addr()
        })
        .collect();
    let between = kept.field("x").unwrap().as_host::<u8>().unwrap().as_ptr().addr();
    assert!(blocks[1] < between && between < blocks[2], "{between} lies not between {blocks:?}");
}

#[test]
fn a_quarter_of_a_mebibyte_is_enough_for_a_call() {
    let sim = sim(256);
    let submit =
        || -> Vec<_> { (0..6).map(|_| sim.device().try_transfer(("x", vec![7_u8; 60_000])).unwrap()).collect() };
    // What gets new memory goes through the staging threads.
    let first = submit();
    sim.complete_all();
    drop(first);
    let transfers = submit();
    assert_eq!(copies(&sim), [(1, 60_000), (5, 300_000)]);
    drop(transfers);
}

/// Sends another batch when it is dropped.
struct Sender(Vec<u8>, Device, Arc<Mutex<Vec<Transfer>>>);

impl AsRef<[u8]> for Sender {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let sent = self.1.try_transfer(("y", vec![1_u8; 40_000]));
        self.2.lock().unwrap().extend(sent);
    }
}

#[test]
fn a_source_that_waited_with_others_may_use_the_device_when_it_is_dropped() {
    let link = LinkModel { bytes_per_second: 1e9, latency: Duration::from_millis(5) };
    let device = Device::builder().host().link_model(link).batches_per_call(16).build().unwrap();
    let sent = Arc::<Mutex<Vec<Transfer>>>::default();
    let source = Sender(vec![5; 1024], device.clone(), sent.clone());
    let send = |bytes: usize| device.try_transfer(("x", vec![0_u8; bytes])).unwrap();
    // Their memory is used again: what gets new memory does not wait.
    block_on(try_join_all([1024, 1024, 40_000].map(send))).unwrap();
    block_on(device.drain()).unwrap();
    let first = send(1024);
    let waits = device.try_transfer(("x", HostArray::from_owner::<u8>(source, 1024).unwrap())).unwrap();
    let (done, outcome) = mpsc::channel();
    let drained = device.clone();
    // Nobody polls them: what waits is sent when the link has run dry.
    std::thread::spawn(move || done.send(block_on(drained.drain())));
    outcome.recv_timeout(Duration::from_secs(20)).expect("it hangs").unwrap();
    block_on(try_join_all([first, waits])).unwrap();
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    assert_eq!(block_on(try_join_all(sent)).unwrap().len(), 1);
}

/// A device with a link that is slow to begin, and memory for as many batches as a test has.
fn slow_to_begin(together: usize) -> Device {
    let link = LinkModel { bytes_per_second: 1e9, latency: Duration::from_millis(2) };
    let device = Device::builder().host().link_model(link).batches_per_call(together).build().unwrap();
    block_on(try_join_all((0..20).map(|_| device.try_transfer(("x", vec![0_u8; 1024])).unwrap()))).unwrap();
    block_on(device.drain()).unwrap();
    device
}

/// Waits until all has arrived, though nobody polls it; not for ever.
fn arrive(device: &Device) {
    let (done, outcome) = mpsc::channel();
    let drained = device.clone();
    std::thread::spawn(move || done.send(block_on(drained.drain())));
    outcome.recv_timeout(Duration::from_secs(20)).expect("it hangs").unwrap();
}

/// Sends `before` batches that arrive and are not taken, then `after` more: how many calls the last of these made, and all.
fn calls(device: &Device, before: usize, after: usize) -> (u64, u64) {
    let send = || device.try_transfer(("x", vec![0_u8; 1024])).unwrap();
    let mut sent: Vec<_> = (0..before).map(|_| send()).collect();
    arrive(device);
    let first = device.stats().copies_sent;
    sent.extend((1..after).map(|_| send()));
    let last = device.stats().copies_sent;
    sent.push(send());
    let at_once = device.stats().copies_sent - last;
    // Nobody polls them: they go by themselves, soon.
    arrive(device);
    let all = device.stats().copies_sent - first;
    block_on(try_join_all(sent)).unwrap();
    (at_once, all)
}

#[test]
fn what_follows_batches_that_nobody_has_taken_yet_goes_together_though_the_link_is_idle() {
    let device = slow_to_begin(16);
    // Where this thread is not held up between them, the three that follow go in one call.
    let seen: Vec<_> = (0..50).map(|_| calls(&device, 8, 3)).collect();
    assert!(seen.contains(&(0, 1)), "the first of them goes alone, or the last does not wait: {seen:?}");
}

#[test]
fn as_many_as_are_before_them_do_not_wait() {
    let device = slow_to_begin(16);
    let seen: Vec<_> = (0..50).map(|_| calls(&device, 4, 4)).collect();
    assert!(seen.contains(&(1, 1)), "the fourth does not send them: {seen:?}");
}

#[test]
fn what_has_nothing_before_it_goes_at_once() {
    let device = slow_to_begin(16);
    let seen: Vec<_> = (0..10).map(|_| calls(&device, 0, 1)).collect();
    assert_eq!(seen, [(1, 1); 10]);
}
