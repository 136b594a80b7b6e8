//! How streams advance: which operation starts when, when its time is over, and what it does then.
//!
//! Times are those of a device that is never late: an operation starts when the one before it was over, however late it
//! is looked at.

use std::time::{Duration, Instant};

use crate::code::Code;
use crate::copy::Direction;
use crate::jobs::Job;
use crate::kernels::Outcome;
use crate::operation::Work;
use crate::world::World;

impl World {
    /// Completes what is over by now, unless tests do that by hand.
    pub(crate) fn catch_up(&mut self) {
        if self.settings.manual {
            return;
        }
        let now = Instant::now();
        loop {
            self.start_heads();
            let due = self.busy.iter().filter_map(|stream| Some((self.due(*stream)?, *stream))).min();
            match due {
                Some((at, stream)) if at <= now => match self.take_job(stream) {
                    Some(job) => self.clock.run(job),
                    None => self.complete(stream, at),
                },
                later => return self.clock.plan(later.map(|(at, _)| at)),
            }
        }
    }

    /// When the time of a stream's head is over.
    fn due(&self, stream: usize) -> Option<Instant> {
        let stream = self.streams.get(&stream).filter(|stream| !stream.is_running)?;
        stream.queue.front()?.finish
    }

    /// The stream's head can go on: it does not run, and what it waits for is there.
    pub(crate) fn is_ready(&self, stream: usize) -> bool {
        self.ready_since(stream).is_some()
    }

    fn ready_since(&self, stream: usize) -> Option<Instant> {
        let stream = self.streams.get(&stream).filter(|stream| !stream.is_running)?;
        let head = stream.queue.front()?;
        let since = head.queued.max(stream.free_at);
        match &head.work {
            Work::Wait(record) => Some(since.max(record.done()?)),
            _ => Some(since),
        }
    }

    /// Gives the heads that can start their time, in the order in which they became ready: the link is theirs in it.
    fn start_heads(&mut self) {
        let fresh = |stream: &usize| {
            let head = self.streams.get(stream)?.queue.front()?;
            if head.finish.is_some() { None } else { Some((self.ready_since(*stream)?, *stream)) }
        };
        let mut ready: Vec<(Instant, usize)> = self.busy.iter().filter_map(fresh).collect();
        ready.sort_unstable();
        for (since, stream) in ready {
            let finish = self.finish_of(stream, since);
            if let Some(head) = self.streams.get_mut(&stream).and_then(|stream| stream.queue.front_mut()) {
                head.finish = Some(finish);
            }
        }
    }

    fn finish_of(&mut self, stream: usize, since: Instant) -> Instant {
        let Some(found) = self.streams.get(&stream) else { return since };
        let device = self.device_of(found.context);
        let latency = self.settings.latency;
        match found.queue.front().map(|head| &head.work) {
            Some(Work::Copy(copy)) if copy.direction != Direction::Within => {
                let time = self.settings.on_link(copy.parts.iter().map(|part| part.bytes).sum());
                let way = usize::from(copy.direction == Direction::ToHost);
                let link = self.devices.get_mut(device).and_then(|device| device.link.get_mut(way));
                let start = link.as_ref().and_then(|link| **link).map_or(since, |free| free.max(since));
                if let Some(link) = link {
                    *link = Some(start + time);
                }
                start + time + latency
            }
            Some(Work::Copy(_) | Work::Fill(_)) => since + latency,
            _ => since,
        }
    }

    /// The head, where it is a function to run without the lock; it then runs until [`Job::run`] has reported.
    pub(crate) fn take_job(&mut self, stream: usize) -> Option<Job> {
        let found = self.streams.get_mut(&stream)?;
        let head = found.queue.front()?;
        let job = match &head.work {
            Work::Kernel(kernel) => Job::kernel(stream, head.number, kernel.clone()),
            Work::Host(function) => Job::host(stream, head.number, *function),
            _ => return None,
        };
        found.is_running = true;
        Some(job)
    }

    /// A job has run: the head of its stream, if that is still there.
    pub(crate) fn job_ran(&mut self, stream: usize, number: u64, outcome: Outcome) {
        let Some(found) = self.streams.get_mut(&stream) else { return };
        let Some(head) = found.queue.front_mut().filter(|head| head.number == number) else { return };
        found.is_running = false;
        if let Some(code) = outcome.fault {
            let context = found.context;
            self.poison(context, Code(code));
        } else if self.settings.manual || outcome.took == Duration::ZERO {
            self.complete(stream, Instant::now());
        } else if let Work::Kernel(kernel) = &head.work {
            head.work = Work::Spent(kernel.clone());
            head.finish = head.finish.map(|started| started + outcome.took);
        }
        self.catch_up();
    }

    /// Does what the stream's head is for, and takes it off.
    pub(crate) fn complete(&mut self, handle: usize, at: Instant) {
        let Some(stream) = self.streams.get_mut(&handle) else { return };
        let context = stream.context;
        let Some(operation) = stream.queue.pop_front() else { return };
        stream.completed = operation.number;
        stream.free_at = at;
        if stream.queue.is_empty() {
            self.busy.remove(&handle);
            if !stream.is_kept() {
                self.streams.remove(&handle);
            }
        }
        if let Some(code) = self.faults.on_operation() {
            if let Work::Record(record) = &operation.work {
                record.finish(at);
            }
            return self.poison(context, code);
        }
        match &operation.work {
            Work::Copy(copy) => self.perform(copy),
            Work::Fill(fill) => self.device.change(fill.to, fill.bytes(), |bytes| {
                for place in bytes.chunks_exact_mut(fill.pattern.len()) {
                    place.copy_from_slice(&fill.pattern);
                }
            }),
            Work::Record(record) => record.finish(at),
            Work::Free(address) => self.release(*address),
            Work::Kernel(_) | Work::Spent(_) | Work::Wait(_) | Work::Host(_) => {}
        }
        self.moved();
    }
}
