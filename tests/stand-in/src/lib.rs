//! A CUDA driver library without a GPU: real copies between real memory, streams that advance by a clock or by hand, and
//! checks that a GPU does not make. Tests load it in the driver's place; `driver/` has the driver's functions, `control/`
//! what tests steer it with.

pub mod control;
pub mod driver;

mod advance;
mod call;
mod capture;
mod clock;
mod code;
mod context;
mod copy;
mod counts;
mod engine;
mod event;
mod faults;
mod jobs;
mod kernels;
mod log;
mod memory;
mod module;
mod operation;
mod order;
mod ptx;
mod refusal;
mod settings;
mod stream;
mod thread;
mod world;

pub use control::*;
pub use driver::*;
