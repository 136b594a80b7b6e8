//! Calls come from many threads at once.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::thread;

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, launch, ok, violations};

/// A round trip: to the device on one stream, a kernel on another, back on the first.
fn trips(bed: &Bed, value: u8) {
    const BYTES: usize = 5000;
    ok(cu!(cuCtxSetCurrent(bed.context)));
    let add = bed.kernel("add_u8", &["u64", "u64", "u32"]);
    let (copies, kernels, event) = (bed.stream(), bed.stream(), bed.event());
    let (host, back) = (bed.host(&[value; BYTES]), bed.host(&[0; BYTES]));
    for trip in 0..100_u8 {
        let mut memory = 0;
        host.fill(&[value.wrapping_add(trip); BYTES]);
        ok(cu!(cuMemAllocAsync(&raw mut memory, BYTES, copies)));
        ok(cu!(cuMemcpyHtoDAsync_v2(memory, host.address, BYTES, copies)));
        ok(cu!(cuEventRecord(event, copies)));
        ok(cu!(cuStreamWaitEvent(kernels, event, 0)));
        ok(launch(add, kernels, &[memory, BYTES as u64, 3]));
        ok(cu!(cuEventRecord(event, kernels)));
        ok(cu!(cuStreamWaitEvent(copies, event, 0)));
        ok(cu!(cuMemcpyDtoHAsync_v2(back.address, memory, BYTES, copies)));
        ok(cu!(cuEventRecord(event, copies)));
        ok(cu!(cuMemFreeAsync(memory, copies)));
        if trip % 2 == 0 {
            ok(cu!(cuEventSynchronize(event)));
        } else {
            while cu!(cuEventQuery(event)) != 0 {
                thread::yield_now();
            }
        }
        assert_eq!(back.content(), [value.wrapping_add(trip + 3); BYTES]);
    }
    ok(cu!(cuStreamSynchronize(copies)));
    ok(cu!(cuStreamSynchronize(kernels)));
}

#[test]
fn threads_do_not_disturb_each_other() {
    let bed = Bed::by_clock();
    thread::scope(|scope| {
        let bed = &bed;
        for value in [0, 50, 100, 150] {
            scope.spawn(move || trips(bed, value));
        }
    });
    assert_eq!(["pending", "device_bytes", "violations"].map(counter), [0; 3], "{}", violations());
}
