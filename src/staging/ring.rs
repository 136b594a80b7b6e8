//! [`Ring`]: page-locked memory that chunks are taken from in order and given back in any.
//!
//! Room comes free at the oldest end only. Chunks are copied in the order in which they were taken, so the oldest one is
//! always under way and the ring never stands still (invariant 11).

use std::collections::VecDeque;

use crate::plan::ALIGN;

/// A stretch of the ring, given back by its number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    number: u64,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Taken {
    number: u64,
    offset: usize,
    free: bool,
}

/// Which bytes of a block are taken. Knows nothing of the block itself.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: usize,
    /// Where the next segment begins, if it fits there.
    head: usize,
    taken: VecDeque<Taken>,
    next: u64,
}

impl Ring {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes, head: 0, taken: VecDeque::new(), next: 0 }
    }

    /// The next `bytes`, contiguous, or `None` until older ones are given back.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Segment> {
        let length = bytes.next_multiple_of(ALIGN);
        let offset = self.fit(length)?;
        let number = self.next;
        self.next += 1;
        self.head = offset + length;
        self.taken.push_back(Taken { number, offset, free: false });
        Some(Segment { number, offset, bytes })
    }

    fn fit(&self, length: usize) -> Option<usize> {
        let Some(oldest) = self.taken.front() else {
            return (length <= self.bytes).then_some(0);
        };
        let wrapped = self.head <= oldest.offset;
        if wrapped {
            return (self.head + length <= oldest.offset).then_some(self.head);
        }
        if self.head + length <= self.bytes {
            return Some(self.head);
        }
        (length <= oldest.offset).then_some(0)
    }

    /// Gives a segment back.
    pub(crate) fn release(&mut self, segment: &Segment) {
        let first = self.taken.front().map_or(0, |oldest| oldest.number);
        let place = usize::try_from(segment.number - first).unwrap_or(usize::MAX);
        if let Some(taken) = self.taken.get_mut(place) {
            taken.free = true;
        }
        while self.taken.front().is_some_and(|oldest| oldest.free) {
            self.taken.pop_front();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn room_comes_free_at_the_oldest_end_only() {
        let mut ring = Ring::new(1024);
        let first = ring.take(512).unwrap();
        let second = ring.take(512).unwrap();
        assert_eq!(ring.take(1), None);
        ring.release(&second);
        assert_eq!(ring.take(1), None, "the oldest is still taken");
        ring.release(&first);
        assert_eq!(ring.take(1024).unwrap().offset, 0);
    }

    #[test]
    fn more_than_the_ring_never_fits() {
        assert_eq!(Ring::new(1024).take(1025), None);
    }

    proptest! {
        #[test]
        fn segments_never_overlap_and_all_room_comes_back(steps in proptest::collection::vec((1_usize..700, any::<prop::sample::Index>()), 1..200)) {
            let mut ring = Ring::new(2048);
            let mut live: Vec<Segment> = Vec::new();
            for (bytes, pick) in steps {
                match ring.take(bytes) {
                    Some(segment) => {
                        prop_assert!(segment.offset + bytes <= 2048);
                        for other in &live {
                            let apart = segment.offset + segment.bytes <= other.offset || other.offset + other.bytes <= segment.offset;
                            prop_assert!(apart, "{segment:?} overlaps {other:?}");
                        }
                        live.push(segment);
                    }
                    None if live.is_empty() => prop_assert!(false, "an empty ring has room"),
                    None => ring.release(&live.swap_remove(pick.index(live.len()))),
                }
            }
            for segment in live.drain(..) {
                ring.release(&segment);
            }
            prop_assert!(ring.is_empty());
            prop_assert!(ring.take(2048).is_some());
        }
    }
}
