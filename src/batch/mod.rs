//! Batches: named arrays on the host (`host.rs`, `array.rs`, its views in `view.rs`) and on the device (`device.rs`).

mod array;
mod core;
mod device;
mod host;
mod into;
mod macros;
mod owner;
mod usage;
mod view;

pub(crate) use self::core::{BatchCore, Field, GroupState};
pub(crate) use self::owner::BatchOwner;
pub use array::HostArray;
pub(crate) use array::Step;
pub use device::{DeviceArray, DeviceBatch, Ready};
pub use host::{Cursor, HostBatch};
pub use into::IntoBatch;

/// A field's name: short ones lie in place, and no lifetime is tied to them.
pub(crate) type Name = smol_str::SmolStr;
