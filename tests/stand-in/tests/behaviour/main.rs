//! What the stand-in does, called as the driver is. The library has one state: tests take turns.

mod bed;
mod blocking;
mod captures;
mod contexts;
mod copies;
mod faults;
mod handles;
mod kernels;
mod memory;
mod order;
mod rearrangements;
mod reports;
mod threads;
mod time;
