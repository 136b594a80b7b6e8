//! [`Ring`]: which bytes of a block of memory are taken: chunks of the staging ring, in order, or small device blocks.
//!
//! The lowest room that is long enough is taken, or what is to lie beside others follows them. So the memory that was written last is written again, and is in the caches
//! still: on an H200 machine crops of 64³ were staged a quarter to a half faster than round the whole ring. Chunks are copied
//! in the order in which they were taken, so the oldest one is always under way and the ring never stands still (invariant
//! 11).

use std::ops::Range;

use crate::plan::ALIGN;

/// A stretch of the ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// Which bytes of a block are taken. Knows nothing of the block itself.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: usize,
    /// Room, lowest first; between any two of them something is taken.
    free: Vec<Range<usize>>,
    /// Where the segment ends that was taken last to lie beside others.
    last: usize,
}

impl Ring {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes, free: std::iter::once(0..bytes).collect(), last: 0 }
    }

    /// The lowest `bytes`, contiguous, or `None` until others are given back.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Segment> {
        let length = bytes.next_multiple_of(ALIGN);
        let place = self.free.iter().position(|free| free.len() >= length)?;
        let offset = self.free[place].start;
        Some(self.cut(place, Segment { offset, bytes }))
    }

    /// `bytes` behind those that were taken so before, if there is room up to `end`; else the lowest.
    pub(crate) fn take_beside(&mut self, bytes: usize, end: usize) -> Option<Segment> {
        let length = bytes.next_multiple_of(ALIGN);
        let place = self.free.partition_point(|free| free.end <= self.last);
        let has_room = |free: &Range<usize>| free.start <= self.last && self.last + length <= free.end.min(end);
        let segment = match self.free.get(place) {
            Some(free) if has_room(free) => self.cut(place, Segment { offset: self.last, bytes }),
            _ => self.take(bytes)?,
        };
        self.last = segment.offset + length;
        Some(segment)
    }

    /// Takes a segment out of the room that it lies in.
    fn cut(&mut self, place: usize, segment: Segment) -> Segment {
        let free = &mut self.free[place];
        let rest = segment.offset + segment.bytes.next_multiple_of(ALIGN)..free.end;
        free.end = segment.offset;
        match (free.start == free.end, rest.start == rest.end) {
            (true, true) => drop(self.free.remove(place)),
            (true, false) => *free = rest,
            (false, true) => {}
            (false, false) => self.free.insert(place + 1, rest),
        }
        segment
    }

    /// Gives a segment back.
    pub(crate) fn release(&mut self, segment: &Segment) {
        let (start, end) = (segment.offset, segment.offset + segment.bytes.next_multiple_of(ALIGN));
        let place = self.free.partition_point(|free| free.end < start);
        let joins_before = self.free.get(place).is_some_and(|free| free.end == start);
        let after = place + usize::from(joins_before);
        let joins_after = self.free.get(after).is_some_and(|free| free.start == end);
        match (joins_before, joins_after) {
            (true, true) => self.free[place].end = self.free.remove(after).end,
            (true, false) => self.free[place].end = end,
            (false, true) => self.free[after].start = start,
            (false, false) => self.free.insert(place, start..end),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.first().is_some_and(|free| free.len() == self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_given_back_is_taken_again_before_memory_that_was_never_written() {
        let mut ring = Ring::new(1024);
        let first = ring.take(256).unwrap();
        let second = ring.take(200).unwrap();
        ring.release(&first);
        assert_eq!(ring.take(256).unwrap().offset, 0);
        ring.release(&second);
        assert_eq!(ring.take(512).unwrap().offset, 256, "room on both sides is one");
        assert_eq!(ring.take(257), None);
    }

    #[test]
    fn room_between_others_is_one_with_them() {
        let mut ring = Ring::new(1024);
        let [first, second, third] = [(); 3].map(|()| ring.take(256).unwrap());
        ring.release(&first);
        ring.release(&third);
        assert_eq!(ring.take(1024), None, "the second is taken");
        ring.release(&second);
        assert!(ring.is_empty());
        assert_eq!(ring.take(1024).unwrap().offset, 0);
    }

    #[test]
    fn what_is_to_lie_side_by_side_does_so_up_to_the_end_and_goes_on_with_the_lowest_room() {
        let mut ring = Ring::new(2048);
        let mut places = Vec::new();
        for _ in 0..6 {
            let segment = ring.take_beside(256, 1024).unwrap();
            places.push(segment.offset);
            ring.release(&segment);
        }
        assert_eq!(places, [0, 256, 512, 768, 0, 256]);
        let far = [ring.take_beside(512, 1024), ring.take_beside(512, 1024)].map(|taken| taken.unwrap().offset);
        assert_eq!(far, [512, 0]);
        assert_eq!(ring.take_beside(1024, 1024).unwrap().offset, 1024, "beyond the end rather than nowhere");
        assert_eq!(ring.take_beside(1, 1024), None);
    }

    #[test]
    fn more_than_the_ring_never_fits() {
        assert_eq!(Ring::new(1024).take(1025), None);
    }

    proptest! {
        #[test]
        fn segments_never_overlap_and_all_room_comes_back(steps in proptest::collection::vec((1_usize..700, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let mut ring = Ring::new(2048);
            let mut live: Vec<Segment> = Vec::new();
            for (bytes, beside, pick) in steps {
                match if beside { ring.take_beside(bytes, 1024) } else { ring.take(bytes) } {
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
