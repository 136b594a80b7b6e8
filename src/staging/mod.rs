//! Staging: page-locked memory that pageable data goes through, and the threads that fill it.
//!
//! `lane.rs` keeps the order of one pipeline, `engine/` runs the threads, `send.rs`
//! enqueues what is filled, `gather/` writes an array's bytes in order, `pinned.rs` is page-locked memory outside the ring,
//! `together.rs` enqueues small batches in one call.

pub(crate) mod engine;
pub(crate) mod gather;
mod lane;
pub(crate) mod pinned;
mod pool;
pub(crate) mod send;
mod together;

pub(crate) use engine::Engine;
pub(crate) use lane::StagedBatch;
pub use pinned::PinnedArray;
pub(crate) use pool::{PinnedBlock, PinnedPool, Purpose, Reads, Taken};
pub(crate) use together::{Sent, Together};
