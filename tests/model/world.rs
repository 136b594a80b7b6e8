//! [`World`]: a simulated device with its pipelines and users; it takes steps, and tells the plain model of them.

use std::any::Any;
use std::pin::Pin;
use std::task::Poll;

use futures::{FutureExt, Stream};
use inflight::sim::{FaultPoint, Pending, PendingStream, Simulator};
use inflight::{
    BatchStreamExt, ComputeStream, Device, DeviceBatch, Error, HostArray, HostBatch, HostSlice, HostStream, Lease,
    PinnedArray, ToDevice, Transfer,
};
use ndarray::{Ix1, s};

use crate::plain::{Plain, Victim};
use crate::source::{Refused, Source, Yard};
use crate::steps::{Item, Lost, Sizes, Step, Way};
use crate::waiting::{Brought, Kind, Waiting};
use crate::watch::Watch;

/// A pipeline, and what its items are to become, in order.
pub(crate) struct Pipe {
    pub(crate) id: usize,
    pub(crate) source: Source,
    pub(crate) stream: Pin<Box<ToDevice<Source>>>,
    pub(crate) watch: Watch,
    pub(crate) items: std::collections::VecDeque<Kind>,
    pub(crate) name: String,
    /// Its largest batch that was admitted: its floor is at least that.
    pub(crate) floor: usize,
    /// The device was lost, and it said so.
    pub(crate) told: bool,
    pub(crate) over: bool,
}

impl Pipe {
    /// Whether it has an item that waits for room.
    pub(crate) fn has_taken(&self) -> bool {
        self.items.len() > self.source.len()
    }
}

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

fn nth(which: u8, len: usize) -> Option<usize> {
    (len > 0).then(|| usize::from(which) % len)
}

impl World {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let settings = |builder: inflight::DeviceBuilder<'static>| {
            let builder = builder.memory_bytes(sizes.memory).staging_bytes(sizes.staging);
            builder.pinned_bytes(sizes.pinned).readback_bytes(sizes.readback)
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
        let (plain, waiting, batches, leases, left, pins, forgotten, yard) = Default::default();
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

    /// The item as the source or the user has it, and what it is to become.
    fn item(&mut self, item: &Item, pipeline: Option<usize>) -> (Result<HostBatch, Refused>, Kind) {
        match item {
            Item::Batch(fields) => {
                let sizes: Vec<_> = fields.iter().map(|(bytes, _)| *bytes).collect();
                let number = self.plain.make(pipeline, &sizes);
                let array = |(field, (_, way)): (usize, &(usize, Way))| {
                    (format!("{number}.{field}"), self.array(self.plain.batches[number].fields[field].clone(), *way))
                };
                (Ok(HostBatch::from_fields(fields.iter().enumerate().map(array))), Kind::Transfer(number))
            }
            Item::Duplicate => {
                let number = self.plain.make(pipeline, &[1, 1]);
                (Ok(HostBatch::new().with("twice", 1_u8).with("twice", 2_u8)), Kind::Duplicate(number))
            }
            Item::Refused => {
                self.others += 1;
                (Err(Refused(self.others)), Kind::Refused(self.others))
            }
        }
    }

    /// An array of those bytes that lies as asked, where there is room for that.
    fn array(&self, bytes: Vec<u8>, way: Way) -> HostArray {
        match way {
            Way::Pageable => HostArray::from(bytes),
            Way::Reversed => {
                let reversed: Vec<u8> = bytes.into_iter().rev().collect();
                HostArray::from(reversed).slice(s![..;-1]).unwrap()
            }
            Way::Pinned => match self.device.pinned::<u8, _>(bytes.len()).now_or_never() {
                Some(Ok(mut pinned)) => {
                    pinned.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
                    pinned.into()
                }
                _ => HostArray::from(bytes),
            },
            Way::Registered => {
                let len = bytes.len();
                let array = HostArray::from_owner(self.yard.canary(bytes), len).unwrap();
                match self.device.register(array.clone()).now_or_never() {
                    Some(Ok(registered)) => registered.into(),
                    _ => array,
                }
            }
        }
    }

    fn feed(&mut self, pipe: u8, item: &Item) {
        let Some(pipe) = nth(pipe, self.pipes.len()).filter(|pipe| !self.pipes[*pipe].source.has_ended()) else {
            return;
        };
        let (item, kind) = self.item(item, Some(self.pipes[pipe].id));
        let pipe = &mut self.pipes[pipe];
        pipe.items.push_back(kind);
        pipe.source.feed(item);
    }

    fn try_send(&mut self, item: &Item) {
        let (Ok(batch), kind) = self.item(item, None) else { return };
        let empty = self.is_empty();
        match (self.device.try_transfer(batch), kind) {
            (Ok(transfer), kind) => self.sent(kind, transfer),
            (Err(error), Kind::Transfer(number)) => {
                assert!(error.take_batch().is_some(), "nothing was sent, so the batch comes back: {error}");
                if matches!(error, Error::Busy { .. }) {
                    assert!(!empty, "there is nothing in the way: {error}");
                } else {
                    self.judge_refusal(&error, number);
                }
            }
            (Err(error), kind) => self.judge_failure(&error, &kind),
        }
    }

    fn send(&mut self, item: &Item) {
        let (Ok(batch), kind) = self.item(item, None) else { return };
        let device = self.device.clone();
        let number = match kind {
            Kind::Transfer(number) | Kind::Duplicate(number) => number,
            _ => return,
        };
        let kind = if matches!(kind, Kind::Duplicate(_)) { kind } else { Kind::Admission(number) };
        let sent = async move { Brought::Sent(device.transfer(batch).await) };
        self.waiting.push(Waiting::other(kind, Victim::Batch(number), sent));
    }

    /// A transfer was made.
    pub(crate) fn sent(&mut self, kind: Kind, transfer: Transfer) {
        let victim = match kind {
            Kind::Transfer(number) | Kind::Duplicate(number) => Victim::Batch(number),
            _ => self.other(),
        };
        let waiting = Waiting::transfer(kind, victim, transfer);
        if let (Kind::Transfer(number), true) = (&waiting.kind, waiting.flies) {
            self.plain.submitted(*number);
        }
        self.waiting.push(waiting);
    }

    /// Polls a pipeline.
    pub(crate) fn next(&mut self, which: usize, fresh: bool) {
        let (owed, taken) = (self.owes_admission(which), self.pipes[which].has_taken());
        let pipe = &mut self.pipes[which];
        let Pipe { stream, watch, name, .. } = pipe;
        // Who waits for the source and not for the device is told of its loss when the source has something.
        let unasked = self.plain.lost.is_some() && !taken;
        match watch.poll(fresh, unasked, name, |context| stream.as_mut().poll_next(context)) {
            Poll::Pending => assert!(!owed, "{name} has its floor and waits"),
            Poll::Ready(None) => {
                assert!(pipe.told || pipe.items.is_empty(), "{name} ended before its items");
                pipe.over = true;
            }
            Poll::Ready(Some(transfer)) => {
                assert!(!pipe.told && !pipe.over, "{name} goes on after its end");
                self.yielded(which, transfer);
            }
        }
    }

    /// A pipeline has yielded a transfer: that of its next item, or the news that the device is lost.
    fn yielded(&mut self, which: usize, transfer: Transfer) {
        let pipe = &mut self.pipes[which];
        if transfer.device().is_some() {
            let kind = pipe.items.pop_front().expect("as many transfers as items");
            if let Kind::Transfer(number) = kind {
                pipe.floor = pipe.floor.max(self.plain.batches[number].image());
            }
            self.sent(kind, transfer);
            return;
        }
        let error = transfer.now_or_never().expect("nothing was submitted").unwrap_err();
        if error.is_fatal() {
            pipe.told = true;
            let victim = self.other();
            self.plain.excuse(&error, victim, None);
        } else {
            let kind = pipe.items.pop_front().expect("as many transfers as items");
            self.judge_failure(&error, &kind);
        }
    }

    /// Whether a pipeline holds nothing, and has been given as much as it asks for before: then nobody may keep it waiting.
    fn owes_admission(&self, which: usize) -> bool {
        let (pipe, stats) = (&self.pipes[which], self.device.stats());
        let Some(Kind::Transfer(number)) = pipe.items.front() else { return false };
        let holds = stats.pipeline(&pipe.name).map_or(0, |row| row.device_bytes);
        let healthy = stats.device_limit == self.sizes.memory && stats.operations < 256;
        holds == 0 && healthy && self.plain.batches[*number].image() <= pipe.floor
    }

    pub(crate) fn is_empty(&self) -> bool {
        let stats = self.device.stats();
        let waits = self.waiting.iter().any(|waiting| matches!(waiting.kind, Kind::Admission(_) | Kind::Write(..)));
        stats.device_used == 0 && stats.operations == 0 && self.pipes.is_empty() && !waits
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
