//! What is CUDA's alone: opening a driver, streams and views, lifetimes behind running kernels, faults of the driver.
//!
//! On the stand-in driver or on a GPU, whichever there is; `support/driver.rs` says how that is chosen. Tests that need real
//! hardware are ignored and run with `--ignored`.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop where they fail, and say what they saw")]
#![expect(unsafe_code, reason = "launches kernels, as users do")]

mod calls;
mod cases;
mod context;
mod exit;
mod explain;
mod faults;
mod fetch;
mod gpu;
mod leases;
mod lifetimes;
mod open;
mod page_locked;
mod pieces;
mod reads;
mod rearrange;
mod registered;
mod rig;
