//! The public behaviour, on every backend there is. Each test names the invariant of the design that it holds, or the
//! case of others' failures that it repeats.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]
#![allow(clippy::mem_forget, reason = "what is forgotten must do no harm")]

mod admission;
mod bed;
mod depth;
mod drops;
mod early;
mod faults;
mod leases;
mod mapped;
mod order;
mod panics;
mod reads;
mod relayout;
mod steps;
mod streams;
mod threads;
mod together;
mod transfers;
mod wakes;
mod written;
