//! The host's end of a copy: who may write to it, and when it is used again.

use std::time::{Duration, Instant};

use futures::FutureExt;
use inflight::sim::{PendingStream, Simulator};
use inflight::{HostArray, HostBatch};
use ndarray::{ArcArray1, Array1, s};
use tokio_test::{assert_pending, assert_ready_ok, task};

use crate::bed::{elements, host_stream, on_each, on_host, on_hosts, pattern};

#[test]
fn nobody_can_write_to_a_page_locked_array_while_it_is_sent_b01() {
    let sim = Simulator::with(|builder| builder.memory_bytes(1 << 20).pinned_bytes(16 << 10)).unwrap();
    let mut array = sim.device().pinned::<u32, _>(4096).now_or_never().unwrap().unwrap();
    array.iter_mut().zip(0..).for_each(|(element, index)| *element = index);
    // The array goes by value (`compile_fail/written_while_sent.rs`): what could be written to is other memory.
    let transfer = sim.device().try_transfer(("x", array)).unwrap();
    let mut other = task::spawn(sim.device().pinned::<u32, _>(4096));
    assert_pending!(other.poll());
    assert_eq!(sim.pending().len(), 1, "the copy has not read it yet");
    sim.complete_all();
    assert!(other.is_woken());
    assert_ready_ok!(other.poll()).fill(u32::MAX);
    let batch = transfer.now_or_never().unwrap().unwrap();
    let read = batch.field("x").unwrap().read_back::<u32>().unwrap();
    sim.complete_all();
    assert!(read.now_or_never().unwrap().unwrap().iter().copied().eq(0..4096));
}

#[test]
fn two_copies_to_one_destination_have_staging_of_their_own_b03() {
    let sim = Simulator::with(|builder| builder.staging_bytes(64 << 10)).unwrap();
    let stream = host_stream(sim.device());
    let slice = stream.alloc::<u8, _>(10_000).unwrap();
    for n in 1..3 {
        let mut write = task::spawn(sim.device().write(pattern(n, 10_000), &slice, &stream));
        assert_ready_ok!(write.poll(), "it is queued");
    }
    assert_eq!(sim.counters().copies_done, 0, "both are incomplete");
    while sim.complete_on(PendingStream::Copy) {}
    for n in 1..3 {
        assert!(sim.complete_on(PendingStream::Compute(0)));
        assert_eq!(elements(&slice.lock().array().to_owned()), pattern(n, 10_000), "copy {n}");
    }
}

#[test]
fn memory_that_a_copy_reads_is_not_handed_out_b04_b29() {
    const BYTES: usize = 64 << 10;
    for page_locked in [false, true] {
        let sim = Simulator::with(|builder| builder.staging_bytes(BYTES).pinned_bytes(BYTES)).unwrap();
        let array: HostArray = if page_locked {
            let mut array = sim.device().pinned::<u8, _>(BYTES).now_or_never().unwrap().unwrap();
            array.as_slice_mut().unwrap().copy_from_slice(&pattern(1, BYTES));
            array.share()
        } else {
            pattern(1, BYTES).into()
        };
        let transfer = sim.device().try_transfer(("x", array.clone())).unwrap();
        drop(array);
        let mut other = task::spawn(sim.device().pinned::<u8, _>(BYTES));
        assert_eq!(other.poll().is_pending(), page_locked, "an array takes no room in the ring");
        let next = sim.device().try_transfer(("x", vec![0xAA_u8; BYTES])).unwrap();
        let pending: usize = sim.pending().iter().map(|pending| pending.bytes).sum();
        assert_eq!(pending, if page_locked { 2 * BYTES } else { BYTES }, "the ring is full of what is not yet sent");
        sim.complete_all();
        if page_locked {
            assert!(other.is_woken());
            assert_ready_ok!(other.poll()).fill(0xAA);
        }
        let batch = transfer.now_or_never().unwrap().unwrap();
        assert_eq!(elements(&batch.field("x").unwrap().as_host::<u8>().unwrap()), pattern(1, BYTES));
        let next = next.now_or_never().unwrap().unwrap();
        assert_eq!(elements(&next.field("x").unwrap().as_host::<u8>().unwrap()), vec![0xAA; BYTES]);
    }
}

#[test]
fn a_copy_from_a_part_keeps_the_whole_of_its_memory_b07() {
    let sim = Simulator::with(|builder| builder.pinned_bytes(4096)).unwrap();
    let mut slab = sim.device().pinned::<u8, _>((4, 1024)).now_or_never().unwrap().unwrap();
    slab.as_slice_mut().unwrap().copy_from_slice(&pattern(1, 4096));
    let slab = slab.share();
    let parts: Vec<_> = (0..4).map(|row| slab.slice(s![row, ..]).unwrap()).collect();
    let transfer = sim.device().try_transfer(("x", parts[2].clone())).unwrap();
    drop((slab, parts));
    let mut next = task::spawn(sim.device().pinned::<u8, _>((4, 1024)));
    assert_pending!(next.poll());
    assert_eq!(sim.pending().len(), 1, "one part is being read");
    sim.complete_all();
    assert!(next.is_woken());
    assert_ready_ok!(next.poll()).fill(0xAA);
    let batch = transfer.now_or_never().unwrap().unwrap();
    assert_eq!(elements(&batch.field("x").unwrap().as_host::<u8>().unwrap()), pattern(1, 4096)[2048..3072]);
}

/// The array itself, once nobody else has it.
fn alone(mut array: ArcArray1<f32>) -> Array1<f32> {
    let begun = Instant::now();
    loop {
        match array.try_into_owned_nocopy() {
            Ok(array) => return array,
            Err(shared) => array = shared,
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "somebody keeps the source");
        std::thread::yield_now();
    }
}

#[test]
fn writing_to_the_source_in_place_afterwards_changes_nothing_on_the_device_b09() {
    for len in [100, 100_000] {
        for registered in [false, true] {
            on_hosts(
                |builder| builder,
                |bed| async move {
                    let source = ArcArray1::from_elem(len, 1_f32);
                    let place = source.as_ptr();
                    let array = if registered {
                        HostArray::from(bed.device.register(source.clone()).await.unwrap())
                    } else {
                        HostArray::from(source.clone())
                    };
                    let batch = bed.device.transfer(("x", array)).await.unwrap().await.unwrap();
                    let mut source = alone(source);
                    assert_eq!(source.as_ptr(), place, "the very memory that was sent");
                    source.fill(2.0);
                    assert_eq!(elements(&on_host::<f32>(&batch, "x").await), vec![1.0; len]);
                },
            );
        }
    }
}

#[test]
fn a_source_changed_before_during_or_after_a_transfer_is_sent_as_it_was_b10() {
    for changed_at in 0..3 {
        for len in [100, 100_000] {
            on_each(
                |builder| builder,
                |bed| async move {
                    let mut source = ArcArray1::from_elem(len, 1_f32);
                    let mut change = |moment| {
                        if moment == changed_at {
                            source.fill(2.0);
                        }
                        source.clone()
                    };
                    let batch = HostBatch::new().with("x", change(9));
                    change(0);
                    let transfer = bed.device.transfer(batch).await.unwrap();
                    change(1);
                    let batch = transfer.await.unwrap();
                    assert_eq!(change(2), ArcArray1::from_elem(len, 2.0));
                    assert_eq!(elements(&on_host::<f32>(&batch, "x").await), vec![1.0; len], "moment {changed_at}");
                },
            );
        }
    }
}
