//! [`Sources`]: what was sent and is the user's, until it is dropped where nobody waits.

use std::time::Duration;

use super::Active;
use crate::memory::Owner;
use crate::sync::{Mutex, lock};

/// How long they are kept at most: who waits for page-locked memory waits for it.
const SOON: Duration = Duration::from_millis(1);
/// So many are dropped without waiting for time to do it.
const MANY: usize = 64;

/// Sources of copies that are done: dropped together, on a staging thread. Who drains waits.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    kept: Vec<(Owner, Active)>,
    /// When the first of them is to be dropped at the latest.
    by: Duration,
}

/// What a source finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// No other; it is to be dropped by then.
    First(Duration),
    Beside,
    Many,
}

impl Sources {
    pub(super) fn keep(&self, source: Owner, active: Active, now: Duration) -> Kept {
        let mut state = lock(&self.0);
        state.kept.push((source, active));
        match state.kept.len() {
            1 => {
                state.by = now + SOON;
                Kept::First(state.by)
            }
            MANY.. => Kept::Many,
            _ => Kept::Beside,
        }
    }

    /// Those that are to be dropped: all, if there `is_time` or they can't wait any more.
    pub(super) fn take(&self, is_time: bool, now: impl FnOnce() -> Duration) -> Vec<(Owner, Active)> {
        let mut state = lock(&self.0);
        let is_due = !state.kept.is_empty() && (is_time || state.by <= now());
        if is_due { std::mem::take(&mut state.kept) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sim::Simulator;

    #[test]
    fn sources_are_dropped_soon_however_little_time_there_is() {
        let sim = Simulator::new().unwrap();
        let device = sim.device().shared();
        let sources = Sources::default();
        let keep = |now| sources.keep(Arc::new(()), Active::new(device), now);
        assert_eq!(keep(Duration::ZERO), Kept::First(SOON));
        assert_eq!(keep(SOON / 2), Kept::Beside);
        assert!(sources.take(false, || SOON / 2).is_empty(), "they can wait");
        assert_eq!(sources.take(false, || SOON).len(), 2);
        assert_eq!(keep(SOON), Kept::First(2 * SOON));
        assert_eq!(sources.take(true, || SOON).len(), 1);
        assert_eq!((0..MANY).filter(|_| keep(SOON) == Kept::Many).count(), 1);
    }
}
