//! Tasks that are aborted and handles that are dropped while the device is not done.

use std::sync::{Arc, mpsc};

use futures::FutureExt;
use inflight::sim::Simulator;
use inflight::{ComputeStream, Device, Error, HostArray, HostStream, Overlap};
use tokio_test::{assert_pending, assert_ready_ok, task};

use crate::bed::{by_hand, elements, eventually, pattern};

/// A source that tells whether it is still kept.
struct Source(Vec<u8>, #[expect(dead_code, reason = "counted")] Arc<()>);

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn counted(kept: &Arc<()>, bytes: Vec<u8>) -> HostArray {
    let len = bytes.len();
    HostArray::from_owner::<u8>(Source(bytes, kept.clone()), len).unwrap()
}

#[tokio::test]
async fn an_aborted_tasks_block_comes_back_when_the_device_is_done_b32() {
    let sim = by_hand(4096);
    let device = sim.device().clone();
    let aborted = tokio::spawn(async move { device.transfer(("x", pattern(1, 4096))).await?.await });
    tokio::task::yield_now().await;
    assert_eq!(sim.pending().len(), 1, "its copy is under way");
    aborted.abort();
    assert!(aborted.await.unwrap_err().is_cancelled());
    let mut next = task::spawn(sim.device().transfer(("x", pattern(2, 4096))));
    assert_pending!(next.poll());
    assert_eq!(sim.device().stats().device_used, 4096);
    assert!(sim.complete_next());
    assert!(next.is_woken());
    let next = assert_ready_ok!(next.poll());
    sim.complete_all();
    let batch = next.await.unwrap();
    assert_eq!(elements(&batch.field("x").unwrap().as_host::<u8>().unwrap()), pattern(2, 4096));
}

#[test]
fn dropping_the_device_waits_for_no_copy_and_frees_none_that_never_completes_b37() {
    let stream = HostStream::new().unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let _shut = stream.run(move || gate.recv().is_ok());
    // The copies are behind that work, which never ends by itself.
    let compute = ComputeStream::Host(stream);
    let device = Device::builder().host().overlap(Overlap::Off(&compute)).build().unwrap();
    let kept = Arc::new(());
    let transfers: Vec<_> = (0..3)
        .map(|n| {
            let array = counted(&kept, pattern(n, 100_000));
            let registered = futures::executor::block_on(device.register(array)).unwrap();
            device.try_transfer(("x", registered)).unwrap()
        })
        .collect();
    assert_eq!(device.stats().operations, 3);
    drop((transfers, device, compute));
    assert_eq!(Arc::strong_count(&kept), 4, "the copies will still read their sources");
    drop(open);
    eventually("the sources are dropped", || Arc::strong_count(&kept) == 1);
}

#[test]
fn a_batch_dropped_half_staged_keeps_its_source_and_its_block_b39() {
    const BYTES: usize = 256 << 10;
    let settings = |builder: inflight::DeviceBuilder<'static>| {
        builder.memory_bytes(BYTES).staging_bytes(64 << 10).staging_threads(1)
    };
    let sim = Simulator::with(settings).unwrap();
    sim.poison(true);
    let kept = Arc::new(());
    let transfer = sim.device().try_transfer(("x", counted(&kept, pattern(1, BYTES)))).unwrap();
    let staged: usize = sim.pending().iter().map(|pending| pending.bytes).sum();
    assert_eq!(staged, 64 << 10, "a quarter; the rest waits for the ring");
    drop(transfer);
    assert_eq!(Arc::strong_count(&kept), 2, "the rest is still to be gathered");
    let busy = sim.device().try_transfer(("x", 1_u8)).unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy}");
    sim.complete_all();
    assert_eq!((Arc::strong_count(&kept), sim.device().stats().device_used), (1, 0));
    let next = sim.device().try_transfer(("x", pattern(2, BYTES))).unwrap();
    sim.complete_all();
    let batch = next.now_or_never().unwrap().unwrap();
    assert_eq!(elements(&batch.field("x").unwrap().as_host::<u8>().unwrap()), pattern(2, BYTES));
}
