//! How streams advance.
#![expect(unsafe_code, reason = "exports C functions")]

use std::time::Duration;

use crate::advance::advance;
use crate::world::lock;

/// With `on` not 0, nothing completes but by [`stand_in_advance`]; with 0, the clock goes on.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_manual(on: i32) {
    let mut world = lock();
    world.settings.manual = on != 0;
    world.restart_clock();
}

/// How fast copies go by the clock, and what each takes besides.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_link(bytes_per_second: f64, latency_nanos: u64) {
    let mut world = lock();
    world.settings.rate = bytes_per_second;
    world.settings.latency = Duration::from_nanos(latency_nanos);
    world.restart_clock();
}

/// Completes up to `most` operations: in rounds over the streams, in the order of their creation, the head of each that is
/// ready. The answer is how many it were.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_advance(most: u64) -> u64 {
    advance(most, None)
}

/// The same for one stream. 0 is no stream here.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_advance_stream(stream: usize, most: u64) -> u64 {
    advance(most, Some(stream))
}
