//! [`Job`]: a kernel or a host function, run while the world is not locked.
#![expect(unsafe_code, reason = "calls a function of the caller's")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::code::Code;
use crate::kernels::{Outcome, Prepared};
use crate::thread;
use crate::world::lock;

/// A function of the host's that a stream calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    /// Its argument, the address.
    pub(crate) data: usize,
}

/// What the head of a stream has to run.
#[derive(Debug)]
pub(crate) struct Job {
    stream: usize,
    number: u64,
    task: Task,
}

#[derive(Debug)]
enum Task {
    Kernel(Arc<Prepared>),
    Host(HostFunction),
}

impl Job {
    pub(crate) const fn kernel(stream: usize, number: u64, kernel: Arc<Prepared>) -> Self {
        Self { stream, number, task: Task::Kernel(kernel) }
    }

    pub(crate) const fn host(stream: usize, number: u64, function: HostFunction) -> Self {
        Self { stream, number, task: Task::Host(function) }
    }

    /// Runs it and reports.
    pub(crate) fn run(self) {
        let outcome = match &self.task {
            Task::Kernel(kernel) => {
                // A kernel that panics is one that failed.
                catch_unwind(AssertUnwindSafe(|| kernel.run())).unwrap_or_else(|_| Outcome::fault(Code::UNKNOWN.0))
            }
            Task::Host(HostFunction { function, data }) => {
                // SAFETY: who has queued it vouches for it until it was called.
                thread::in_host_function(|| unsafe { function(*data as *mut c_void) });
                Outcome::done()
            }
        };
        lock().job_ran(self.stream, self.number, outcome);
    }
}
