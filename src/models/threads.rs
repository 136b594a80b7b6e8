//! The reactor's thread and the staging threads: woken when there is something, parked when not, gone when the device is
//! (invariant 12).

use super::bed::{at_once, block_on, check_with, thread};
use crate::sync::yield_now;
use crate::{Device, batch};

/// Sends one batch and awaits it.
fn send(device: &Device, fill: u8) {
    let transfer = device.try_transfer(batch! { x: vec![fill; 100] }).unwrap();
    let batch = block_on(transfer).unwrap();
    assert!(batch.field("x").unwrap().as_host::<u8>().unwrap().iter().all(|byte| *byte == fill));
}

#[test]
fn a_batch_gets_through_the_threads_and_they_end() {
    check_with(1, || send(&at_once(1), 7));
}

#[test]
fn an_inline_batch_wakes_a_reactor_that_parks() {
    check_with(1, || {
        let device = at_once(1);
        // The first makes the block; the second finds it and goes the short way.
        send(&device, 7);
        while device.stats().device_idle == 0 {
            yield_now();
        }
        send(&device, 8);
    });
}

#[test]
fn the_device_can_go_before_its_transfers_do() {
    check_with(1, || {
        let device = at_once(1);
        let transfer = device.try_transfer(batch! { x: vec![7_u8; 100] }).unwrap();
        let dropping = thread::spawn(move || drop(device));
        block_on(transfer).unwrap();
        dropping.join().unwrap();
    });
}
