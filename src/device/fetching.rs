//! [`Fetching`]: whether kernels fetch rows of page-locked memory now, or copies bring them.
//!
//! A kernel is faster than the copy engine for short rows, and costs the host next to nothing, but it takes multiprocessors.
//! So it is for pipelines whose consumer waits, and for a GPU that has room: where a kernel was much slower than copies
//! would have been, copies are made for a while.

use std::time::Duration;

use crate::admission::Pipeline;
use crate::batch::HostBatch;
use crate::device::Shared;
use crate::plan::{Plan, Way};
use crate::sync::{Mutex, lock};

/// How long copies are made after a kernel that was slow, at first and at most. A slow one of 38.5 MB takes 5 ms on a full
/// H200.
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A kernel is learned to be done later than it is; behind another by about as much as that one.
const LATE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_micros(50));

/// A kernel that was enqueued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    /// How long copies would take.
    pub(crate) by_copies: Duration,
    /// Copies were on the link, which it has half of then.
    pub(crate) is_beside_copies: bool,
}

/// What is known of a device's kernels that fetch.
#[derive(Debug)]
pub(crate) struct Fetching {
    is_allowed: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last one was fast.
    is_fast: bool,
    /// When the next one may be tried, if it was not.
    until: Duration,
    rest: Duration,
    /// When the last one was over: the next has begun then.
    over: Duration,
    /// How long fast ones take, in thousandths of what copies would.
    pace: u32,
}

impl Fetching {
    pub(crate) fn new(is_allowed: bool) -> Self {
        let state = State { is_fast: false, until: Duration::ZERO, rest: REST.0, over: Duration::ZERO, pace: 1000 };
        Self { is_allowed, state: Mutex::new(state) }
    }

    /// Whether a batch of this pipeline, with what it has of page-locked rows, had better be fetched.
    pub(crate) fn serves(&self, device: &Shared, pipeline: &Pipeline, batch: &HostBatch) -> bool {
        let is_of_rows =
            |array: &crate::HostArray| array.page_locked() == Some(device.id) && array.contiguous_bytes().is_none();
        self.is_allowed
            && batch.fields().iter().any(|(_, array)| is_of_rows(array))
            && pipeline.is_waited_for()
            && self.may_begin(device.clock.now())
    }

    fn may_begin(&self, now: Duration) -> bool {
        let state = lock(&self.state);
        state.is_fast || now >= state.until
    }

    /// A batch with that plan is on its way.
    pub(crate) fn begun(&self, device: &Shared, plan: &Plan) {
        if self.is_allowed && plan.parts.iter().any(|part| part.way == Way::Fetched) {
            self.tried(device.clock.now());
        }
    }

    /// One that is not known to be fast is a trial: others wait for what comes of it.
    fn tried(&self, now: Duration) {
        let mut state = lock(&self.state);
        if !state.is_fast {
            state.until = now + state.rest;
            state.rest = (state.rest * 2).min(REST.1);
        }
    }

    /// A kernel that was enqueued at `since` is over.
    pub(crate) fn over(&self, now: Duration, since: Duration, fetch: Fetch) {
        let Fetch { by_copies, is_beside_copies } = fetch;
        let mut state = lock(&self.state);
        let (took, late) = match since < state.over {
            true => (now.saturating_sub(state.over), LATE.1),
            false => (now.saturating_sub(since), LATE.0),
        };
        state.over = now;
        let fair = by_copies + by_copies / 10;
        if took <= late + if is_beside_copies { fair * 2 } else { fair } {
            (state.is_fast, state.rest) = (true, REST.0);
            if by_copies > LATE.0 && !is_beside_copies {
                let pace = took.as_nanos() * 1000 / by_copies.as_nanos();
                // A quarter of what is new.
                state.pace = (3 * state.pace + u32::try_from(pace).unwrap_or(1000)) / 4;
            }
        } else if state.is_fast {
            (state.is_fast, state.until) = (false, now + state.rest);
        }
    }

    /// How long a kernel takes, about, where copies would take so long.
    pub(crate) fn expected(&self, by_copies: Duration) -> Duration {
        by_copies * lock(&self.state).pace / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const fn alone(by_copies: Duration) -> Fetch {
        Fetch { by_copies, is_beside_copies: false }
    }

    #[test]
    fn the_first_is_a_trial_and_others_wait_for_what_comes_of_it() {
        let fetching = Fetching::new(true);
        assert!(fetching.may_begin(ms(1)));
        fetching.tried(ms(1));
        assert!(!fetching.may_begin(ms(2)), "copies until it is known");
        fetching.over(ms(3), ms(1), alone(ms(2)));
        assert!(fetching.may_begin(ms(3)));
        fetching.tried(ms(4));
        assert!(fetching.may_begin(ms(4)), "it is fast");
    }

    #[test]
    fn after_slow_ones_copies_are_made_for_longer_and_longer() {
        let fetching = Fetching::new(true);
        fetching.tried(ms(0));
        fetching.over(ms(1), ms(0), alone(ms(1)));
        fetching.over(ms(9), ms(2), alone(ms(1)));
        assert!(!fetching.may_begin(ms(10)));
        fetching.over(ms(20), ms(2), alone(ms(1)));
        assert!(fetching.may_begin(ms(109)), "those that were begun before count once");
        let mut now = ms(109);
        for rest in [100, 200, 400, 800, 1600, 2000, 2000] {
            fetching.tried(now);
            fetching.over(now + ms(9), now, alone(ms(1)));
            assert!(!fetching.may_begin(now + ms(rest - 1)), "{rest}");
            now += ms(rest);
            assert!(fetching.may_begin(now), "{rest}");
        }
        fetching.tried(now);
        fetching.over(now + ms(1), now, alone(ms(1)));
        fetching.over(now + ms(9), now, alone(ms(1)));
        assert!(fetching.may_begin(now + ms(109)), "a fast one between them and it begins anew");
    }

    #[test]
    fn it_is_learned_how_long_fast_ones_take() {
        let fetching = Fetching::new(true);
        assert_eq!(fetching.expected(ms(10)), ms(10));
        for nth in 1..40 {
            fetching.over(ms(5 * nth), ms(5 * nth - 5), alone(ms(10)));
        }
        let expected = fetching.expected(ms(10));
        assert!(expected > ms(5) - LATE.0 && expected < ms(5) + LATE.0, "{expected:?}");
        fetching.over(ms(1000), ms(200), alone(ms(10)));
        assert_eq!(fetching.expected(ms(10)), expected, "a slow one tells nothing");
    }

    #[test]
    fn beside_copies_a_kernel_may_take_twice_as_long() {
        let beside = Fetch { by_copies: ms(10), is_beside_copies: true };
        for (took, is_fast) in [(21, true), (23, false)] {
            let fetching = Fetching::new(true);
            fetching.tried(ms(0));
            fetching.over(ms(took), ms(0), beside);
            assert_eq!(fetching.may_begin(ms(50)), is_fast, "{took}");
            assert_eq!(fetching.expected(ms(10)), ms(10), "it tells nothing");
        }
        let fetching = Fetching::new(true);
        fetching.tried(ms(0));
        fetching.over(ms(12), ms(0), alone(ms(10)));
        assert!(!fetching.may_begin(ms(50)), "alone it may not");
    }

    #[test]
    fn what_waits_for_the_one_before_has_not_begun() {
        let fetching = Fetching::new(true);
        fetching.over(ms(1), ms(0), alone(ms(1)));
        for nth in 2..9 {
            fetching.over(ms(nth), ms(0), alone(ms(1)));
            assert!(fetching.may_begin(ms(nth)));
        }
    }
}
