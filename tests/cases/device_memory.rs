//! The device's end of a copy: when a block is used again, and what is seen of what was there before.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use inflight::sim::{PendingStream, Simulator};
use inflight::{BatchStreamExt, Error};
use tokio_test::{assert_pending, assert_ready_ok, task};

use crate::arrived;
use crate::bed::{by_hand, elements, host_stream, on_hosts, pattern};

#[test]
fn with_one_block_the_next_batch_waits_for_the_work_on_the_last_b13() {
    let sim = by_hand(4096);
    let stream = host_stream(sim.device());
    let batch = arrived(&sim, pattern(0, 4096));
    let lease = batch.on(&stream).unwrap();
    let seen = lease.run(|fields| Ok(elements(&fields.view::<u8>("x")?)));
    lease.end().unwrap();
    drop(batch);
    let mut next = task::spawn(sim.device().transfer(("x", pattern(1, 4096))));
    assert_pending!(next.poll());
    assert_eq!(sim.pending().len(), 1, "the work, and no copy");
    assert!(sim.complete_on(PendingStream::Compute(0)));
    assert!(next.is_woken());
    let next = assert_ready_ok!(next.poll());
    sim.complete_all();
    assert_eq!(seen.now_or_never().unwrap().unwrap(), pattern(0, 4096));
    assert_eq!(
        elements(&next.now_or_never().unwrap().unwrap().field("x").unwrap().as_host::<u8>().unwrap()),
        pattern(1, 4096)
    );
    assert_eq!(sim.device().stats().device_allocations, 1);
}

#[test]
fn memory_that_is_given_back_after_each_batch_is_never_seen_poisoned_b18_b123() {
    on_hosts(
        |builder| builder.memory_bytes(1 << 20),
        |bed| async move {
            let stream = host_stream(&bed.device);
            let mut seen = Vec::new();
            for n in 0..40 {
                let bytes = [64, 5000, 200_000][n % 3];
                let batch = bed.device.transfer(("x", pattern(n, bytes))).await.unwrap().await.unwrap();
                let lease = batch.on(&stream).unwrap();
                let work = lease.run(|fields| Ok(elements(&fields.view::<u8>("x")?)));
                let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
                seen.push((n, bytes, work, read));
                drop((batch, lease));
                bed.device.trim();
            }
            for (n, bytes, work, read) in seen {
                assert_eq!(work.await.unwrap(), pattern(n, bytes), "work on batch {n}");
                assert_eq!(elements(&read.await.unwrap()), pattern(n, bytes), "read-back of batch {n}");
            }
        },
    );
}

#[test]
fn a_smaller_batch_in_a_used_block_shows_its_own_rows_only_b20() {
    let sim = by_hand(1024);
    let stream = host_stream(sim.device());
    for (n, rows) in [8, 8, 3].into_iter().enumerate() {
        let sent = ndarray::Array2::from_shape_vec((rows, 128), pattern(n, rows * 128)).unwrap();
        let transfer = sim.device().try_transfer(("x", sent.clone())).unwrap();
        sim.complete_all();
        let batch = transfer.now_or_never().unwrap().unwrap();
        let x = batch.field("x").unwrap();
        assert_eq!((batch.rows(), x.shape(), x.bytes()), (Some(rows), &[rows, 128][..], rows * 128));
        assert_eq!(x.as_host::<u8>().unwrap().to_owned(), sent.clone().into_dyn());
        let lease = batch.on(&stream).unwrap();
        assert_eq!(lease.view::<u8>("x").unwrap().len(), rows * 128);
        let work = lease.run(|fields| Ok(fields.view::<u8>("x")?.to_owned()));
        let read = x.read_back::<u8>().unwrap();
        sim.complete_all();
        assert_eq!(work.now_or_never().unwrap().unwrap(), sent.clone().into_dyn());
        assert_eq!(read.now_or_never().unwrap().unwrap().to_owned(), sent.into_dyn());
    }
    assert_eq!(sim.device().stats().device_allocations, 1, "all three in one block");
}

#[test]
fn batches_that_are_all_kept_are_told_apart_or_waited_for_with_a_reason_b21_b44() {
    const BYTES: usize = 4096;
    let settings = |builder: inflight::DeviceBuilder<'static>| {
        builder.memory_bytes(2 * BYTES).admission_timeout(Duration::from_secs(30))
    };
    let sim = Simulator::with(settings).unwrap();
    let source = stream::iter((0..5).map(|n| ("x", pattern(n, BYTES))));
    let mut all = task::spawn(source.to_device(sim.device()).named("train").buffered(4).collect::<Vec<_>>());
    for _ in 0..5 {
        assert_pending!(all.poll());
        sim.complete_all();
    }
    sim.advance(Duration::from_secs(5));
    assert_eq!(sim.device().stats().overdue_waits, 1, "it is said who holds what");
    let all = (0..10).find_map(|_| {
        sim.advance(Duration::from_secs(30));
        sim.complete_all();
        match all.poll() {
            std::task::Poll::Ready(all) => Some(all),
            std::task::Poll::Pending => None,
        }
    });
    let all = all.expect("an end");
    assert_eq!(all.len(), 5);
    let kept = all.iter().take_while(|batch| batch.is_ok()).count();
    assert!((1..=2).contains(&kept), "{kept} batches in two blocks");
    for (n, batch) in all.iter().enumerate() {
        match batch {
            Ok(batch) => {
                assert_eq!(elements(&batch.field("x").unwrap().as_host::<u8>().unwrap()), pattern(n, BYTES));
            }
            Err(Error::AdmissionTimeout { pipeline, holders, .. }) => {
                assert!(n >= kept && pipeline == "train" && holders.contains("\"train\""), "{holders}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
