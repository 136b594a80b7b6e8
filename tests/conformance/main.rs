//! The public behaviour, on every backend there is. Each test names the invariant of the design that it holds, or the
//! case of others' failures that it repeats.

mod bed;
mod depth;
mod drops;
mod transfers;
mod wakes;
