//! Random sequences of what users, consumers and the device do, against a plain model (invariants 1 to 3, 5 to 7, 9 to 11).
//!
//! Polled by hand on the simulator, with poisoned memory: every byte is right, order is kept, budgets are never exceeded,
//! nobody is woken for nothing or not at all, all memory is back at the end, and nobody starves. `PROPTEST_CASES` makes it
//! a long run. Seeds that failed are kept in `regressions.txt` beside this file and tried first.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod check;
mod finish;
mod floors;
mod judge;
mod pipes;
mod plain;
mod sends;
mod source;
mod steps;
mod uses;
mod waiting;
mod watch;
mod world;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use steps::{Sizes, Step, sizes, steps};
use world::World;

/// `cases` unless the environment asks for another number; failing seeds are kept.
fn config(cases: u32) -> ProptestConfig {
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/regressions.txt");
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig { max_shrink_iters: 20_000, max_shrink_time: 60_000, ..ProptestConfig::default() };
    ProptestConfig {
        cases: if asked { default.cases } else { cases },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..default
    }
}

fn after(sizes: Sizes, steps: &[Step]) -> World {
    let mut world = World::new(sizes);
    for step in steps {
        world.take(step);
        world.check();
    }
    world
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn what_was_begun_comes_to_its_end_and_leaves_nothing(sizes in sizes(), steps in steps()) {
        let mut world = after(sizes, &steps);
        world.run_to_the_end();
        world.leave_nothing();
    }

    #[test]
    fn what_is_dropped_at_any_moment_leaves_nothing(sizes in sizes(), steps in steps()) {
        after(sizes, &steps).leave_nothing();
    }

    #[test]
    fn a_device_that_is_dropped_first_harms_nobody(sizes in sizes(), steps in steps()) {
        after(sizes, &steps).drop_the_device_first();
    }
}
