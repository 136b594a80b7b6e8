//! [`ReadCore`]: one read-back, from the call that asked for it to the array.
#![expect(unsafe_code, reason = "copies are enqueued by address")]

use std::sync::Arc;

use ndarray::IxDyn;
use smallvec::SmallVec;

use crate::admission::Block;
use crate::backend::{Copy, Direction, Event, StreamHandle};
use crate::batch::{BatchOwner, Dims, Name};
use crate::device::Shared;
use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result};
use crate::reactor::{Done, Entry, Held, Waiters, drop_later};
use crate::staging::{PinnedBlock, Purpose, Reads, Taken};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};
use crate::{HostArray, PinnedArray};

/// What is read from, kept until the copy is done (invariant 1).
#[derive(Debug)]
pub(crate) enum Origin {
    /// A field of a batch.
    Field(BatchOwner, usize),
    /// A block of ours that holds a copy of the user's memory.
    Block(Block),
    /// The copy was enqueued by who made this.
    Elsewhere,
}

/// What is needed until the copy is enqueued, and what until it is done.
#[derive(Debug)]
struct Work {
    origin: Origin,
    /// What the copy must come after.
    after: SmallVec<[Event; 2]>,
    target: Option<PinnedBlock>,
    /// The batch counts this as a use that is still open.
    open: bool,
    result: Option<Result<()>>,
}

/// One read-back.
#[derive(Debug)]
pub(crate) struct ReadCore {
    device: Arc<Shared>,
    dtype: Dtype,
    dims: Dims,
    bytes: usize,
    name: Name,
    work: Mutex<Work>,
    done: AtomicBool,
    pub(crate) waiters: Waiters,
}

impl ReadCore {
    /// A read-back of `bytes` from `origin`. `after` are events of ours alone.
    pub(crate) fn new(
        device: &Arc<Shared>,
        (dtype, dims, bytes): (Dtype, Dims, usize),
        name: Name,
        origin: Origin,
        after: SmallVec<[Event; 2]>,
    ) -> Arc<Self> {
        device.begin();
        Arc::new(Self {
            device: device.clone(),
            dtype,
            dims,
            bytes,
            name,
            work: Mutex::new(Work {
                open: matches!(origin, Origin::Field(..)),
                origin,
                after,
                target: None,
                result: None,
            }),
            done: AtomicBool::new(bytes == 0),
            waiters: Waiters::default(),
        })
    }

    pub(crate) fn device(&self) -> &Arc<Shared> {
        &self.device
    }

    /// Begins what is awaited together: at once where there is memory to read all of it into, else as soon as there is.
    pub(crate) fn start(mut reads: Reads) {
        reads.retain(|read| {
            if read.bytes == 0 {
                read.finish(Ok(()));
            }
            read.bytes > 0
        });
        let Some(device) = reads.first().map(|read| read.device.clone()) else { return };
        if device.has_many_copies() || !Self::try_enqueue(&reads) {
            device.pinned.wait_for(reads);
            // What came back meanwhile is not missed.
            device.pinned.serve();
        }
    }

    /// Begins if there is memory to read into. Answers whether they need not be asked again.
    pub(crate) fn try_enqueue(reads: &[Arc<Self>]) -> bool {
        let Some(device) = reads.first().map(|read| &read.device) else { return true };
        let sizes: SmallVec<[usize; 4]> = reads.iter().map(|read| read.bytes).collect();
        let taken = device.lost().map_or_else(|| device.pinned.try_take_all(device, Purpose::Read, &sizes), Err);
        match taken {
            Ok(None) => return false,
            Ok(Some(taken)) => reads.iter().zip(taken).for_each(|(read, taken)| read.enqueue_taken(taken)),
            Err(error) => reads.iter().for_each(|read| read.finish(Err(error.clone()))),
        }
        true
    }

    fn enqueue_taken(self: &Arc<Self>, taken: Taken) {
        let begin = || {
            // Counted from now on: others ask how many there are before this one is enqueued.
            self.device.copies.fetch_add(1, Ordering::AcqRel);
        };
        match taken {
            Taken::Block(block) => {
                begin();
                self.enqueue(Ok(block));
            }
            Taken::Reserved(block) => {
                begin();
                let this = self.clone();
                self.device.engine.run(Box::new(move || this.enqueue(block.fill())));
            }
            Taken::Full => {}
        }
    }

    fn enqueue(self: &Arc<Self>, target: Result<PinnedBlock>) {
        if let Err(error) = target.and_then(|target| self.try_copy(target)) {
            self.finish(Err(error));
        }
        // What was enqueued counts by itself now.
        self.device.copies_are_over(1);
    }

    fn try_copy(self: &Arc<Self>, target: PinnedBlock) -> Result<()> {
        let (device, stream) = (&self.device, &self.device.read_stream);
        device.check()?;
        let (src, after) = {
            let work = lock(&self.work);
            let src = match &work.origin {
                Origin::Field(core, place) => core.address(core.layout.fields[*place].offset),
                Origin::Block(block) => block.memory.ptr,
                Origin::Elsewhere => std::ptr::null_mut(),
            };
            (src, work.after.clone())
        };
        for event in &after {
            device.wait(stream, event)?;
        }
        let copy = Copy { dst: target.ptr(), src, bytes: self.bytes, direction: Direction::DeviceToHost };
        // SAFETY: invariant 1: the source belongs to `self.work` and the target goes there now; both stay until the event
        // recorded below has fired, or for ever.
        let enqueued = unsafe { device.backend.copy(stream, copy, std::slice::from_ref(&self.name)) };
        enqueued.map_err(|fault| device.fault(fault))?;
        device.counters.read.fetch_add(self.bytes as u64, Ordering::Relaxed);
        self.follow(target, stream)
    }

    /// Whether what the copy came after went well. Asked when the copy is done, and so has come after it.
    ///
    /// Not before do the events go back: on a stream that is quicker another record of such an event would fire, and the
    /// read stream would take it for the one that it waits for (invariant 5).
    fn ask_after(&self) -> Result<()> {
        let after = std::mem::take(&mut lock(&self.work).after);
        let mut result = Ok(());
        for event in after {
            result = result.and(self.device.query(&event).map(drop));
            self.device.events.put(event);
        }
        result
    }

    /// Records behind an enqueued copy into `target`, and lets the reactor follow it.
    pub(crate) fn follow(self: &Arc<Self>, target: PinnedBlock, stream: &StreamHandle) -> Result<()> {
        let device = &self.device;
        let event = match device.record(stream) {
            Ok(event) => event,
            Err(error) => {
                self.leak(Some(target));
                return Err(crate::reactor::unrecorded(error));
            }
        };
        lock(&self.work).target = Some(target);
        self.close_use(stream, true);
        device
            .reactor
            .push(device, Entry::new(device, stream, self.bytes, Held::default(), Done::Read(self.clone(), event)));
        Ok(())
    }

    /// Tells the batch that its memory is in use until work on `stream` is done, or no more.
    fn close_use(&self, stream: &StreamHandle, touched: bool) {
        let core = {
            let mut work = lock(&self.work);
            match &work.origin {
                Origin::Field(core, _) if work.open => {
                    let core = core.clone();
                    work.open = false;
                    core
                }
                _ => return,
            }
        };
        core.close_use(stream, touched, false);
    }

    /// Marks it and wakes who waits.
    pub(crate) fn finish(&self, result: Result<()>) {
        let result = result.and_then(|()| self.ask_after());
        let lost = self.device.is_lost();
        self.close_use(&self.device.read_stream, false);
        let (origin, target, after) = {
            let mut work = lock(&self.work);
            let result = match (&work.origin, result) {
                // Work that writes to the batch has failed: what was read is not what was meant.
                (Origin::Field(core, _), Ok(())) => core.failure().map_or(Ok(()), |error| Err(error.clone())),
                (_, result) => result,
            };
            let target = if result.is_err() { work.target.take() } else { None };
            let origin = std::mem::replace(&mut work.origin, Origin::Elsewhere);
            if work.result.is_none() {
                work.result = Some(result);
            }
            (origin, target, std::mem::take(&mut work.after))
        };
        if let (Some(target), true) = (target, lost) {
            target.leak();
        }
        match origin {
            Origin::Block(block) if lost => self.device.quarantine(block),
            // Where the read-back failed before its own copy, the one into the block may still be queued.
            Origin::Block(block) => self.device.limbo.retire(&self.device, block, after),
            Origin::Field(core, _) => drop_later(&self.device, core),
            Origin::Elsewhere => {}
        }
        self.done.store(true, Ordering::Release);
        self.device.end();
        self.waiters.wake();
    }

    /// Its copy can't be followed to its end.
    pub(crate) fn lose(&self, error: Error) {
        let target = lock(&self.work).target.take();
        self.leak(target);
        self.finish(Err(error));
    }

    /// Keeps both ends for ever: nobody knows when the copy is done.
    fn leak(&self, target: Option<PinnedBlock>) {
        if let Some(target) = target {
            target.leak();
        }
        let origin = std::mem::replace(&mut lock(&self.work).origin, Origin::Elsewhere);
        match origin {
            Origin::Block(block) => self.device.quarantine(block),
            Origin::Field(core, _) => {
                core.quarantined.raise();
                drop_later(&self.device, core);
            }
            Origin::Elsewhere => {}
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn take_block(&self) -> Option<Result<Option<PinnedBlock>>> {
        if !self.is_done() {
            return None;
        }
        let mut work = lock(&self.work);
        Some(work.result.clone().unwrap_or(Ok(())).map(|()| work.target.take()))
    }

    /// The array, once it is there.
    pub(crate) fn take_array<T: Element>(&self) -> Option<Result<PinnedArray<T, IxDyn>>> {
        Some(self.take_block()?.and_then(|block| PinnedArray::over(block, self.dims.of_array())))
    }

    /// The array whatever its type, once it is there.
    pub(crate) fn take_host_array(&self) -> Option<Result<HostArray>> {
        macro_rules! array {
            ($($tag:ident => $type:ty),*) => {
                match self.dtype {
                    $(Dtype::$tag => self.take_array::<$type>()?.map(HostArray::from),)*
                }
            };
        }
        Some(array!(
            Bool => bool, U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64,
            F16 => half::f16, Bf16 => half::bf16, F32 => f32, F64 => f64
        ))
    }
}
