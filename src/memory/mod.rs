//! Device memory: blocks by size class, and host memory that was registered for direct copies.

pub(crate) mod allocate;
pub(crate) mod blocks;
mod bytes;
mod registered;

pub(crate) use bytes::{HostBytes, Owner};
pub use registered::Registered;
