//! What is sent: items of sources and batches of users, and the transfers that they become.

use futures::FutureExt;
use inflight::{Error, HostArray, HostBatch, Transfer};
use ndarray::s;

use crate::plain::Victim;
use crate::source::Refused;
use crate::steps::{Item, Way};
use crate::waiting::{Brought, Kind, Waiting};
use crate::world::{World, nth};

impl World {
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

    pub(crate) fn feed(&mut self, pipe: u8, item: &Item) {
        let Some(pipe) = nth(pipe, self.pipes.len()).filter(|pipe| !self.pipes[*pipe].source.has_ended()) else {
            return;
        };
        let (item, kind) = self.item(item, Some(self.pipes[pipe].id));
        let pipe = &mut self.pipes[pipe];
        pipe.items.push_back(kind);
        pipe.source.feed(item);
    }

    pub(crate) fn try_send(&mut self, item: &Item) {
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

    pub(crate) fn send(&mut self, item: &Item) {
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

    /// Whether nothing is in anybody's way.
    fn is_empty(&self) -> bool {
        let stats = self.device.stats();
        let waits = self.waiting.iter().any(|waiting| matches!(waiting.kind, Kind::Admission(_) | Kind::Write(..)));
        stats.device_used == 0 && stats.operations == 0 && self.pipes.is_empty() && !waits
    }
}
