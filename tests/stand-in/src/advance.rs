//! How tests let streams advance by hand.

use std::time::Instant;

use crate::world::lock;

/// Completes up to so many operations: in rounds over the streams, in the order of their creation, the head of each that
/// is ready; of one stream alone if that is given. The answer is how many it were.
pub(crate) fn advance(most: u64, only: Option<usize>) -> u64 {
    let mut completed = 0;
    loop {
        let before = completed;
        let streams: Vec<usize> =
            lock().busy.iter().copied().filter(|stream| only.is_none_or(|o| o == *stream)).collect();
        for stream in streams {
            if completed < most && complete_head(stream) {
                completed += 1;
            }
        }
        if completed == before {
            return completed;
        }
    }
}

fn complete_head(stream: usize) -> bool {
    let mut world = lock();
    if !world.is_ready(stream) {
        return false;
    }
    match world.take_job(stream) {
        Some(job) => {
            drop(world);
            job.run();
        }
        None => world.complete(stream, Instant::now()),
    }
    true
}
