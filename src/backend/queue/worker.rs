//! The thread of a queue: does what is queued, parks when there is nothing, ends when the queue's handle is gone.

use std::time::{Duration, Instant};

use super::{Inner, Op, Queued, perform, perform_pitched, perform_rearrangement, run};
use crate::backend::host::LinkModel;
use crate::backend::os;
use crate::sync::atomic::Ordering;
use crate::sync::{IS_MODEL, lock, wait};

/// How often the thread looks for more before it parks: a few microseconds.
const LOOKS: usize = if IS_MODEL { 0 } else { 100 };

impl Inner {
    /// Does all that is queued, until the handle is gone.
    pub(super) fn work(&self, link: Option<LinkModel>) {
        os::sleep_exactly();
        while let Some(queued) = self.next() {
            match queued.op {
                Op::Copy(copy) => {
                    if let Some(link) = link {
                        pause(link.time(copy.bytes));
                    }
                    perform(&copy);
                }
                Op::Pitched(copies) => {
                    if let Some(link) = link {
                        pause(link.time(queued.bytes));
                    }
                    copies.iter().for_each(perform_pitched);
                }
                Op::Rearrange(rearrangement) => perform_rearrangement(&rearrangement),
                Op::Record(event, number) => event.fire(number, 0),
                Op::Wait(event, number) => event.block_until(number),
                Op::Task(task) => run(task),
            }
            self.unclaim();
        }
    }

    /// Claims the next op, when there is one; nothing when the handle is gone and all is done.
    fn next(&self) -> Option<Queued> {
        for _ in 0..LOOKS {
            if self.filled.load(Ordering::Acquire) {
                break;
            }
            std::hint::spin_loop();
        }
        let mut state = lock(&self.state);
        loop {
            // Busy here means that a caller is doing a small copy; the one who claimed the queue wakes this thread.
            if !state.busy {
                if let Some(queued) = state.ops.pop_front() {
                    state.busy = true;
                    if state.ops.is_empty() {
                        self.filled.store(false, Ordering::Release);
                    }
                    return Some(queued);
                }
                if state.closed {
                    return None;
                }
            }
            state.parked = true;
            state = wait(&self.wake, state);
            state.parked = false;
        }
    }
}

/// Sleeps for that long at least; the thread's timer slack is small.
fn pause(time: Duration) {
    let begun = Instant::now();
    while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}
