//! Batches of every kind at once - small ones that go together, rearranged fields, boxes of registered memory - and then
//! a drop, a failure or a loss after each step, or a fault at the k-th call of each kind.

use futures::{FutureExt, StreamExt, stream};
use inflight::sim::{FaultPoint, Simulator};
use inflight::{BatchStreamExt, DeviceBatch, HostArray, HostBatch, Relayout, Transfer, batch};
use ndarray::{Array, Array3, ArrayD, s};
use tokio_test::task;

use crate::bed::{elements, pattern};

const RINGS: [usize; 2] = [64 << 10, 256 << 10];

fn volume() -> Array3<u32> {
    Array::from_shape_fn((60, 40, 30), |(z, y, x)| (z * 10_000 + y * 100 + x) as u32)
}

fn transposed() -> ArrayD<u32> {
    volume().permuted_axes([2, 1, 0]).into_dyn()
}

/// A device whose small batches go together, with memory that is used again: batches with new memory would not wait.
fn device(together: usize, ring: usize) -> Simulator {
    let settings = |builder: inflight::DeviceBuilder<'static>| {
        builder.memory_bytes(32 << 20).batches_per_call(together).staging_bytes(ring).relayout(Relayout::Device)
    };
    let sim = Simulator::with(settings).unwrap();
    sim.poison(true);
    let first: Vec<_> = (0..8).map(|_| sim.device().try_transfer(("x", vec![0_u8; 700])).unwrap()).collect();
    sim.complete_all();
    drop(first);
    sim
}

/// The `n`-th batch: three of five are small.
fn nth(sim: &Simulator, n: usize) -> HostBatch {
    let registered = || sim.device().register(volume()).now_or_never().unwrap().unwrap();
    let rearranged = || HostArray::from(volume()).permuted_axes([2, 1, 0]).unwrap();
    match n % 5 {
        0 => batch! { small: pattern(n, 600), rearranged: rearranged(), large: pattern(n, 70_000) },
        2 => batch! { small: pattern(n, 650), part: registered().slice(s![1..59, 2..34, 3..23]).unwrap() },
        _ => batch! { small: pattern(n, 700 - n) },
    }
}

/// What has arrived is right.
fn check(n: usize, batch: &DeviceBatch) {
    for name in batch.names() {
        let field = batch.field(name).unwrap();
        match name {
            "rearranged" => assert_eq!(field.as_host::<u32>().unwrap().to_owned(), transposed(), "batch {n}"),
            "part" => {
                let expected = volume().slice(s![1..59, 2..34, 3..23]).to_owned().into_dyn();
                assert_eq!(field.as_host::<u32>().unwrap().to_owned(), expected, "batch {n}");
            }
            _ => {
                let bytes = elements(&field.as_host::<u8>().unwrap().to_owned());
                assert_eq!(bytes, pattern(n, bytes.len()), "batch {n}, {name}");
            }
        }
    }
}

/// Does `then` to ten transfers after each number of steps; it answers what is to arrive nevertheless.
fn after_each_step(then: impl Fn(&Simulator, Vec<Transfer>) -> Vec<(usize, Transfer)>) {
    for (together, ring) in [(1, RINGS[0]), (4, RINGS[0]), (16, RINGS[1])] {
        for steps in 0.. {
            let sim = device(together, ring);
            let transfers = (0..10).map(|n| sim.device().try_transfer(nth(&sim, n)).unwrap()).collect();
            let is_over = (0..steps).any(|_| !sim.complete_next());
            let rest = then(&sim, transfers);
            sim.complete_all();
            for (n, transfer) in rest {
                check(n, &transfer.now_or_never().expect("it is over").unwrap());
            }
            sim.complete_all();
            assert!(sim.device().drain().now_or_never().is_some(), "{together} together, {steps} steps");
            assert_eq!(sim.device().stats().device_used, 0, "{together} together, {steps} steps");
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn dropped_after_any_step_all_is_freed_i1() {
    after_each_step(|_, _| Vec::new());
    after_each_step(|_, transfers| transfers.into_iter().enumerate().step_by(2).collect());
}

#[test]
fn a_failure_after_any_step_fails_what_it_hit_i6() {
    after_each_step(|sim, transfers| {
        sim.fail_next(1);
        sim.complete_all();
        for (n, transfer) in transfers.into_iter().enumerate() {
            let _ = transfer.now_or_never().expect("it is over").map(|batch| check(n, &batch));
        }
        Vec::new()
    });
}

#[test]
fn a_loss_after_any_step_ends_all_i6() {
    after_each_step(|sim, transfers| {
        let was_lost = sim.fail_next(700);
        sim.complete_all();
        for transfer in transfers {
            let outcome = transfer.now_or_never().expect("it is over");
            assert!(outcome.map_or_else(|error| was_lost && error.is_fatal(), |_| true));
        }
        Vec::new()
    });
}

#[test]
fn a_fault_at_each_call_of_each_kind_hangs_and_spoils_nothing_i6() {
    use FaultPoint::{Allocate, Complete, Free, Launch, Query, Record, Submit, Wait};

    for point in [Allocate, Complete, Free, Launch, Query, Record, Submit, Wait] {
        for (code, call) in [1, 700].into_iter().flat_map(|code| (1..12).map(move |call| (code, call))) {
            let what = format!("{point:?} {call} answers {code}");
            let sim = device(4, RINGS[call % 2]);
            sim.inject(point, call, code);
            let source = stream::iter((0..10).map(|n| nth(&sim, n)));
            let mut batches = task::spawn(source.to_device(sim.device()).buffered(6));
            let mut ended = false;
            for _ in 0..3000 {
                match batches.poll_next() {
                    std::task::Poll::Ready(Some(batch)) => {
                        let _ = batch.map(|batch| check(batch.index() as usize, &batch));
                    }
                    std::task::Poll::Ready(None) => ended = true,
                    std::task::Poll::Pending => drop(sim.complete_next()),
                }
                if ended {
                    break;
                }
            }
            assert!(ended, "{what}: it hangs");
            drop(batches);
            sim.complete_all();
            assert!(sim.device().drain().now_or_never().is_some(), "{what}: something is never over");
            assert_eq!(sim.device().stats().device_used, 0, "{what}");
            assert_eq!(sim.counters().unrecorded_queries, 0, "{what}");
        }
    }
}
