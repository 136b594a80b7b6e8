//! [`Plain`]: what ought to be, kept in plain lists: bytes of each batch, what has failed and who may say so.

use std::collections::{BTreeMap, BTreeSet};

use inflight::Error;
use inflight::sim::{Pending, PendingStream};

use crate::steps::{FAILED, FATAL, OUT_OF_MEMORY};

/// A batch that was made, whatever became of it.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The pipeline that it belongs to; `None` for those that are sent alone.
    pub(crate) pipeline: Option<usize>,
    /// What its fields hold once all work that is queued now is done.
    pub(crate) fields: Vec<Vec<u8>>,
    /// When it was submitted, among all.
    pub(crate) sent: Option<usize>,
    /// A copy of it has failed.
    pub(crate) copy_failed: bool,
    /// Work that writes to it has failed.
    pub(crate) write_failed: bool,
    pub(crate) read_failed: bool,
}

impl Batch {
    pub(crate) fn bytes(&self) -> usize {
        self.fields.iter().map(Vec::len).sum()
    }

    /// Bytes of its image: fields begin at multiples of 256.
    pub(crate) fn image(&self) -> usize {
        self.fields
            .iter()
            .filter(|field| !field.is_empty())
            .fold(0, |end: usize, field| end.next_multiple_of(256) + field.len())
    }
}

/// To whom an error is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    /// Whoever waits for that batch.
    Batch(usize),
    /// A future or call that belongs to none.
    Other(usize),
}

/// The model.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    pub(crate) batches: Vec<Batch>,
    /// Batches submitted so far.
    pub(crate) sent: usize,
    /// Work that writes: the batch that it writes to.
    pub(crate) writes: BTreeMap<u64, usize>,
    /// Work that failed before it ran.
    failed_work: BTreeSet<u64>,
    /// Work of a compute stream has failed.
    compute_failed: bool,
    copies_failed: bool,
    /// Batches that go in one call, and so fail together.
    together: usize,
    /// How often each code was injected, and who was struck.
    injected: BTreeMap<i32, usize>,
    struck: BTreeMap<i32, BTreeSet<Victim>>,
    /// The code that the device was lost with, as first told.
    pub(crate) lost: Option<i32>,
}

/// The batch and field of a field's name.
pub(crate) fn named(field: &str) -> Option<(usize, usize)> {
    let (batch, field) = field.split_once('.')?;
    Some((batch.parse().ok()?, field.parse().ok()?))
}

/// Bytes that tell which batch, field and place they are.
pub(crate) fn pattern(batch: usize, field: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (batch * 31 + field * 101 + place * 7 + place / 251) as u8).collect()
}

impl Plain {
    /// Nothing yet; so many small batches go in one call.
    pub(crate) fn new(together: usize) -> Self {
        Self { together, ..Self::default() }
    }

    /// A new batch; its number.
    pub(crate) fn make(&mut self, pipeline: Option<usize>, sizes: &[usize]) -> usize {
        let number = self.batches.len();
        let fields = sizes.iter().enumerate().map(|(field, bytes)| pattern(number, field, *bytes)).collect();
        self.batches.push(Batch { pipeline, fields, ..Batch::default() });
        number
    }

    pub(crate) fn submitted(&mut self, number: usize) {
        self.batches[number].sent = Some(self.sent);
        self.sent += 1;
    }

    pub(crate) fn injected(&mut self, code: i32) {
        *self.injected.entry(code).or_default() += 1;
    }

    /// Whether nothing but copies and work on the device can have failed.
    pub(crate) fn calls_are_fine(&self) -> bool {
        self.injected.keys().all(|code| matches!(code, 600 | 906))
    }

    pub(crate) const fn copies_are_fine(&self) -> bool {
        !self.copies_failed
    }

    pub(crate) fn was_injected(&self, code: i32) -> bool {
        self.injected.contains_key(&code)
    }

    /// What was pending is made to fail with the code of its stream.
    pub(crate) fn fails(&mut self, pending: &Pending) -> i32 {
        for (number, _) in pending.fields.iter().filter_map(|field| named(field)) {
            let batch = &mut self.batches[number];
            match pending.stream {
                PendingStream::Copy => batch.copy_failed = true,
                _ => batch.read_failed = true,
            }
        }
        if let Some(number) = self.writes.get(&pending.id) {
            self.batches[*number].write_failed = true;
        }
        match pending.stream {
            PendingStream::Copy => {
                self.copies_failed = true;
                FAILED[0]
            }
            PendingStream::Read => FAILED[1],
            _ => {
                self.compute_failed = true;
                self.failed_work.insert(pending.id);
                FAILED[2]
            }
        }
    }

    /// Makes sure that there is a cause for an error which `victim` was told.
    pub(crate) fn excuse(&mut self, error: &Error, victim: Victim, work: Option<u64>) {
        let batch = match victim {
            Victim::Batch(number) => self.batches.get(number),
            Victim::Other(_) => None,
        };
        match error {
            Error::DeviceLost { code, .. } => {
                assert!(FATAL.contains(code) && self.was_injected(*code), "lost for no cause: {error}");
                assert_eq!(*self.lost.get_or_insert(*code), *code, "all are told one cause");
            }
            Error::Driver { code, .. } if *code == FAILED[0] => {
                assert!(batch.map_or(self.copies_failed, |batch| batch.copy_failed), "{victim:?}: {error}");
            }
            Error::Driver { code, .. } if *code == FAILED[1] => {
                assert!(batch.is_none_or(|batch| batch.read_failed), "{victim:?}: {error}");
            }
            // The code goes to the next event of the stream.
            Error::Driver { code, .. } if *code == FAILED[2] => assert!(self.compute_failed, "{victim:?}: {error}"),
            // Work that was dropped before it ran.
            Error::Driver { code: 719, .. } => {
                let writer = batch.is_some_and(|batch| batch.write_failed);
                let failed = work.is_none_or(|work| self.failed_work.contains(&work));
                assert!(failed || writer || self.was_lost_by_injection(), "{victim:?}: {error}");
            }
            Error::Driver { code, .. } => self.strike(*code, victim, error),
            Error::OutOfMemory { .. } => self.strike(OUT_OF_MEMORY, victim, error),
            other => panic!("{victim:?} is told without a cause: {other}"),
        }
    }

    fn strike(&mut self, code: i32, victim: Victim, error: &Error) {
        let struck = self.struck.entry(code).or_default();
        struck.insert(victim);
        let injected = self.injected.get(&code).copied().unwrap_or(0);
        assert!(
            struck.len() <= injected * self.together,
            "{victim:?} is told {error}, which happened {injected} times: {struck:?}"
        );
    }

    pub(crate) fn was_lost_by_injection(&self) -> bool {
        FATAL.iter().any(|code| self.injected.contains_key(code))
    }

    /// Copies of one pipeline are in the order of its batches and fields (invariant 11).
    pub(crate) fn check_order(&self, pending: &[Pending]) {
        let mut last: BTreeMap<Option<usize>, (usize, usize)> = BTreeMap::new();
        for copy in pending.iter().filter(|pending| pending.stream == PendingStream::Copy) {
            // A chunk names all fields that are packed together, though it may carry some of them only.
            let Some((number, field)) = copy.fields.first().and_then(|field| named(field)) else { continue };
            let batch = &self.batches[number];
            let Some(sent) = batch.sent else { continue };
            let before = last.insert(batch.pipeline, (sent, field));
            assert!(before.is_none_or(|before| before <= (sent, field)), "batch {number} overtakes: {pending:?}");
        }
    }
}
