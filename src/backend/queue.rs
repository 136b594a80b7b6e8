//! [`HostQueue`]: a stream without hardware, a queue of work that is done in order.
//!
//! What enqueues is here; the thread that does the work is in `worker.rs`, what a test does with a queue in `hand.rs`.
#![expect(unsafe_code, reason = "copies bytes between addresses")]

mod hand;
mod worker;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::host::LinkModel;
use super::{Copy, HostEvent, Pitched, Rearrangement};
use crate::HostArray;
use crate::memory::HostBytes;
use crate::staging::gather::{self, Next};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, lock, spawn};

/// A copy up to this size is done by the caller if the queue is idle: handing it to a thread costs more.
const EAGER: usize = 64 << 10;

/// Work that a compute stream runs.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// What a queue holds.
pub(super) enum Op {
    Copy(Copy),
    Pitched(Vec<Pitched>),
    Rearrange(Rearrangement),
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
            spawn(name.to_owned(), move || queue.work(link))?;
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

    /// Enqueues copies of rows as one op.
    pub(super) fn copy_pitched(&self, copies: Vec<Pitched>, fields: Vec<String>) {
        let bytes = copies.iter().map(Pitched::bytes).sum();
        self.0.push(Op::Pitched(copies), fields, bytes);
    }

    pub(super) fn rearrange(&self, rearrangement: Rearrangement, fields: Vec<String>) {
        let bytes = rearrangement.bytes();
        self.0.push(Op::Rearrange(rearrangement), fields, bytes);
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
        let watched = matches!(self.0.driver, Driver::Hand);
        self.0.push(Op::Task(task), if watched { vec![label.to_owned()] } else { Vec::new() }, bytes);
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        lock(&self.0.state).closed = true;
        self.0.wake.notify_one();
    }
}

/// Runs work. A panic that comes as far as this, from a waker or the drop of a result that nobody takes, must not end the
/// stream: what is queued behind it would never be done.
fn run(task: Task) {
    if catch_unwind(AssertUnwindSafe(task)).is_err() {
        tracing::error!("work on a compute stream panicked after its result was told");
    }
}

/// Does a copy.
fn perform(copy: &Copy) {
    // SAFETY: both ends are valid for `bytes` and not touched by others, by the contract of `Backend::copy` (invariant 1);
    // they are different blocks.
    unsafe { std::ptr::copy_nonoverlapping(copy.src, copy.dst, copy.bytes) };
}

/// Copies rows that lie apart to where they are dense.
fn perform_pitched(copy: &Pitched) {
    for row in 0..copy.rows * copy.planes {
        let (plane, row_of_plane) = (row / copy.rows, row % copy.rows);
        let src = copy.src.wrapping_add((plane * copy.height + row_of_plane) * copy.pitch);
        let dst = copy.dst.wrapping_add(row * copy.width);
        // SAFETY: as above, for each row, by the contract of `Backend::copy_pitched`.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, copy.width) };
    }
}

/// Rearranges elements as the host does it when it stages.
fn perform_rearrangement(rearrangement: &Rearrangement) {
    let Rearrangement { src, dst, stored, shape, strides, change } = rearrangement;
    // SAFETY: the source stays readable and unchanged until this is done, by the contract of `Backend::rearrange`; the array
    // does not outlive this function.
    let bytes = unsafe { HostBytes::kept(*src, Arc::new(()), None) };
    let array = HostArray::over(bytes, *stored, shape, strides).changed(change.clone());
    // SAFETY: the result has room for all of the array's bytes, by the same contract.
    unsafe { gather::gather(&array, 0..rearrangement.bytes(), *dst, Next::Read) };
}

impl Inner {
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Becomes the one who works on the queue, if it is empty and nobody does.
    pub(super) fn claim(&self) -> bool {
        let mut state = lock(&self.state);
        if state.busy || !state.ops.is_empty() {
            return false;
        }
        state.busy = true;
        true
    }

    /// What was claimed is done.
    pub(super) fn unclaim(&self) {
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
}
