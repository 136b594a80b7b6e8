//! [`World`]: a simulated device with its pipelines and users; it takes steps, and tells the plain model of them.

use std::any::Any;

use inflight::sim::{FaultPoint, Pending, PendingStream, Simulator};
use inflight::{BatchStreamExt, ComputeStream, Device, DeviceBatch, HostSlice, HostStream, Lease, PinnedArray};
use ndarray::Ix1;

use crate::pipes::Pipe;
use crate::plain::{Plain, Victim};
use crate::source::{Source, Yard};
use crate::steps::{Lost, Sizes, Step};
use crate::waiting::{Brought, Kind, Waiting};

/// A lease, and what was done with it.
pub(crate) struct Leased {
    pub(crate) number: usize,
    pub(crate) stream: usize,
    pub(crate) lease: Lease<HostStream>,
    pub(crate) used: bool,
}

/// Work that an ended lease has left on a stream: the memory stays until it is done.
pub(crate) struct Left {
    pub(crate) number: usize,
    pub(crate) stream: usize,
    pub(crate) last: u64,
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) sizes: Sizes,
    pub(crate) sim: Simulator,
    pub(crate) device: Device,
    pub(crate) streams: Vec<HostStream>,
    pub(crate) slices: Vec<HostSlice<u8>>,
    /// What each slice holds once all work that is queued is done; `None` after a failure.
    pub(crate) written: Vec<Option<Vec<u8>>>,
    pub(crate) plain: Plain,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) batches: Vec<(usize, DeviceBatch)>,
    pub(crate) leases: Vec<Leased>,
    pub(crate) left: Vec<Left>,
    pub(crate) pins: Vec<PinnedArray<u8, Ix1>>,
    /// Kept aside as if it were gone; the batch whose memory it holds.
    pub(crate) forgotten: Vec<(Option<usize>, Box<dyn Any>)>,
    pub(crate) yard: Yard,
    /// How many victims and errors were numbered.
    pub(crate) others: usize,
    /// Staging stands still.
    pub(crate) held: bool,
    /// The most things that had an event at once.
    pub(crate) peak: usize,
}

/// The one that a step means, if there is any.
pub(crate) fn nth(which: u8, len: usize) -> Option<usize> {
    (len > 0).then(|| usize::from(which) % len)
}

impl World {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let settings = |builder: inflight::DeviceBuilder<'static>| {
            let builder = builder.memory_bytes(sizes.memory).staging_bytes(sizes.staging);
            builder.pinned_bytes(sizes.pinned).readback_bytes(sizes.readback).batches_per_call(sizes.together)
        };
        let sim = Simulator::with(settings).unwrap();
        sim.poison(true);
        let device = sim.device().clone();
        let stream = |_| match device.compute_stream().unwrap() {
            ComputeStream::Host(stream) => stream,
            other => panic!("{other:?}"),
        };
        let streams: Vec<_> = (0..2).map(stream).collect();
        let slices = streams.iter().map(|stream| stream.alloc::<u8, _>(sizes.slice).unwrap()).collect();
        let pipe = |number| {
            let (source, name) = (Source::default(), format!("pipe {number}"));
            let stream = Box::pin(source.clone().to_device(&device).named(&name));
            let (watch, items) = Default::default();
            Pipe { id: number, source, stream, watch, items, name, floor: 0, told: false, over: false }
        };
        let pipes = (0..sizes.pipelines).map(pipe).collect();
        let written = vec![Some(vec![0; sizes.slice]); 2];
        let plain = Plain::new(sizes.together);
        let (waiting, batches, leases, left, pins, forgotten, yard) = Default::default();
        Self {
            sizes,
            sim,
            device,
            streams,
            slices,
            written,
            plain,
            pipes,
            waiting,
            batches,
            leases,
            left,
            pins,
            forgotten,
            yard,
            others: 0,
            held: false,
            peak: 0,
        }
    }

    pub(crate) fn other(&mut self) -> Victim {
        self.others += 1;
        Victim::Other(self.others)
    }

    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
        self.sim.hold_staging(held);
    }

    /// What waits for a hand, oldest first.
    pub(crate) fn pending(&self) -> Vec<Pending> {
        self.sim.pending()
    }

    /// The number of the last op on a compute stream.
    pub(crate) fn last_on(&self, stream: usize) -> Option<u64> {
        self.pending().iter().filter(|pending| pending.stream == PendingStream::Compute(stream)).map(|op| op.id).max()
    }

    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            Step::Feed(pipe, item) => self.feed(*pipe, item),
            Step::End(pipe) => {
                if let Some(pipe) = nth(*pipe, self.pipes.len()) {
                    self.pipes[pipe].source.end();
                }
            }
            Step::Next(pipe, fresh) => {
                if let Some(pipe) = nth(*pipe, self.pipes.len()) {
                    self.next(pipe, *fresh);
                }
            }
            Step::Close(pipe) => {
                if let Some(pipe) = nth(*pipe, self.pipes.len()) {
                    drop(self.pipes.remove(pipe));
                }
            }
            Step::TrySend(item) => self.try_send(item),
            Step::Send(item) => self.send(item),
            Step::Pin(bytes) => {
                let (device, bytes) = (self.device.clone(), *bytes);
                let victim = self.other();
                let pinned = async move { Brought::Pinned(device.pinned::<u8, _>(bytes).await) };
                self.waiting.push(Waiting::other(Kind::Pinned(bytes), victim, pinned));
            }
            Step::Drain => {
                let (device, victim) = (self.device.clone(), self.other());
                let drained = async move { Brought::Nothing(device.drain().await) };
                self.waiting.push(Waiting::other(Kind::Drain, victim, drained));
            }
            Step::Poll(which, fresh) => {
                if let Some(which) = nth(*which, self.waiting.len()) {
                    self.poll(which, *fresh);
                }
            }
            Step::Abort(which) => {
                if let Some(which) = nth(*which, self.waiting.len()) {
                    drop(self.waiting.remove(which));
                }
            }
            Step::Early(which) => {
                if let Some(which) = nth(*which, self.waiting.len()) {
                    let early = self.waiting.remove(which).early();
                    self.waiting.push(early);
                }
            }
            Step::Forget(lost, which) => self.forget(*lost, *which),
            Step::Complete(stream) => self.complete(*stream, false),
            Step::Fail(stream) => self.complete(*stream, true),
            Step::Inject(point, nth, code) => {
                self.plain.injected(*code);
                self.sim.inject(*point, usize::from(*nth), *code);
                if (*point, *code) == (FaultPoint::Allocate, crate::steps::OUT_OF_MEMORY) {
                    // The first attempt is made again.
                    self.sim.inject(*point, usize::from(*nth) + 1, *code);
                }
            }
            Step::Lease(which, stream) => self.lease(*which, *stream),
            Step::Use(which, work, field) => self.use_lease(*which, *work, *field),
            Step::EndLease(which) => self.end_lease(*which, true),
            Step::DropLease(which) => self.end_lease(*which, false),
            Step::Clone(which) => {
                if let Some(which) = nth(*which, self.batches.len()) {
                    let clone = self.batches[which].clone();
                    self.batches.push(clone);
                }
            }
            Step::DropBatch(which) => {
                if let Some(which) = nth(*which, self.batches.len()) {
                    drop(self.batches.remove(which));
                }
            }
            Step::Ready(which) => self.ready(*which),
            Step::ReadBack(which) => self.read_back(*which),
            Step::ReadSlice(stream) => self.read_slice(usize::from(*stream) % 2),
            Step::WriteSlice(stream) => self.write_slice(usize::from(*stream) % 2),
            Step::Hold(held) => self.hold(*held),
            Step::Trim => self.device.trim(),
            Step::Advance => self.sim.advance(std::time::Duration::from_secs(6)),
        }
    }

    fn forget(&mut self, lost: Lost, which: u8) {
        match lost {
            Lost::Waiting => {
                let Some(which) = nth(which, self.waiting.len()) else { return };
                let waiting = self.waiting.remove(which);
                // One that waits in a line for ever holds up those behind it, which is its right.
                if matches!(waiting.kind, Kind::Admission(_) | Kind::Write(..)) {
                    return;
                }
                let number = match waiting.kind {
                    Kind::Transfer(number) | Kind::Early(number) if waiting.flies => Some(number),
                    Kind::Ready(number) => Some(number),
                    _ => None,
                };
                self.forgotten.push((number, Box::new(waiting)));
            }
            Lost::Batch => {
                let Some(which) = nth(which, self.batches.len()) else { return };
                let (number, batch) = self.batches.remove(which);
                self.forgotten.push((Some(number), Box::new(batch)));
            }
            Lost::Lease => {
                let Some(which) = nth(which, self.leases.len()) else { return };
                let leased = self.leases.remove(which);
                self.forgotten.push((Some(leased.number), Box::new(leased.lease)));
            }
        }
    }

    pub(crate) fn complete(&mut self, stream: u8, fails: bool) {
        let runnable: Vec<_> = self.pending().into_iter().filter(|pending| pending.runnable).collect();
        let Some(which) = nth(stream, runnable.len()) else { return };
        let op = &runnable[which];
        if fails && self.plain.lost.is_none() {
            let code = self.plain.fails(op);
            if op.fields.iter().any(|field| field == "data" || field == "write") {
                self.forget_slices();
            }
            self.plain.injected(code);
            self.sim.inject(FaultPoint::Complete, 1, code);
        }
        self.sim.complete(op.id);
    }

    /// A write has failed: nobody knows what the slices hold, or will hold when reads that are queued get there.
    fn forget_slices(&mut self) {
        self.written = vec![None; 2];
        for waiting in &mut self.waiting {
            if let Kind::Slice(expected) = &mut waiting.kind {
                *expected = None;
            }
        }
    }
}
