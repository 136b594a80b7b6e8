//! What consumers do with batches: leases, work, reads; and with slices of their own.

use inflight::{Error, Fields, Readback};

use crate::plain::Victim;
use crate::steps::Work;
use crate::waiting::{Brought, Kind, Seen, Waiting, bytes_of};
use crate::world::{Leased, Left, World};

/// What is added to each element by work that writes.
const ADDED: u8 = 37;

fn read(fields: &Fields, names: &[String]) -> inflight::Result<Seen> {
    names.iter().map(|name| Ok((name.clone(), fields.view::<u8>(name)?.iter().copied().collect()))).collect()
}

async fn array(name: String, read: Readback<u8>) -> Brought {
    Brought::Bytes(read.await.map(|array| vec![(name, array.iter().copied().collect())]))
}

impl World {
    /// The fields of a batch as they are to be after all that is queued.
    fn expected(&self, number: usize) -> Seen {
        let fields = self.plain.batches[number].fields.iter().enumerate();
        fields.map(|(field, bytes)| (format!("{number}.{field}"), bytes.clone())).collect()
    }

    /// Whether all of a batch that the user has is there.
    fn is_whole(&self, number: usize) -> bool {
        self.batches.iter().any(|(of, batch)| *of == number && batch.is_ready())
    }

    pub(crate) fn lease(&mut self, which: u8, stream: u8) {
        let (len, stream) = (self.batches.len(), usize::from(stream) % self.streams.len());
        let Some((number, batch)) = self.batches.get(usize::from(which) % len.max(1)) else { return };
        let number = *number;
        match batch.on(&self.streams[stream]) {
            Ok(lease) => self.leases.push(Leased { number, stream, lease, used: false }),
            Err(Error::Borrowed { .. }) => {}
            Err(error) => self.plain.excuse(&error, Victim::Batch(number), None),
        }
    }

    pub(crate) fn use_lease(&mut self, which: u8, work: Work, field: u8) {
        let len = self.leases.len();
        let Some(number) = self.leases.get(usize::from(which) % len.max(1)).map(|leased| leased.number) else { return };
        let which = usize::from(which) % len;
        let (whole, expected) = (self.is_whole(number), self.expected(number));
        let stream = self.leases[which].stream;
        let before = self.last_on(stream);
        let leased = &mut self.leases[which];
        let names: Vec<_> = expected.iter().map(|(name, _)| name.clone()).collect();
        let field = (!names.is_empty()).then(|| usize::from(field) % names.len().max(1));
        let (future, expected): (futures::future::LocalBoxFuture<'static, Brought>, Seen) = match (work, field) {
            (Work::Run, _) => {
                let task = leased.lease.run(move |fields| read(fields, &names));
                leased.used = true;
                (Box::pin(async { Brought::Bytes(task.await) }), expected)
            }
            (Work::RunOn, Some(field)) => {
                let name = names[field].clone();
                let task = leased.lease.run_on(&[&name.clone()], move |fields| read(fields, &[name]));
                leased.used = true;
                (Box::pin(async { Brought::Bytes(task.await) }), vec![expected[field].clone()])
            }
            (Work::RunMut, Some(field)) if whole => {
                self.write(which, field, before);
                return;
            }
            (Work::Split, Some(field)) if whole => {
                leased.used |= leased.lease.split_mut::<u8, 1>([&names[field]]).is_ok();
                return;
            }
            (Work::ReadBack, Some(field)) => {
                let Ok(task) = leased.lease.read_back::<u8>(&names[field]) else { return };
                (Box::pin(array(names[field].clone(), task)), vec![expected[field].clone()])
            }
            (Work::View, Some(field)) => {
                leased.used |= leased.lease.view::<u8>(&names[field]).is_ok();
                return;
            }
            (Work::Wait, Some(field)) => {
                // What is wrong is told to those who look.
                let _ = leased.lease.wait(&names[field]);
                return;
            }
            _ => return,
        };
        let kind = if matches!(work, Work::ReadBack) {
            Kind::ReadBack { batch: number, whole, expected }
        } else {
            Kind::Task { batch: number, whole, expected }
        };
        let mut waiting = Waiting::other(kind, Victim::Batch(number), future);
        waiting.work = self.last_on(stream).filter(|last| Some(*last) > before);
        self.waiting.push(waiting);
    }

    /// Queues work that writes to a field. If it is queued, what is read later is to find that.
    fn write(&mut self, which: usize, field: usize, before: Option<u64>) {
        let leased = &mut self.leases[which];
        let (number, stream) = (leased.number, leased.stream);
        let name = format!("{number}.{field}");
        let task = leased.lease.run_mut(move |fields| {
            fields.view_mut::<u8>(&name)?.iter_mut().for_each(|byte| *byte = byte.wrapping_add(ADDED));
            Ok(Seen::new())
        });
        let work = self.last_on(stream).filter(|last| Some(*last) > before);
        if let Some(work) = work {
            self.leases[which].used = true;
            self.plain.writes.insert(work, number);
            self.plain.batches[number].fields[field].iter_mut().for_each(|byte| *byte = byte.wrapping_add(ADDED));
        }
        let kind = Kind::Task { batch: number, whole: true, expected: Seen::new() };
        let mut waiting = Waiting::other(kind, Victim::Batch(number), async { Brought::Bytes(task.await) });
        waiting.work = work;
        self.waiting.push(waiting);
    }

    pub(crate) fn end_lease(&mut self, which: u8, says: bool) {
        if self.leases.is_empty() {
            return;
        }
        let leased = self.leases.remove(usize::from(which) % self.leases.len());
        let last = self.last_on(leased.stream);
        if let (true, Some(last)) = (leased.used, last) {
            self.left.push(Left { number: leased.number, stream: leased.stream, last });
        }
        if !says {
            drop(leased);
        } else if let Err(error) = leased.lease.end() {
            self.plain.excuse(&error, Victim::Batch(leased.number), None);
        }
    }

    pub(crate) fn ready(&mut self, which: u8) {
        let len = self.batches.len();
        let Some((number, batch)) = self.batches.get(usize::from(which) % len.max(1)) else { return };
        let Some(name) = batch.names().last() else { return };
        let (number, ready) = (*number, batch.field(name).unwrap().ready());
        let future = async { Brought::Nothing(ready.await) };
        self.waiting.push(Waiting::other(Kind::Ready(number), Victim::Batch(number), future));
    }

    pub(crate) fn read_back(&mut self, which: u8) {
        let len = self.batches.len();
        let Some((number, batch)) = self.batches.get(usize::from(which) % len.max(1)) else { return };
        let (number, read) = (*number, batch.read_back());
        let kind = Kind::ReadBack { batch: number, whole: self.is_whole(number), expected: self.expected(number) };
        let future = async move { Brought::Bytes(read.await.and_then(|batch| bytes_of(&batch))) };
        self.waiting.push(Waiting::other(kind, Victim::Batch(number), future));
    }

    pub(crate) fn read_slice(&mut self, stream: usize) {
        let victim = self.other();
        match self.device.read(&self.slices[stream], &self.streams[stream]) {
            Ok(read) => {
                let kind = Kind::Slice(self.written[stream].clone());
                self.waiting.push(Waiting::other(kind, victim, array("slice".to_owned(), read)));
            }
            Err(
                Error::Busy { .. }
                | Error::OutOfMemory { .. }
                | Error::BatchTooLarge { .. }
                | Error::FloorTooLarge { .. },
            ) => {}
            Err(error) => self.plain.excuse(&error, victim, None),
        }
    }

    pub(crate) fn write_slice(&mut self, stream: usize) {
        let victim = self.other();
        let bytes = crate::plain::pattern(self.others, 7, self.sizes.slice);
        let (device, slice, on) = (self.device.clone(), self.slices[stream].clone(), self.streams[stream].clone());
        let array = bytes.clone();
        let future = async move { Brought::Nothing(device.write(array, &slice, &on).await) };
        self.waiting.push(Waiting::other(Kind::Write(stream, bytes), victim, future));
    }
}
