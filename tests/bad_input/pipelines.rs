//! Pipelines: depths and look-aheads that can't be, budgets that don't do for all, and timeouts of any length.

use std::time::Duration;

use futures::{StreamExt, stream};
use inflight::sim::Simulator;
use inflight::{BatchStreamExt, Depth, Device, Error};
use tokio_test::{assert_pending, task};

use crate::bed::{now, refused};

const BATCH: usize = 64 << 10;

/// A device with room for one batch, which is taken, and a wait for another.
fn full(timeout: Duration) -> (Simulator, inflight::Transfer) {
    let sim = Simulator::with(|builder| builder.memory_bytes(BATCH).admission_timeout(timeout)).unwrap();
    let taken = sim.device().try_transfer(("x", vec![1_u8; BATCH])).unwrap();
    (sim, taken)
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_prefetch_of_more_than_anybody_wants_is_refused() {
    let items = || stream::iter([Ok::<_, Error>(1)]);
    let text = "prefetch can't be \"0\": it must be at least 1";
    refused!(items().prefetch(0), Error::InvalidSetting { .. }, text);
    for ahead in [65_537, 1 << 40, usize::MAX] {
        let text = format!("prefetch can't be \"{ahead}\": it must be at most 65536");
        refused!(items().prefetch(ahead), Error::InvalidSetting { .. }, text);
    }
    assert_eq!(items().prefetch(65_536).unwrap().count().await, 1);
}

#[test]
fn a_depth_of_any_size_takes_what_there_is() {
    let device = Device::host().unwrap();
    let depth = Depth::new(usize::MAX).unwrap();
    let batches = stream::iter((0..10_u8).map(|n| ("x", [n]))).to_device(&device).buffered_by(&depth);
    assert_eq!(futures::executor::block_on(batches.count()), 10);
}

#[test]
fn a_wait_that_times_out_says_who_holds_what_and_gives_the_batch_back() {
    let (sim, _taken) = full(Duration::from_secs(2));
    let mut waits = task::spawn(sim.device().transfer(("x", vec![2_u8; 100])));
    assert_pending!(waits.poll());
    sim.advance(Duration::from_secs(2));
    assert!(waits.is_woken());
    let std::task::Poll::Ready(outcome) = waits.poll() else { panic!("it waits on") };
    let text = "pipeline \"direct\" waited 2s for 1024 bytes of device memory; held: \"direct\" 65536 bytes";
    let error = refused!(outcome, Error::AdmissionTimeout { .. }, text);
    assert_eq!(error.take_batch().unwrap().bytes(), 100);
}

#[test]
fn a_timeout_of_no_time_makes_every_wait_an_error() {
    let (sim, _taken) = full(Duration::ZERO);
    let mut waits = task::spawn(sim.device().transfer(("x", vec![2_u8; 100])));
    assert_pending!(waits.poll());
    sim.advance(Duration::ZERO);
    assert!(waits.is_woken());
    let std::task::Poll::Ready(outcome) = waits.poll() else { panic!("it waits on") };
    let text = "pipeline \"direct\" waited 0ns for 1024 bytes of device memory; held: \"direct\" 65536 bytes";
    let error = refused!(outcome, Error::AdmissionTimeout { .. }, text);
    assert!(error.take_batch().is_some());
}

#[test]
fn a_timeout_beyond_all_time_is_none() {
    let (sim, taken) = full(Duration::MAX);
    sim.advance(Duration::from_secs(1));
    let mut waits = task::spawn(sim.device().transfer(("x", vec![2_u8; BATCH])));
    assert_pending!(waits.poll());
    sim.advance(Duration::MAX);
    sim.advance(Duration::MAX);
    assert_pending!(waits.poll());
    sim.complete_all();
    drop(taken);
    sim.pending();
    assert!(waits.is_woken());
    assert!(waits.poll().is_ready());
}

#[test]
fn a_pipeline_that_does_not_fit_beside_another_says_both_shares() {
    let sim = Simulator::with(|builder| builder.memory_bytes(3 * BATCH)).unwrap();
    let pipeline = || stream::iter([("x", vec![0_u8; 2 * BATCH])]).to_device(sim.device());
    let (mut one, mut two) = (pipeline(), pipeline().named("eval \"B\""));
    let kept = now(one.next()).unwrap();
    let text = "pipeline \"eval \\\"B\\\"\" needs 131072 bytes for one batch, beside 131072 kept for one batch of each other \
                pipeline: more than the limit of 196608; send less at once, or raise memory_bytes";
    let error = refused!(now(now(two.next()).unwrap()), Error::FloorTooLarge { .. }, text);
    assert_eq!(error.take_batch().unwrap().bytes(), 2 * BATCH);
    drop(kept);
}
