//! [`HostQueue`]: a stream without hardware, a queue of work that is done in order, by a thread or by a test.
#![expect(unsafe_code, reason = "copies bytes between addresses")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::host::LinkModel;
use super::{Copy, HostEvent, os};
use crate::sync::{Condvar, Mutex, lock};

/// A copy up to this size is done by the caller if the queue is idle: handing it to a thread costs more.
const EAGER: usize = 64 << 10;
/// How often the thread looks for more before it parks: a few microseconds.
const LOOKS: usize = 100;

/// Work that a compute stream runs.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// What a queue holds.
pub(super) enum Op {
    Copy(Copy),
    Record(Arc<HostEvent>, u64),
    Wait(Arc<HostEvent>, u64),
    Task(Task),
}

// SAFETY: the addresses of a copy stay valid until it is done, by the contract of `Backend::copy` (invariant 1).
unsafe impl Send for Op {}

/// An op with what a watcher sees of it.
pub(super) struct Queued {
    pub(super) id: u64,
    pub(super) op: Op,
    pub(super) fields: Vec<String>,
    pub(super) bytes: usize,
}

/// Who does the work of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Driver {
    /// A thread of its own; copies take as long as the link model says.
    Thread { link: Option<LinkModel>, eager: bool },
    /// A test.
    Hand,
}

/// A stream's handle. The thread ends when the last one is gone and the queue is empty.
#[derive(Debug)]
pub(crate) struct HostQueue(pub(super) Arc<Inner>);

pub(super) struct Inner {
    id: u64,
    driver: Driver,
    state: Mutex<State>,
    wake: Condvar,
    /// There is something in the queue.
    filled: AtomicBool,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Queued>,
    /// Somebody is doing what was at the head.
    busy: bool,
    parked: bool,
    closed: bool,
    /// The code of failed work, for the next record.
    code: i32,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostQueue").field("id", &self.id).field("driver", &self.driver).finish_non_exhaustive()
    }
}

/// Numbers for queues and what is in them, never used again.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl HostQueue {
    /// A queue, and its thread if it has one.
    pub(crate) fn new(name: &str, driver: Driver) -> std::io::Result<Arc<Self>> {
        let inner = Arc::new(Inner {
            id: next_number(),
            driver,
            state: Mutex::default(),
            wake: Condvar::new(),
            filled: AtomicBool::new(false),
        });
        if let Driver::Thread { link, .. } = driver {
            let queue = inner.clone();
            std::thread::Builder::new().name(name.to_owned()).spawn(move || queue.run(link))?;
        }
        Ok(Arc::new(Self(inner)))
    }

    /// Our number of it.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn copy(&self, copy: Copy, fields: Vec<String>) {
        let eager = matches!(self.0.driver, Driver::Thread { eager: true, .. }) && copy.bytes <= EAGER;
        if eager && self.0.claim() {
            perform(&copy);
            self.0.unclaim();
            return;
        }
        self.0.push(Op::Copy(copy), fields, copy.bytes);
    }

    pub(super) fn record(&self, event: &Arc<HostEvent>) {
        let number = event.record();
        if matches!(self.0.driver, Driver::Thread { .. }) && self.0.is_idle() {
            event.fire(number, 0);
        } else {
            self.0.push(Op::Record(event.clone(), number), Vec::new(), 0);
        }
    }

    pub(super) fn wait(&self, event: &Arc<HostEvent>) {
        let number = event.latest();
        if !event.has_fired(number) {
            self.0.push(Op::Wait(event.clone(), number), Vec::new(), 0);
        }
    }

    /// Enqueues work; always done by the thread, or when the test says so.
    pub(crate) fn launch(&self, task: Task, label: &str, bytes: usize) {
        self.0.push(Op::Task(task), vec![label.to_owned()], bytes);
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        lock(&self.0.state).closed = true;
        self.0.wake.notify_one();
    }
}

/// Does a copy.
fn perform(copy: &Copy) {
    // SAFETY: both ends are valid for `bytes` and not touched by others, by the contract of `Backend::copy` (invariant 1);
    // they are different blocks.
    unsafe { std::ptr::copy_nonoverlapping(copy.src, copy.dst, copy.bytes) };
}

impl Inner {
    /// Becomes the one who works on the queue, if it is empty and nobody does.
    fn claim(&self) -> bool {
        let mut state = lock(&self.state);
        if state.busy || !state.ops.is_empty() {
            return false;
        }
        state.busy = true;
        true
    }

    fn unclaim(&self) {
        let mut state = lock(&self.state);
        state.busy = false;
        if !state.ops.is_empty() && state.parked {
            self.wake.notify_one();
        }
    }

    /// Whether all that was enqueued is done.
    fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        !state.busy && state.ops.is_empty()
    }

    fn push(&self, op: Op, fields: Vec<String>, bytes: usize) {
        let mut state = lock(&self.state);
        state.ops.push_back(Queued { id: next_number(), op, fields, bytes });
        self.filled.store(true, Ordering::Release);
        if state.parked {
            self.wake.notify_one();
        }
    }

    /// The queue's thread.
    fn run(&self, link: Option<LinkModel>) {
        os::sleep_exactly();
        while let Some(queued) = self.next() {
            match queued.op {
                Op::Copy(copy) => {
                    if let Some(link) = link {
                        sleep_until(Instant::now() + link.time(copy.bytes));
                    }
                    perform(&copy);
                }
                Op::Record(event, number) => event.fire(number, 0),
                Op::Wait(event, number) => event.block_until(number),
                Op::Task(task) => task(),
            }
        }
    }

    /// The next op, when there is one; nothing when the handle is gone and all is done.
    fn next(&self) -> Option<Queued> {
        lock(&self.state).busy = false;
        for _ in 0..LOOKS {
            if self.filled.load(Ordering::Acquire) {
                break;
            }
            std::hint::spin_loop();
        }
        let mut state = lock(&self.state);
        loop {
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
            state = self.wake.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.parked = false;
        }
    }

    /// Does the records and the fulfilled waits at the head, for a queue driven by hand. Answers whether there were any.
    pub(super) fn settle(&self) -> bool {
        let mut moved = false;
        loop {
            let ready = {
                let mut state = lock(&self.state);
                let goes = match state.ops.front().map(|queued| &queued.op) {
                    Some(Op::Record(..)) => true,
                    Some(Op::Wait(event, number)) => event.has_fired(*number),
                    _ => false,
                };
                if !goes {
                    return moved;
                }
                let code = state.code;
                state.ops.pop_front().map(|queued| (queued, code))
            };
            moved = true;
            if let Some((Queued { op: Op::Record(event, number), .. }, code)) = ready {
                lock(&self.state).code = 0;
                event.fire(number, code);
            }
        }
    }

    /// Whether its handle is gone and all is done.
    pub(super) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.ops.is_empty()
    }

    /// Whether the op of that number is at the head.
    pub(super) fn head_is(&self, id: u64) -> bool {
        lock(&self.state).ops.front().is_some_and(|queued| queued.id == id)
    }

    /// Takes the op of that number from the head; what is recorded next fires with `code`. For a queue driven by hand.
    pub(super) fn complete(&self, id: u64, code: i32) -> Option<Queued> {
        let mut state = lock(&self.state);
        if state.ops.front()?.id != id {
            return None;
        }
        if code != 0 {
            state.code = code;
        }
        state.ops.pop_front()
    }

    /// Shows what waits for a hand, and whether it is at the head.
    pub(super) fn pending(&self, mut see: impl FnMut(&Queued, bool)) {
        let state = lock(&self.state);
        for (place, queued) in state.ops.iter().enumerate() {
            if matches!(queued.op, Op::Copy(_) | Op::Task(_)) {
                see(queued, place == 0);
            }
        }
    }
}

impl Queued {
    /// Does it: moves the bytes, runs the task.
    pub(super) fn perform(self) {
        match self.op {
            Op::Copy(copy) => perform(&copy),
            Op::Task(task) => task(),
            Op::Record(..) | Op::Wait(..) => {}
        }
    }
}

/// Sleeps; the thread's timer slack is small.
fn sleep_until(end: Instant) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return;
        }
        std::thread::park_timeout(left);
    }
}
