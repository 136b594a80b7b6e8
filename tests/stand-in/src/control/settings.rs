//! How the devices are.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::world::lock;

/// Settings, faults, log and counters as in the beginning. What lives stays.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_reset() {
    lock().reset();
}

/// Sets an attribute of a device, by its number; of all devices where `device` is negative.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_attribute(device: i32, attribute: i32, value: i32) {
    lock().settings.set_attribute(usize::try_from(device).ok(), attribute, value);
}

/// How much memory each device has.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_memory(bytes: u64) {
    lock().settings.memory = usize::try_from(bytes).unwrap_or(usize::MAX);
}
