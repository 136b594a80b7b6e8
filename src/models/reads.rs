//! Read-backs: for memory they wait in a line of their own.

use futures::FutureExt;

use super::bed::{all_is_back, block_on, by_hand, by_hand_with, check, check_with, thread};
use crate::batch;

#[test]
fn a_read_that_waits_for_memory_begins_when_an_earlier_result_goes() {
    check(|| {
        let sim = by_hand();
        let transfer = sim.device().try_transfer(batch! { x: vec![7_u8; 1000] }).unwrap();
        sim.complete_all();
        let batch = transfer.now_or_never().unwrap().unwrap();
        let read = || batch.field("x").unwrap().read_back::<u8>().unwrap();
        let first = read();
        sim.complete_all();
        let result = first.now_or_never().unwrap().unwrap();
        // The budget is one result: the second read waits for it.
        let dropping = thread::spawn(move || drop(result));
        let second = read();
        drop(batch);
        dropping.join().unwrap();
        sim.complete_all();
        assert!(second.now_or_never().unwrap().unwrap().iter().all(|byte| *byte == 7));
        all_is_back(&sim);
    });
}

#[test]
fn a_read_dropped_while_it_completes_keeps_nothing_b14() {
    check(|| {
        let sim = by_hand();
        let transfer = sim.device().try_transfer(batch! { x: vec![7_u8; 1000] }).unwrap();
        sim.complete_all();
        let batch = transfer.now_or_never().unwrap().unwrap();
        let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
        drop(batch);
        let other = sim.clone();
        let completing = thread::spawn(move || assert!(other.complete_next()));
        drop(read);
        completing.join().unwrap();
        all_is_back(&sim);
    });
}

#[test]
fn a_pinned_array_that_waits_for_room_gets_it_when_another_goes() {
    check(|| {
        let sim = by_hand();
        let first = block_on(sim.device().pinned::<u8, _>(1000)).unwrap();
        let dropping = thread::spawn(move || drop(first));
        let second = block_on(sim.device().pinned::<u8, _>(1000)).unwrap();
        dropping.join().unwrap();
        drop(second);
        assert_eq!(sim.device().stats().pinned_used, 0);
        all_is_back(&sim);
    });
}

#[test]
fn reads_beyond_the_bound_of_operations_go_on_when_others_are_done_invariant_9() {
    check_with(1, || {
        // Two operations at once, in a model.
        let sim = by_hand_with(|builder| builder.readback_bytes(8 << 10));
        let transfer = sim.device().try_transfer(batch! { x: vec![7_u8; 100] }).unwrap();
        sim.complete_all();
        let batch = transfer.now_or_never().unwrap().unwrap();
        let read = || batch.field("x").unwrap().read_back::<u8>().unwrap();
        let first = [read(), read()];
        let other = sim.clone();
        let completing = thread::spawn(move || {
            other.complete_all();
        });
        let last = read();
        completing.join().unwrap();
        sim.complete_all();
        for read in first.into_iter().chain([last]) {
            assert!(read.now_or_never().expect("it was forgotten").is_ok());
        }
        drop(batch);
        all_is_back(&sim);
    });
}
