//! Polls futures, and holds what they bring against the plain model.

use std::task::Poll;

use inflight::{DeviceBatch, Error};

use crate::plain::Victim;
use crate::waiting::{Brought, Kind, Seen, Waiting, is_of_the_moment};
use crate::world::World;

impl World {
    /// Polls a future. Answers whether it resolved.
    pub(crate) fn poll(&mut self, which: usize, fresh: bool) -> bool {
        let Poll::Ready(brought) = self.waiting[which].poll(fresh) else { return false };
        let resolved = self.waiting.remove(which);
        self.judge(resolved, brought);
        true
    }

    fn judge(&mut self, of: Waiting, brought: Brought) {
        match (of.kind.clone(), brought) {
            (Kind::Transfer(number), Brought::Batch(Ok(batch))) => {
                assert!(batch.is_ready(), "a transfer resolves when all has arrived");
                self.arrived(number, batch);
            }
            (Kind::Early(number), Brought::Batch(Ok(batch))) => self.arrived(number, batch),
            (Kind::Transfer(number) | Kind::Early(number), Brought::Batch(Err(error))) => {
                let sent = self.plain.batches[number].copy_failed;
                assert!(!sent || error.take_batch().is_none(), "a copy of it was enqueued");
                self.excuse(&error, &of);
            }
            (Kind::Admission(number), Brought::Sent(Ok(transfer))) => self.sent(Kind::Transfer(number), transfer),
            (Kind::Admission(number), Brought::Sent(Err(error))) => {
                assert!(error.take_batch().is_some(), "nothing was sent, so the batch comes back: {error}");
                self.judge_refusal(&error, number);
            }
            (kind @ Kind::Duplicate(_), Brought::Sent(Err(error)) | Brought::Batch(Err(error))) => {
                self.judge_failure(&error, &kind);
            }
            (Kind::Pinned(bytes), Brought::Pinned(Ok(pinned))) => {
                assert_eq!(pinned.len(), bytes);
                self.pins.push(pinned);
            }
            (Kind::Pinned(bytes), Brought::Pinned(Err(Error::OutOfMemory { .. })))
                if bytes * 9 / 8 >= self.sizes.pinned => {}
            (Kind::Drain, Brought::Nothing(Ok(()))) => {
                let stats = self.device.stats();
                assert_eq!((stats.operations, stats.limbo_blocks), (0, 0), "it is drained");
            }
            (Kind::Ready(number), Brought::Nothing(Ok(()))) => {
                assert!(!self.plain.batches[number].copy_failed || self.plain.batches[number].fields.len() > 1);
            }
            (Kind::Task { batch, whole, expected }, Brought::Bytes(result)) => {
                self.judge_bytes(result, &of, batch, whole, &expected);
            }
            (Kind::ReadBack { batch, whole, expected }, Brought::Bytes(result)) => {
                let bytes = expected.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
                match result {
                    Err(Error::OutOfMemory { .. }) if bytes * 9 / 8 + 1024 * expected.len() >= self.sizes.readback => {}
                    result => self.judge_bytes(result, &of, batch, whole, &expected),
                }
            }
            (Kind::Slice(expected), Brought::Bytes(result)) => match (result, expected) {
                (Ok(seen), Some(expected)) => {
                    // Where the event of the batch that was to be written could not be asked, the work behind it is dropped.
                    let is_as_written = seen[0].1 == expected || self.plain.was_injected(35);
                    assert!(is_as_written, "a slice holds something else");
                }
                (Ok(_), None) => {}
                (Err(Error::OutOfMemory { .. }), _) if self.sizes.slice * 9 / 8 >= self.sizes.readback => {}
                (Err(error), _) => self.excuse(&error, &of),
            },
            (Kind::Write(stream, bytes), Brought::Nothing(Ok(()))) => {
                // Its copy may have failed while the write was on its way.
                self.written[stream] = self.plain.copies_are_fine().then_some(bytes);
            }
            (Kind::Write(stream, _), Brought::Nothing(Err(error))) => {
                // The work may be queued all the same, where only the end of its lease could not be recorded.
                self.written[stream] = None;
                if !self.is_too_large(&error) {
                    self.excuse(&error, &of);
                }
            }
            (
                _,
                Brought::Batch(Err(error))
                | Brought::Sent(Err(error))
                | Brought::Pinned(Err(error))
                | Brought::Nothing(Err(error)),
            ) => {
                self.excuse(&error, &of);
            }
            (kind, _) => panic!("{kind:?} has succeeded"),
        }
    }

    fn excuse(&mut self, error: &Error, of: &Waiting) {
        self.plain.excuse(error, of.victim, of.work);
    }

    /// A batch is there: it has the names, in order, of the item that it was made of.
    fn arrived(&mut self, number: usize, batch: DeviceBatch) {
        let model = &self.plain.batches[number];
        assert!(
            batch.names().eq((0..model.fields.len()).map(|field| format!("{number}.{field}"))),
            "another batch's place"
        );
        assert!(!batch.is_ready() || !model.copy_failed, "batch {number} arrived, though a copy of it failed");
        self.batches.push((number, batch));
    }

    fn judge_bytes(
        &mut self,
        result: inflight::Result<Seen>,
        of: &Waiting,
        batch: usize,
        whole: bool,
        expected: &Seen,
    ) {
        match result {
            // Work sees what earlier work has left, also where that was to write and did not; reads are told of it.
            Ok(_) if matches!(of.kind, Kind::Task { .. }) && self.plain.batches[batch].write_failed => {}
            Ok(seen) => {
                for ((name, seen), (of, bytes)) in seen.iter().zip(expected) {
                    assert!(
                        name == of && seen == bytes,
                        "work on batch {batch} finds something else in {name}: {:?}",
                        &seen[..seen.len().min(9)]
                    );
                }
                assert_eq!(seen.len(), expected.len());
            }
            Err(Error::NotQueued { .. } | Error::NotArrived { .. }) if !whole => {}
            Err(Error::Borrowed { .. } | Error::Busy { .. }) => {}
            Err(error) => {
                assert!(!is_of_the_moment(&error), "{error}");
                self.excuse(&error, of);
            }
        }
    }

    /// An admission was refused for good.
    pub(crate) fn judge_refusal(&mut self, error: &Error, number: usize) {
        if !self.is_too_large(error) {
            self.plain.excuse(error, Victim::Batch(number), None);
        }
    }

    fn is_too_large(&self, error: &Error) -> bool {
        match error {
            Error::BatchTooLarge { bytes, limit, .. } => {
                assert!(bytes > limit && *limit <= self.sizes.memory, "{error}");
                true
            }
            Error::FloorTooLarge { bytes, others, limit, .. } => {
                assert!(bytes + others > *limit && *limit <= self.sizes.memory && self.sizes.pipelines > 0, "{error}");
                true
            }
            _ => false,
        }
    }

    /// A transfer was made that had failed already.
    pub(crate) fn judge_failure(&mut self, error: &Error, kind: &Kind) {
        match (kind, error) {
            (Kind::Refused(number), Error::Source(error)) => assert_eq!(error.to_string(), format!("item {number}")),
            (Kind::Duplicate(_), Error::DuplicateField { field, .. }) => {
                assert!(field == "twice" && error.take_batch().is_some());
            }
            (Kind::Transfer(number), error) => self.judge_refusal(error, *number),
            (_, error) => {
                let victim = self.other();
                self.plain.excuse(error, victim, None);
            }
        }
    }
}
