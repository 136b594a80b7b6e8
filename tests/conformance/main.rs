//! The public behaviour, on every backend there is. Each test names the invariant of the design that it holds, or the
//! case of others' failures that it repeats.

mod admission;
mod bed;
mod depth;
mod drops;
mod early;
mod faults;
mod leases;
mod order;
mod reads;
mod streams;
mod threads;
mod transfers;
mod wakes;
