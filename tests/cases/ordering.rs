//! What comes after what: uploads, updates, read-backs, and events.

use futures::{FutureExt, StreamExt, stream};
use inflight::Error;
use inflight::sim::{FaultPoint, PendingStream};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

use crate::bed::{by_hand, elements, host_stream, pattern};
use crate::{Numbers, arrived, small};

#[test]
fn bytes_are_had_through_the_resolved_future_only_b24() {
    let sim = by_hand(1 << 20);
    let early = sim.device().try_transfer(("x", pattern(1, 4096))).unwrap().early();
    let batch = early.now_or_never().unwrap().unwrap();
    let field = batch.field("x").unwrap();
    let mut read = task::spawn(field.read_back::<u8>().unwrap());
    assert_pending!(read.poll());
    assert!(!field.is_ready() && matches!(field.as_host::<u8>(), Err(Error::NotArrived { .. })));
    assert!(!sim.complete_on(PendingStream::Read), "the read-back waits for the arrival");
    assert!(sim.complete_on(PendingStream::Copy));
    assert_eq!(elements(&field.as_host::<u8>().unwrap()), pattern(1, 4096));
    assert_pending!(read.poll());
    let counters = sim.counters();
    assert_eq!((counters.bytes_to_device, counters.bytes_from_device), (4096, 0));
    assert!(sim.complete_on(PendingStream::Read));
    assert_eq!(elements(&assert_ready_ok!(read.poll())), pattern(1, 4096));
}

#[test]
fn an_event_that_was_used_before_says_nothing_until_it_is_recorded_again_b25() {
    let sim = by_hand(1 << 20);
    drop(arrived(&sim, vec![1; 100_000]));
    let events = sim.counters().live_events;
    assert!(events > 0, "one is kept, and has fired");
    sim.hold_staging(true);
    let mut held = task::spawn(sim.device().try_transfer(("x", vec![2_u8; 100_000])).unwrap());
    for _ in 0..3 {
        assert_pending!(held.poll());
        sim.pending();
    }
    sim.inject(FaultPoint::Record, 1, 400);
    sim.hold_staging(false);
    sim.complete_all();
    assert!(held.is_woken());
    assert!(matches!(assert_ready_err!(held.poll()), Error::Driver { code: 400, .. }), "the record failed");
    sim.inject(FaultPoint::Submit, 1, 1);
    let mut refused = task::spawn(sim.device().try_transfer(("x", vec![3_u8; 100_000])).unwrap());
    assert!(matches!(assert_ready_err!(refused.poll()), Error::Driver { code: 1, .. }), "the copy was refused");
    assert_eq!(sim.counters().unrecorded_queries, 0);
}

#[test]
fn an_update_comes_after_its_upload_whatever_completes_first_b30() {
    for seed in 0..100 {
        let (sim, mut numbers) = (small(), Numbers(seed));
        let stream = host_stream(sim.device());
        let updated = |n: u8| {
            let (device, stream) = (sim.device().clone(), stream.clone());
            async move {
                let batch = device.transfer(("x", vec![n; 64])).await?.early().await?;
                let mut lease = batch.on(&stream)?;
                drop(lease.run_mut(|fields| {
                    fields.view_mut::<u8>("x")?.mapv_inplace(|x| 2 * x + 1);
                    Ok(())
                }));
                lease.end()?;
                Ok::<_, Error>((n, elements(&batch.field("x")?.read_back::<u8>()?.await?)))
            }
        };
        let mut all = task::spawn(stream::iter((0..8).map(updated)).buffer_unordered(4));
        let mut seen = Vec::new();
        while seen.len() < 8 {
            match all.poll_next() {
                std::task::Poll::Ready(item) => {
                    let (n, bytes) = item.unwrap().unwrap();
                    assert_eq!(bytes, [2 * n + 1; 64], "seed {seed}");
                    seen.push(n);
                }
                std::task::Poll::Pending => {
                    let ready: Vec<_> = sim.pending().iter().filter(|one| one.runnable).map(|one| one.id).collect();
                    assert!(sim.complete(ready[numbers.below(ready.len())]));
                }
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..8).collect::<Vec<_>>());
    }
}
