//! Models: the crate's own code under checkers that decide which thread goes on, `.ci/models` runs them.
//!
//! loom tries all ways in which the threads of a small model can meet, with a bound on how often one is interrupted, and
//! all values that the memory orderings allow; shuttle tries many at random, for whole pipelines.

mod admission;
mod bed;
mod events;
#[cfg(inflight_shuttle)]
mod pipelines;
mod queues;
mod reads;
mod registrations;
mod staging;
mod threads;
mod together;
mod transfers;
mod waiters;
