//! The staging threads: they start with the engine, sleep while there is nothing to do, and end when it is stopped.

use std::sync::{Arc, Weak};

use super::super::lane::Lane;
use super::{Engine, LastJob, State};
use crate::backend::{Backend, Memory};
use crate::sync::{MutexGuard, lock, spawn, wait};

impl Engine {
    /// Starts the threads, which work for `backend`.
    pub(crate) fn spawn(self: &Arc<Self>, backend: &Arc<dyn Backend>) -> std::io::Result<()> {
        for number in 0..self.threads {
            let (engine, backend) = (self.clone(), backend.clone());
            let run = move || {
                backend.attach_thread();
                let backend_of_thread = Arc::downgrade(&backend);
                drop(backend);
                engine.run_thread(number, &backend_of_thread);
            };
            if let Err(error) = spawn(format!("inflight-staging-{number}"), run) {
                lock(&self.state).alive -= self.threads - number;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Wakes a thread: there may be something to do.
    pub(crate) fn kick(&self) {
        if self.threads == 0 {
            self.run_inline();
        } else {
            self.wake_one(lock(&self.state));
        }
    }

    /// Wakes the idle thread that worked last: it is quicker, for what its processor has in its caches.
    pub(super) fn wake_one(&self, mut state: MutexGuard<'_, State>) {
        let woken = state.idle.pop();
        drop(state);
        if let Some(number) = woken {
            self.wakes[number].notify_one();
        }
    }

    fn wake_all(&self, mut state: MutexGuard<'_, State>) {
        let woken = std::mem::take(&mut state.idle);
        drop(state);
        woken.into_iter().for_each(|number| self.wakes[number].notify_one());
    }

    /// Ends the threads once the jobs are done, the last of them with `last`.
    pub(crate) fn stop(&self, last: LastJob) {
        let mut state = lock(&self.state);
        state.last = Some(last);
        if state.alive > 0 {
            return self.wake_all(state);
        }
        drop(state);
        // Driven by hand, or no thread could be started.
        self.run_inline();
        self.finish();
    }

    /// For devices driven by hand: does all there is to do. Answers whether there was anything.
    pub(crate) fn run_inline(&self) -> bool {
        if self.threads > 0 {
            return false;
        }
        let mut moved = false;
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.running, true) {
            return false;
        }
        while let Some(task) = self.next(&mut state) {
            drop(state);
            self.perform(task);
            moved = true;
            state = lock(&self.state);
        }
        state.running = false;
        moved
    }

    fn run_thread(&self, number: usize, backend: &Weak<dyn Backend>) {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = self.next(&mut state) {
                let waiting = || state.lanes.values().any(Lane::has_waiting);
                if !state.jobs.is_empty() || waiting() {
                    self.wake_one(state);
                } else {
                    drop(state);
                }
                self.perform(task);
                // Values of the user's may have been dropped.
                if let Some(backend) = backend.upgrade() {
                    backend.reattach_thread();
                }
                state = lock(&self.state);
                continue;
            }
            if state.last.is_some() {
                break;
            }
            state.idle.push(number);
            while state.idle.contains(&number) {
                state = wait(&self.wakes[number], state);
            }
        }
        state.alive -= 1;
        let alone = state.alive == 0;
        self.wake_all(state);
        if alone {
            self.finish();
        }
    }

    fn finish(&self) {
        let last = {
            let mut state = lock(&self.state);
            state.last.take().map(|last| (last, state.ring.is_empty()))
        };
        if let Some((last, empty)) = last {
            // A ring that something may still read is leaked.
            last(empty.then_some(Memory { ptr: self.base.ptr, bytes: self.base.bytes }));
        }
    }
}
