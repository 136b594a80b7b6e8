//! The ring and the staging threads: chunks in order, no segment twice, nobody starved for memory (invariants 9 and 11).

use std::sync::Arc;

use super::bed::{at_once, at_once_with_driver, block_on, check_with, thread};
use crate::batch;
use crate::memory::Ring;
use crate::sim::FaultPoint;
use crate::sync::{Mutex, lock};

#[test]
fn segments_of_two_threads_never_overlap() {
    check_with(3, || {
        let ring = Arc::new(Mutex::new(Ring::new(512)));
        let taken = Arc::new(Mutex::new([false; 2]));
        let work = |ring: &Mutex<Ring>, taken: &Mutex<[bool; 2]>| {
            let Some(segment) = lock(ring).take(256) else { return };
            let slot = segment.offset / 256;
            assert!(!std::mem::replace(&mut lock(taken)[slot], true), "it is somebody else's");
            lock(taken)[slot] = false;
            lock(ring).release(&segment);
        };
        let (same, also) = (ring.clone(), taken.clone());
        let working = thread::spawn(move || {
            work(&same, &also);
            work(&same, &also);
        });
        work(&ring, &taken);
        working.join().unwrap();
        assert!(lock(&ring).is_empty());
    });
}

#[test]
fn a_batch_larger_than_the_ring_goes_through_it_in_order() {
    check_with(1, || {
        let device = at_once(1);
        // Chunks of 1 KiB through a ring of four.
        let bytes: Vec<u8> = (0..5 << 10).map(|place: usize| (place / 256) as u8).collect();
        let transfer = device.try_transfer(batch! { x: bytes.clone() }).unwrap();
        let batch = block_on(transfer).unwrap();
        assert!(batch.field("x").unwrap().as_host::<u8>().unwrap().iter().eq(&bytes));
    });
}

#[test]
fn two_threads_fill_one_batch_and_send_it_in_order() {
    check_with(1, || {
        let device = at_once(2);
        let bytes: Vec<u8> = (0..2 << 10).map(|place: usize| (place / 256) as u8).collect();
        let transfer = device.try_transfer(batch! { x: bytes.clone() }).unwrap();
        let batch = block_on(transfer).unwrap();
        assert!(batch.field("x").unwrap().as_host::<u8>().unwrap().iter().eq(&bytes));
    });
}

#[test]
fn who_could_not_allocate_tries_again_when_a_block_comes_free() {
    check_with(1, || {
        let (device, driver) = at_once_with_driver(1);
        let first = block_on(device.try_transfer(batch! { x: vec![1_u8; 1000] }).unwrap()).unwrap();
        // The driver has no memory, twice: the second batch waits for the block of the first to come free.
        driver.inject(FaultPoint::Allocate, 1, 2);
        driver.inject(FaultPoint::Allocate, 2, 2);
        let second = device.try_transfer(batch! { x: vec![2_u8; 3000] }).unwrap();
        let dropping = thread::spawn(move || drop(first));
        match block_on(second) {
            Ok(batch) => assert_eq!(batch.rows(), Some(3000)),
            // Nobody held memory any more when it was tried.
            Err(error) => assert!(matches!(error, crate::Error::OutOfMemory { .. })),
        }
        dropping.join().unwrap();
    });
}
