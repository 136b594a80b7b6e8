//! Batches: named arrays on the host (`host.rs`, `array.rs`, its views in `view.rs`,
//! conversions in `change.rs`) and on the device (`device.rs`).

use std::collections::HashSet;

use smallvec::SmallVec;

mod array;
mod change;
mod core;
mod device;
mod dims;
mod host;
mod into;
mod macros;
mod owner;
mod usage;
mod view;

pub(crate) use self::core::{BatchCore, GroupEvent, GroupState};
pub(crate) use self::owner::BatchOwner;
pub use array::HostArray;
pub(crate) use array::{Step, check_bools};
pub(crate) use change::{Change, Normalization};
pub use device::{DeviceArray, DeviceBatch, Ready};
pub(crate) use dims::Dims;
pub use host::{Cursor, HostBatch};
pub use into::IntoBatch;

/// A name that was given before. With few of them looking is cheaper than keeping a set.
fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const FEW: usize = 16;
    let mut first: SmallVec<[&str; FEW]> = SmallVec::new();
    let mut further = HashSet::new();
    for name in names {
        if first.contains(&name) || further.contains(name) {
            return Some(name);
        }
        if first.len() < FEW {
            first.push(name);
        } else {
            further.insert(name);
        }
    }
    None
}

/// A field's name: short ones lie in place, and no lifetime is tied to them.
pub(crate) type Name = smol_str::SmolStr;
