//! [`Pool`]: much pageable memory whose elements tell where they are, for the arrays of many jobs.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use inflight::{Element, HostArray};

use super::rig::Outcome;

/// Threads that fill or compare.
pub(crate) const THREADS: usize = 8;

/// Elements whose values tell their places.
pub(crate) trait Pattern: Element {
    /// The value of the element at a place.
    fn at(place: usize) -> Self;
}

/// Bits that differ from place to place.
const fn mixed(place: usize) -> u64 {
    (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Pattern for u8 {
    fn at(place: usize) -> Self {
        (mixed(place) >> 56) as Self
    }
}

impl Pattern for f32 {
    fn at(place: usize) -> Self {
        (mixed(place) >> 40) as Self
    }
}

impl Pattern for f64 {
    /// Of 53 bits, so that a cast to `f32` rounds.
    fn at(place: usize) -> Self {
        (mixed(place) >> 11) as Self
    }
}

/// Memory that arrays share.
pub(crate) struct Pool<T>(Arc<Vec<T>>);

/// What an array keeps of it.
struct Part<T>(Arc<Vec<T>>, Range<usize>);

impl<T> AsRef<[T]> for Part<T> {
    fn as_ref(&self) -> &[T] {
        self.0.get(self.1.clone()).unwrap_or_default()
    }
}

impl<T: Pattern> Pool<T> {
    /// So many elements, written by several threads.
    pub(crate) fn new(len: usize) -> Self {
        let mut elements = vec![T::default(); len];
        let part = len.div_ceil(THREADS).max(1);
        thread::scope(|scope| {
            for (number, part_of_all) in elements.chunks_mut(part).enumerate() {
                scope.spawn(move || {
                    let places = number * part..;
                    part_of_all.iter_mut().zip(places).for_each(|(to, place)| *to = T::at(place));
                });
            }
        });
        Self(Arc::new(elements))
    }

    pub(crate) fn elements(&self) -> &[T] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// An array over the elements from `first` on.
    pub(crate) fn array(&self, first: usize, shape: &[usize]) -> Outcome<HostArray> {
        let range = first..first + shape.iter().product::<usize>();
        Ok(HostArray::from_owner::<T>(Part(self.0.clone(), range), shape)?)
    }
}
