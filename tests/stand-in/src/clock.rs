//! [`Clock`]: the thread that completes operations whose time is over when no call does, and the one that runs jobs.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, PoisonError};
use std::thread;
use std::time::Instant;

use crate::jobs::Job;
use crate::world::{World, lock};

/// The clock's thread has to wake earlier than it has planned.
static EARLIER: Condvar = Condvar::new();

/// The two threads, started when there is something to do.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    is_started: bool,
    /// When the thread wakes next; `None` while it is parked.
    planned: Option<Instant>,
    jobs: Option<Sender<Job>>,
}

impl Clock {
    /// Makes sure that someone looks at the world then.
    pub(crate) fn plan(&mut self, at: Option<Instant>) {
        let Some(at) = at else { return };
        if self.planned.is_some_and(|planned| planned <= at) {
            return;
        }
        self.planned = Some(at);
        if !self.is_started {
            self.is_started = thread::Builder::new().name("stand-in-clock".to_owned()).spawn(tick).is_ok();
        }
        EARLIER.notify_one();
    }

    /// Runs a job on the thread for that: while one blocks, other streams go on.
    pub(crate) fn run(&mut self, job: Job) {
        let jobs = self.jobs.get_or_insert_with(|| {
            let (sender, receiver) = channel();
            let _ = thread::Builder::new().name("stand-in-jobs".to_owned()).spawn(move || work(&receiver));
            sender
        });
        let _ = jobs.send(job);
    }
}

impl World {
    /// The settings have changed: what has been given its time is given it anew, from now on.
    pub(crate) fn restart_clock(&mut self) {
        let now = Instant::now();
        for stream in self.streams.values_mut() {
            stream.free_at = now;
            if let Some(head) = stream.queue.front_mut() {
                head.finish = head.finish.filter(|_| stream.is_running);
            }
        }
        for device in &mut self.devices {
            device.link = [None; 2];
        }
        self.catch_up();
    }
}

fn tick() {
    let mut world = lock();
    loop {
        world.clock.planned = None;
        world.catch_up();
        let planned = world.clock.planned;
        world = match planned {
            None => EARLIER.wait(world).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                EARLIER.wait_timeout(world, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

fn work(jobs: &Receiver<Job>) {
    for job in jobs {
        job.run();
    }
}
