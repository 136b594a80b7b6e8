//! Compares what arrived with what is expected, so that nothing wrong is measured.

use std::thread;

use inflight::{DeviceBatch, Element};

use super::pool::THREADS;
use super::rig::{Outcome, Rig};

/// Compares each element of the field `x` with the one that is `expected` at its indices.
pub(crate) fn check<T: Element + PartialEq>(
    rig: &Rig,
    batch: &DeviceBatch,
    shape: &[usize],
    expected: impl Fn(&[usize]) -> T + Sync,
) -> Outcome<()> {
    let back = rig.runtime.block_on(batch.field("x")?.read_back::<T>()?)?;
    if back.shape() != shape {
        return Err(format!("{:?} arrived, expected was {shape:?}", back.shape()).into());
    }
    let wrong = first_wrong(back.as_slice().ok_or("what comes back is contiguous")?, shape, &expected);
    wrong.map_or(Ok(()), |index| Err(format!("what arrived is wrong at {index:?}").into()))
}

/// The indices of an element that is not the expected one.
pub(crate) fn first_wrong<T: Element + PartialEq>(
    elements: &[T],
    shape: &[usize],
    expected: &(impl Fn(&[usize]) -> T + Sync),
) -> Option<Vec<usize>> {
    let part = elements.len().div_ceil(THREADS).max(1);
    thread::scope(|scope| {
        let search = |(number, part_of_all): (usize, &[T])| {
            let mut index = indices(number * part, shape);
            for element in part_of_all {
                if *element != expected(&index) {
                    return Some(index);
                }
                advance(&mut index, shape);
            }
            None
        };
        let searches: Vec<_> =
            elements.chunks(part).enumerate().map(|of_thread| scope.spawn(move || search(of_thread))).collect();
        let joined = |search: thread::ScopedJoinHandle<'_, _>| {
            search.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        searches.into_iter().find_map(joined)
    })
}

/// The indices of an element by its place in logical order.
fn indices(mut place: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (index, len) in index.iter_mut().zip(shape).rev() {
        *index = place % len;
        place /= len;
    }
    index
}

/// To the next element in logical order.
fn advance(index: &mut [usize], shape: &[usize]) {
    for (index, len) in index.iter_mut().zip(shape).rev() {
        *index += 1;
        if *index < *len {
            return;
        }
        *index = 0;
    }
}
