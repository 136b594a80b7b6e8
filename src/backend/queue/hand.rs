//! A queue that a test drives: what waits at its head is done when told to, records and fulfilled waits by themselves.

use super::{Inner, Op, Queued, perform, perform_pitched, perform_rearrangement, run};
use crate::sync::lock;

impl Inner {
    /// Does the records and the fulfilled waits at the head. Answers whether there were any.
    pub(in crate::backend) fn settle(&self) -> bool {
        let mut state = lock(&self.state);
        let mut moved = false;
        // An event fires under the lock, so that those of one queue fire in order whoever settles it; no user's code runs.
        while !state.busy {
            match state.ops.front().map(|queued| &queued.op) {
                Some(Op::Record(event, number)) => event.fire(*number, state.code),
                Some(Op::Wait(event, number)) if event.has_fired(*number) => {}
                _ => break,
            }
            if let Some(Queued { op: Op::Record(..), .. }) = state.ops.pop_front() {
                state.code = 0;
            }
            moved = true;
        }
        moved
    }

    /// Whether its handle is gone and all is done.
    pub(in crate::backend) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.ops.is_empty()
    }

    /// Whether the op of that number is at the head.
    pub(in crate::backend) fn head_is(&self, id: u64) -> bool {
        lock(&self.state).ops.front().is_some_and(|queued| queued.id == id)
    }

    /// Claims the op of that number, if it can be done now.
    pub(in crate::backend) fn begin(&self, id: u64) -> Option<Queued> {
        let mut state = lock(&self.state);
        if state.busy || state.ops.front()?.id != id {
            return None;
        }
        state.busy = true;
        state.ops.pop_front()
    }

    /// What was begun is over; if it failed, the next record fires with that code.
    pub(in crate::backend) fn finish(&self, code: i32) {
        let mut state = lock(&self.state);
        state.busy = false;
        if code != 0 {
            state.code = code;
        }
    }

    /// Shows what waits for a hand, and whether it can be done now.
    pub(in crate::backend) fn pending(&self, mut see: impl FnMut(&Queued, bool)) {
        let state = lock(&self.state);
        for (place, queued) in state.ops.iter().enumerate() {
            if !matches!(queued.op, Op::Record(..) | Op::Wait(..)) {
                see(queued, place == 0 && !state.busy);
            }
        }
    }
}

impl Queued {
    /// Does it: moves the bytes, runs the task.
    pub(in crate::backend) fn perform(self) {
        match self.op {
            Op::Copy(copy) => perform(&copy),
            Op::Pitched(copies) => copies.iter().for_each(perform_pitched),
            Op::Rearrange(rearrangement) => perform_rearrangement(&rearrangement),
            Op::Task(task) => run(task),
            Op::Record(..) | Op::Wait(..) => {}
        }
    }
}
