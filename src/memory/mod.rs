//! Device memory: blocks by size class, and small ones side by side. Host memory: what keeps it, mapped files, what was
//! registered for direct copies. And which bytes of a block are taken, in `ring.rs`.

pub(crate) mod allocate;
pub(crate) mod arena;
pub(crate) mod blocks;
mod bytes;
mod mapped;
mod registered;
mod registrations;
pub(crate) mod ring;

pub(crate) use bytes::{HostBytes, Owner};
pub use mapped::MappedFile;
pub use registered::Registered;
pub(crate) use registrations::Registrations;
pub(crate) use ring::{Ring, Segment};
