//! [`FetchKernels`]: when kernels fetch rows of page-locked memory. [`Fetching`]: whether they do now, or copies bring them.
//!
//! A kernel is faster than the copy engine for short rows, and costs the host next to nothing, but it takes multiprocessors.
//! So it is for pipelines whose consumer waits, and for a GPU that has room: where kernels were clearly slower than copies
//! would have been, copies are made for a while.

use std::time::Duration;

use crate::admission::Pipeline;
use crate::backend::Fault;
use crate::batch::HostBatch;
use crate::device::{Flag, Shared};
use crate::plan::{Fetches, Plan, Way};
use crate::sync::{Mutex, lock};

/// When kernels fetch rows of page-locked arrays, in place of copies; for
/// [`DeviceBuilder::fetch_kernels`](crate::DeviceBuilder::fetch_kernels).
///
/// A kernel reads the host's memory by itself: it is faster than the copy engine for short rows, and costs the host a call
/// where copies take one for each piece. Meanwhile it takes an eighth of the multiprocessors, 16 at most. Rows are those of 64
/// bytes and more in arrays of 256 KiB and more: whole multiples of 16 bytes that begin anywhere, or of 4 bytes that begin at
/// such; [`Route::Fetched`](crate::Route::Fetched) tells.
///
/// Without effect on the host, with [`Overlap::Off`](crate::Overlap::Off), on GPUs that share memory with the host, and after
/// a launch that the driver refused, which fails its batch and is the device's last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FetchKernels {
    /// Where that is faster: for rows at even distances of at most 256 bytes (192, if that is not a multiple of 16), and picked
    /// pieces below 32 KiB, of pipelines whose consumer waits, which have no batch that has arrived and is not taken (one that
    /// is forgotten counts for ever). Where kernels were slower than copies by more than a tenth and 50 µs each, since the GPU
    /// is full, copies are made for 100 ms, and for up to 2 s if that stays so.
    #[default]
    Auto,
    /// Wherever they can. Long rows come slower: on an H200 picked rows of 150 KB at 0.92 of the link in place of 0.98, for 0.1
    /// cores of the host in place of 0.35; beside a load that fills the GPU a kernel may take six times as long as copies, and
    /// takes from the load.
    Always,
    /// Never. For compute kernels that keep the whole GPU until a batch has arrived: one that fetches it could not begin, and
    /// both would wait for ever.
    Never,
}

/// How long copies are made after kernels that were slow, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A kernel that begins when it is enqueued is learned to be done later than it is, by so much, and once by more. Behind
/// another it begins when that one is learned to be done, as late.
const LATE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(200));
/// Kernels for so long a time of copies that were not slow are fast.
const TELLING: Duration = Duration::from_millis(1);

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
    when: FetchKernels,
    /// The driver has refused one.
    is_refused: Flag,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Those of late were not slow.
    is_fast: bool,
    /// One is tried, though they were.
    is_trial: bool,
    /// When the next one may be.
    until: Duration,
    rest: Duration,
    /// When the last one was over: the next has begun then.
    over: Duration,
    /// How long those took of which it is not told yet whether they are fast, how long they may take, and copies would.
    took: Duration,
    fair: Duration,
    by_copies: Duration,
    /// How long kernels take, in thousandths of what copies would.
    pace: u32,
}

impl Fetching {
    pub(crate) fn new(when: FetchKernels) -> Self {
        let (zero, rest) = (Duration::ZERO, REST.0);
        let state = State {
            is_fast: false,
            is_trial: false,
            until: zero,
            rest,
            over: zero,
            took: zero,
            fair: zero,
            by_copies: zero,
            pace: 1000,
        };
        Self { when, is_refused: Flag::default(), state: Mutex::new(state) }
    }

    /// Which page-locked rows of a batch of this pipeline are to be fetched.
    pub(crate) fn serves(&self, device: &Shared, pipeline: &Pipeline, batch: &HostBatch) -> Fetches {
        let is_of_rows =
            |array: &crate::HostArray| array.page_locked() == Some(device.id) && array.contiguous_bytes().is_none();
        let has_rows = || batch.fields().iter().any(|(_, array)| is_of_rows(array));
        match self.when {
            _ if self.is_refused.is_up() => Fetches::Nothing,
            FetchKernels::Always => Fetches::AllRows,
            FetchKernels::Auto if has_rows() && pipeline.is_waited_for() && self.may_begin(device.clock.now()) => {
                Fetches::ShortRows
            }
            FetchKernels::Auto | FetchKernels::Never => Fetches::Nothing,
        }
    }

    fn may_begin(&self, now: Duration) -> bool {
        let state = lock(&self.state);
        state.is_fast || now >= state.until
    }

    /// A batch with that plan is on its way.
    pub(crate) fn begun(&self, device: &Shared, plan: &Plan) {
        if self.when == FetchKernels::Auto && plan.layout.parts.iter().any(|part| part.way == Way::Fetched) {
            self.tried(device.clock.now());
        }
    }

    /// One that is not known to be fast is a trial: others wait for what comes of it.
    fn tried(&self, now: Duration) {
        let mut state = lock(&self.state);
        if !state.is_fast {
            state.is_trial = true;
            state.until = now + state.rest;
            state.rest = (state.rest * 2).min(REST.1);
        }
    }

    /// A kernel was over then, as far as can be guessed: it tells when the next began, and nothing else.
    pub(crate) fn guessed_over(&self, ended: Duration) {
        lock(&self.state).over = ended;
    }

    /// A kernel that was enqueued at `since` is over.
    pub(crate) fn over(&self, now: Duration, since: Duration, fetch: Fetch) {
        let Fetch { by_copies, is_beside_copies } = fetch;
        let mut state = lock(&self.state);
        let late = if since < state.over { Duration::ZERO } else { LATE.0 };
        let took = now.saturating_sub(since.max(state.over));
        state.over = now;
        if by_copies > LATE.1 && !is_beside_copies {
            let pace = took.as_nanos() * 1000 / by_copies.as_nanos();
            // A quarter of what is new.
            state.pace = (3 * state.pace + u32::try_from(pace).unwrap_or(1000).min(2000)) / 4;
        }
        if !state.is_fast && !state.is_trial {
            // It was planned before it was known that they are slow.
            return;
        }
        let fair = by_copies + by_copies / 10;
        state.took += took;
        state.fair += late + if is_beside_copies { fair * 2 } else { fair };
        state.by_copies += by_copies;
        if state.took > state.fair + LATE.1 {
            state.judge(now, false);
        } else {
            let is_telling = state.by_copies >= TELLING;
            state.is_fast = true;
            if is_telling {
                state.judge(now, true);
            }
        }
    }

    /// A kernel was refused: it is the last that is asked for.
    pub(crate) fn refused(&self, device: &str, fault: Fault) {
        if self.is_refused.raise() {
            let Fault { code, call } = fault;
            tracing::warn!(device, code, call, "a kernel that fetches rows was refused: from now on copies are made");
        }
    }

    /// How long a kernel takes, about, where copies would take so long.
    pub(crate) fn expected(&self, by_copies: Duration) -> Duration {
        by_copies * lock(&self.state).pace / 1000
    }
}

impl State {
    /// Kernels up to now are fast, or not; those that come are looked at anew.
    fn judge(&mut self, now: Duration, is_fast: bool) {
        (self.took, self.fair, self.by_copies) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        if is_fast {
            self.rest = REST.0;
        } else if self.is_fast {
            self.until = now + self.rest;
        }
        (self.is_fast, self.is_trial) = (is_fast, false);
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
        let fetching = Fetching::new(FetchKernels::Auto);
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
        let fetching = Fetching::new(FetchKernels::Auto);
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
    fn small_ones_are_judged_together() {
        let (micros, small) = (Duration::from_micros, alone(Duration::from_micros(30)));
        for (took, is_fast) in [(70, true), (150, false)] {
            let fetching = Fetching::new(FetchKernels::Auto);
            fetching.tried(ms(0));
            for nth in (0..20).filter(|nth| *nth == 0 || fetching.may_begin(ms(*nth))) {
                fetching.over(ms(nth) + micros(took), ms(nth), small);
            }
            assert_eq!(fetching.may_begin(ms(50)), is_fast, "{took} µs where copies take 30");
        }
    }

    #[test]
    fn what_was_planned_before_a_slow_one_does_not_end_the_rest() {
        let fetching = Fetching::new(FetchKernels::Auto);
        fetching.tried(ms(0));
        fetching.over(ms(1), ms(0), alone(ms(1)));
        fetching.over(ms(9), ms(2), alone(ms(1)));
        fetching.over(ms(11), ms(10), alone(ms(1)));
        assert!(!fetching.may_begin(ms(108)) && fetching.may_begin(ms(109)));
    }

    #[test]
    fn one_behind_another_is_not_learned_later_than_that() {
        let micros = Duration::from_micros;
        let (fetching, small) = (Fetching::new(FetchKernels::Auto), alone(micros(5)));
        fetching.tried(ms(0));
        // Enqueued together: each takes 45 µs where copies take 5.
        (1..=9).for_each(|nth| fetching.over(micros(45 * nth), ms(0), small));
        assert!(!fetching.may_begin(ms(50)));
    }

    #[test]
    fn beside_copies_a_kernel_may_take_twice_as_long() {
        let beside = Fetch { by_copies: ms(10), is_beside_copies: true };
        for (took, is_fast) in [(21, true), (23, false)] {
            let fetching = Fetching::new(FetchKernels::Auto);
            fetching.tried(ms(0));
            fetching.over(ms(took), ms(0), beside);
            assert_eq!(fetching.may_begin(ms(50)), is_fast, "{took}");
            assert_eq!(fetching.expected(ms(10)), ms(10), "it tells nothing");
        }
        let fetching = Fetching::new(FetchKernels::Auto);
        fetching.tried(ms(0));
        fetching.over(ms(12), ms(0), alone(ms(10)));
        assert!(!fetching.may_begin(ms(50)), "alone it may not");
    }

    #[test]
    fn it_is_learned_how_long_kernels_take() {
        // Also where it does not matter whether they are fast.
        let fetching = Fetching::new(FetchKernels::Always);
        assert_eq!(fetching.expected(ms(10)), ms(10));
        for nth in 1..40 {
            fetching.over(ms(5 * nth), ms(5 * nth - 5), alone(ms(10)));
        }
        let expected = fetching.expected(ms(10));
        assert!(expected > ms(5) - LATE.1 && expected < ms(5) + LATE.1, "{expected:?}");
    }

    #[test]
    fn a_guess_tells_when_the_next_began_and_nothing_else() {
        let fetching = Fetching::new(FetchKernels::Auto);
        fetching.tried(ms(0));
        fetching.guessed_over(ms(9));
        assert!(!fetching.may_begin(ms(9)), "it is not known yet whether they are fast");
        assert_eq!(fetching.expected(ms(10)), ms(10));
        fetching.over(ms(10), ms(0), alone(ms(1)));
        assert!(fetching.may_begin(ms(10)), "this one took a millisecond");
    }

    #[test]
    fn what_waits_for_the_one_before_has_not_begun() {
        let fetching = Fetching::new(FetchKernels::Auto);
        fetching.tried(ms(0));
        fetching.over(ms(1), ms(0), alone(ms(1)));
        for nth in 2..9 {
            fetching.over(ms(nth), ms(0), alone(ms(1)));
            assert!(fetching.may_begin(ms(nth)));
        }
    }
}
