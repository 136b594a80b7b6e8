//! Device memory: blocks by size class, and small ones side by side; and host memory: what keeps it, mapped files, what was registered for direct copies.

pub(crate) mod allocate;
pub(crate) mod arena;
pub(crate) mod blocks;
mod bytes;
mod mapped;
mod registered;
mod registrations;

pub(crate) use bytes::{HostBytes, Owner};
pub use mapped::MappedFile;
pub use registered::Registered;
pub(crate) use registrations::Registrations;
