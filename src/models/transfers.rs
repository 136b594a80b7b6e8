//! A transfer, its future and its handles against the completion of its copies (invariants 1, 3 and 7).

use futures::FutureExt;

use super::bed::{all_is_back, block_on, by_hand, check, compute_stream, thread};
use crate::sim::{PendingStream, Simulator};
use crate::{DeviceBatch, HostBatch, batch};

const BYTES: usize = 100;

fn made(fill: u8) -> HostBatch {
    batch! { x: vec![fill; BYTES] }
}

fn is_filled_with(batch: &DeviceBatch, fill: u8) -> bool {
    let field = batch.field("x").unwrap();
    field.as_host::<u8>().unwrap().iter().all(|byte| *byte == fill)
}

fn arrived(sim: &Simulator, fill: u8) -> DeviceBatch {
    let transfer = sim.device().try_transfer(made(fill)).unwrap();
    sim.complete_all();
    transfer.now_or_never().unwrap().unwrap()
}

#[test]
fn whoever_comes_first_the_future_is_woken_and_the_bytes_are_there_b50() {
    check(|| {
        let sim = by_hand();
        let transfer = sim.device().try_transfer(made(7)).unwrap();
        let other = sim.clone();
        let completing = thread::spawn(move || assert!(other.complete_next()));
        let batch = block_on(transfer).unwrap();
        assert!(is_filled_with(&batch, 7));
        completing.join().unwrap();
        drop(batch);
        all_is_back(&sim);
    });
}

#[test]
fn a_transfer_dropped_while_its_copy_completes_gives_its_block_back_once() {
    check(|| {
        let sim = by_hand();
        let transfer = sim.device().try_transfer(made(7)).unwrap();
        let other = sim.clone();
        let completing = thread::spawn(move || assert!(other.complete_next()));
        drop(transfer);
        completing.join().unwrap();
        all_is_back(&sim);
    });
}

#[test]
fn a_lost_device_resolves_who_polls_meanwhile() {
    check(|| {
        let sim = by_hand();
        let transfer = sim.device().try_transfer(made(7)).unwrap();
        let other = sim.clone();
        let failing = thread::spawn(move || assert!(other.fail_next(700)));
        assert!(block_on(transfer).unwrap_err().is_fatal());
        assert!(block_on(sim.device().drain()).is_err());
        failing.join().unwrap();
    });
}

#[test]
fn a_block_is_handed_out_again_only_after_the_work_of_its_leases_b13_b22() {
    check(|| {
        let sim = by_hand();
        let stream = compute_stream(sim.device());
        let batch = arrived(&sim, 7);
        let lease = batch.on(&stream).unwrap();
        let task = lease.run(|fields| Ok(fields.view::<u8>("x")?.iter().all(|byte| *byte == 7)));
        // The lease and the last handle go on two threads, and a third lets the work run.
        let ending = thread::spawn(move || lease.end().unwrap());
        let other = sim.clone();
        let working = thread::spawn(move || assert!(other.complete_on(PendingStream::Compute(0))));
        drop(batch);
        ending.join().unwrap();
        working.join().unwrap();
        assert!(task.now_or_never().unwrap().unwrap(), "poison was seen: the block was given back too early");
        all_is_back(&sim);
    });
}

#[test]
fn the_last_of_two_handles_retires_the_block_whichever_it_is() {
    check(|| {
        let sim = by_hand();
        let batch = arrived(&sim, 7);
        let same = batch.clone();
        let dropping = thread::spawn(move || drop(same));
        drop(batch);
        dropping.join().unwrap();
        all_is_back(&sim);
    });
}

#[test]
fn drain_waits_for_the_last_and_is_woken() {
    check(|| {
        let sim = by_hand();
        let transfer = sim.device().try_transfer(made(7)).unwrap();
        let other = sim.clone();
        let completing = thread::spawn(move || {
            assert!(other.complete_next());
            drop(transfer);
        });
        block_on(sim.device().drain()).unwrap();
        completing.join().unwrap();
        all_is_back(&sim);
    });
}

#[test]
fn who_waits_for_room_is_admitted_when_a_batch_goes() {
    check(|| {
        let sim = by_hand();
        // More than half of the memory: no second one fits.
        let large = || batch! { x: vec![1_u8; 5 << 10] };
        let transfer = sim.device().try_transfer(large()).unwrap();
        sim.complete_all();
        let batch = transfer.now_or_never().unwrap().unwrap();
        let dropping = thread::spawn(move || drop(batch));
        let next = block_on(sim.device().transfer(large())).unwrap();
        dropping.join().unwrap();
        drop(next);
        all_is_back(&sim);
    });
}
