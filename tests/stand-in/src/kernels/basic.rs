//! Small kernels that tests of streams need: fill, copy, take time, compare, fault.

use std::time::Duration;

use super::{Kernel, Launch, Outcome};

/// The CPU version of one of the kernels here.
pub(crate) fn find(name: &str) -> Option<Kernel> {
    Some(match name {
        "fill_u8" => fill_u8,
        "copy_u8" => copy_u8,
        "add_u8" => add_u8,
        "spin" => spin,
        "count_wrong" => count_wrong,
        "poke" => poke,
        "sum_f32" => sum_f32,
        _ => return None,
    })
}

/// `fill_u8(u64 dst, u64 len, u32 value)`
fn fill_u8(launch: &Launch<'_>) -> Outcome {
    let bytes = launch.read::<u8>(launch.u64_at(0), launch.usize_at(1));
    if let Some(mut bytes) = bytes {
        bytes.fill(low_byte(launch.u32_at(2)));
        launch.write(launch.u64_at(0), &bytes);
    }
    Outcome::done()
}

/// `copy_u8(u64 dst, u64 src, u64 len)`
fn copy_u8(launch: &Launch<'_>) -> Outcome {
    if let Some(bytes) = launch.read::<u8>(launch.u64_at(1), launch.usize_at(2)) {
        launch.write(launch.u64_at(0), &bytes);
    }
    Outcome::done()
}

/// `add_u8(u64 dst, u64 len, u32 value)`: in place, wrapping.
fn add_u8(launch: &Launch<'_>) -> Outcome {
    if let Some(mut bytes) = launch.read::<u8>(launch.u64_at(0), launch.usize_at(1)) {
        let value = low_byte(launch.u32_at(2));
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(value));
        launch.write(launch.u64_at(0), &bytes);
    }
    Outcome::done()
}

/// `spin(u64 nanoseconds)`: takes that long.
fn spin(launch: &Launch<'_>) -> Outcome {
    Outcome::after(Duration::from_nanos(launch.u64_at(0)))
}

/// `count_wrong(u64 src, u64 len, u64 batch, u64 errors)`: adds to the u32 at `errors` how many bytes are not those of the
/// batch's pattern, `(batch * 31 + place * 7 + place / 251) as u8`.
fn count_wrong(launch: &Launch<'_>) -> Outcome {
    let (batch, errors) = (launch.u64_at(2), launch.u64_at(3));
    let expected = |place: u64| {
        let sum = batch.wrapping_mul(31).wrapping_add(place.wrapping_mul(7)).wrapping_add(place / 251);
        sum.to_le_bytes()[0]
    };
    let bytes = launch.read::<u8>(launch.u64_at(0), launch.usize_at(1)).unwrap_or_default();
    let wrong = bytes.iter().zip(0..).filter(|(byte, place)| **byte != expected(*place)).count();
    if let Some(&[before]) = launch.read::<u32>(errors, 1).as_deref() {
        launch.write(errors, &[before.wrapping_add(u32::try_from(wrong).unwrap_or(u32::MAX))]);
    }
    Outcome::done()
}

/// `poke(u64 address, u32 value)`: writes a byte, wherever that is.
fn poke(launch: &Launch<'_>) -> Outcome {
    launch.write(launch.u64_at(0), &[low_byte(launch.u32_at(1))]);
    Outcome::done()
}

/// `sum_f32(u64 dst, u64 src, u64 len)`: the sum of all at `src`, at `dst`.
fn sum_f32(launch: &Launch<'_>) -> Outcome {
    if let Some(values) = launch.read::<f32>(launch.u64_at(1), launch.usize_at(2)) {
        launch.write(launch.u64_at(0), &[values.iter().sum::<f32>()]);
    }
    Outcome::done()
}

const fn low_byte(value: u32) -> u8 {
    value.to_le_bytes()[0]
}
