//! Page-locked memory: what copies use, how it is asked for, and what happens where it is refused.

use std::ffi::c_void;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use inflight::cudarc::driver::sys;
use inflight::{Device, Error};

use crate::rig::{Rig, SIZES, eventually, pattern};

/// The driver's flag for memory that the CPU reads slowly.
const WRITE_COMBINED: u32 = 4;
const OUT_OF_MEMORY: i32 = 2;

#[test]
fn all_copies_are_from_and_to_page_locked_memory_b06() {
    let Some(rig) = Rig::new() else { return };
    let pageable = || rig.stand_in.map(|stand_in| stand_in.counter("pageable_copies"));
    let before = pageable();
    rig.spin(&rig.stream, Duration::from_millis(200));
    let mut reads = Vec::new();
    for bytes in SIZES {
        let mut slice = rig.stream.alloc_zeros::<u8>(bytes).unwrap();
        rig.fill(&rig.stream, &mut slice, 7);
        let mut read = block_on(rig.device.read_wait(&slice, &rig.stream)).unwrap();
        // What is shown at once, behind the kernel, would have to be right as well.
        let at_once = (&mut read).now_or_never();
        reads.push((at_once, read));
    }
    for ((at_once, read), bytes) in reads.into_iter().zip(SIZES) {
        let shown = at_once.unwrap_or_else(|| block_on(read)).unwrap();
        assert!(shown.len() == bytes && shown.iter().all(|byte| *byte == 7), "{bytes} bytes");
        let batch = rig.batch(1, bytes);
        let back = block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap();
        assert_eq!(back.as_slice().unwrap(), pattern(1, bytes));
        let mut slice = rig.stream.alloc_zeros::<u8>(bytes).unwrap();
        block_on(rig.device.write(pattern(2, bytes), &mut slice, &rig.stream)).unwrap();
    }
    assert_eq!(pageable(), before);
    rig.finish();
}

#[test]
fn a_page_locked_allocation_that_fails_leaves_nothing_for_later_calls_b94() {
    let Some(rig) = Rig::with(|builder| builder.pinned_bytes(1 << 50)) else { return };
    // More than any machine has: to lock what there is would end this process, and others.
    let mut refused = vec![block_on(rig.device.pinned::<u8, _>(1_usize << 46)).unwrap_err()];
    if let Some(stand_in) = rig.stand_in {
        // The call, and the one after giving back what is kept.
        (1..=2).for_each(|kth| stand_in.fail(Some("cuMemHostAlloc"), kth, OUT_OF_MEMORY));
        refused.push(block_on(rig.device.pinned::<u8, _>(100_000)).unwrap_err());
    }
    for error in refused {
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    }
    // What another library launches next, and our own next calls.
    let (mut errors, batch) = (rig.errors(), rig.batch(1, 4096));
    rig.check(&batch.on(&rig.stream).unwrap(), 1, &mut errors);
    assert_eq!(rig.counted(&errors), 0);
    block_on(rig.device.pinned::<u8, _>(100_000)).unwrap();
    drop(batch);
    rig.finish();
}

#[test]
fn a_device_whose_page_locked_memory_is_refused_is_not_built_and_leaves_nothing_b95() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let held = || ["device_bytes", "host_bytes", "events", "streams"].map(|name| stand_in.counter(name));
    let before = held();
    let build = || Device::builder().context(rig.context()).staging_bytes(1 << 20).build();
    // The ring, the first and the last of the eight slots for read-backs.
    for kth in [1, 2, 9] {
        (kth..kth + 2).for_each(|kth| stand_in.fail(Some("cuMemHostAlloc"), kth, OUT_OF_MEMORY));
        let error = build().unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        stand_in.reset();
        eventually("the driver has all back", || held() == before);
    }
    let device = build().unwrap();
    block_on(async { device.transfer(("x", pattern(1, 300_000))).await?.await }).unwrap();
    rig.finish();
}

#[test]
fn no_memory_is_write_combined_and_a_gibibyte_is_had_b109() {
    let Some(rig) = Rig::with(|builder| builder.pinned_bytes(2 << 30)) else { return };
    if let Some(stand_in) = rig.stand_in {
        stand_in.log(true);
    }
    let sizes = if rig.stand_in.is_some() { [100_000, 5 << 20] } else { [100_000, 1 << 30] };
    let arrays = sizes.map(|bytes| block_on(rig.device.pinned::<u8, _>(bytes)).unwrap());
    let batch = rig.batch(1, 100_000);
    let back = block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap();
    let flags: Vec<u32> = match rig.stand_in {
        Some(stand_in) => {
            let log = stand_in.log_take();
            let asked =
                log.iter().filter(|line| line.starts_with("cuMemHostAlloc") || line.starts_with("cuMemHostRegister"));
            let flags = asked.filter_map(|line| line.split("flags=").nth(1)?.split([' ', '-']).next()?.parse().ok());
            flags.collect()
        }
        // Of what the driver has allocated; larger blocks are mapped and registered, which has no such flag.
        None => [arrays[0].as_ptr(), back.as_ptr()].map(flags_of).to_vec(),
    };
    assert!(flags.len() >= 2 && flags.iter().all(|flags| flags & WRITE_COMBINED == 0), "{flags:?}");
    drop((arrays, back, batch));
    rig.finish();
}

fn flags_of(address: *const u8) -> u32 {
    let mut flags = 0;
    // SAFETY: the flags are written; the address is one of page-locked memory.
    unsafe { sys::cuMemHostGetFlags(&raw mut flags, address.cast_mut().cast::<c_void>()) }.result().unwrap();
    flags
}
