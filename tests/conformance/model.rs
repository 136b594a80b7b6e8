//! Random sequences of what users do, against a plain model (invariants 1, 3, 9 and 11).

use futures::FutureExt;
use inflight::sim::{PendingStream, Simulator};
use inflight::{DeviceBatch, HostStream, HostTask, Lease, Transfer};
use proptest::prelude::*;

use crate::bed::{elements, host_stream, pattern};

const LIMIT: usize = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Send { bytes: usize },
    Complete { on: u8 },
    Fail,
    Take { which: usize },
    DropTransfer { which: usize },
    Lease { which: usize },
    EndLease { which: usize },
    DropBatch { which: usize },
    ReadBack { which: usize },
    Hold(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0_usize..8;
    prop_oneof![
        4 => prop_oneof![0_usize..300, 4_000_usize..70_000, 100_000_usize..300_000].prop_map(|bytes| Step::Send { bytes }),
        6 => (0_u8..3).prop_map(|on| Step::Complete { on }),
        1 => Just(Step::Fail),
        4 => which().prop_map(|which| Step::Take { which }),
        1 => which().prop_map(|which| Step::DropTransfer { which }),
        3 => which().prop_map(|which| Step::Lease { which }),
        3 => which().prop_map(|which| Step::EndLease { which }),
        2 => which().prop_map(|which| Step::DropBatch { which }),
        1 => which().prop_map(|which| Step::ReadBack { which }),
        1 => any::<bool>().prop_map(Step::Hold),
    ]
}

struct World {
    sim: Simulator,
    stream: HostStream,
    sent: usize,
    transfers: Vec<(usize, usize, Transfer)>,
    batches: Vec<(usize, usize, DeviceBatch)>,
    leases: Vec<Lease<HostStream>>,
    seen: Vec<(usize, usize, HostTask<Vec<u8>>)>,
}

fn nth<T>(list: &mut Vec<T>, which: usize) -> Option<T> {
    if list.is_empty() { None } else { Some(list.remove(which % list.len())) }
}

impl World {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Send { bytes } => {
                if let Ok(transfer) = self.sim.device().try_transfer(("x", pattern(self.sent, bytes))) {
                    self.transfers.push((self.sent, bytes, transfer));
                }
                self.sent += 1;
            }
            Step::Complete { on } => {
                let stream = [PendingStream::Copy, PendingStream::Read, PendingStream::Compute(0)][usize::from(on)];
                self.sim.complete_on(stream);
            }
            Step::Fail => {
                self.sim.fail_next(1);
            }
            Step::Take { which } => {
                let Some((number, bytes, mut transfer)) = nth(&mut self.transfers, which) else { return };
                match (&mut transfer).now_or_never() {
                    Some(Ok(batch)) => self.batches.push((number, bytes, batch)),
                    Some(Err(error)) => assert!(!error.is_fatal()),
                    None => self.transfers.push((number, bytes, transfer)),
                }
            }
            Step::DropTransfer { which } => drop(nth(&mut self.transfers, which)),
            Step::Lease { which } => {
                let Some((number, bytes, batch)) = nth(&mut self.batches, which) else { return };
                let lease = batch.on(&self.stream).unwrap();
                self.seen.push((number, bytes, lease.run(|fields| Ok(elements(&fields.view::<u8>("x")?)))));
                self.leases.push(lease);
                self.batches.push((number, bytes, batch));
            }
            Step::EndLease { which } => drop(nth(&mut self.leases, which)),
            Step::DropBatch { which } => drop(nth(&mut self.batches, which)),
            Step::ReadBack { which } => {
                let Some((number, bytes, batch)) = nth(&mut self.batches, which) else { return };
                drop(batch.read_back());
                self.batches.push((number, bytes, batch));
            }
            Step::Hold(held) => self.sim.hold_staging(held),
        }
    }

    /// What must be true at every moment.
    fn check(&mut self) {
        let stats = self.sim.device().stats();
        let counters = self.sim.counters();
        assert!(stats.device_used + stats.device_idle <= LIMIT);
        assert!(counters.live_device_bytes <= LIMIT, "{counters:?}");
        assert_eq!(counters.unrecorded_queries, 0);
        for (number, bytes, batch) in &self.batches {
            let field = batch.field("x").unwrap();
            assert_eq!(elements(&field.as_host::<u8>().unwrap()), pattern(*number, *bytes), "batch {number}");
        }
        self.seen.retain_mut(|(number, bytes, task)| match task.now_or_never() {
            Some(Ok(seen)) => {
                assert_eq!(seen, pattern(*number, *bytes), "work on batch {number}");
                false
            }
            // The work itself was made to fail.
            Some(Err(_)) => false,
            None => true,
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_keep_every_byte_and_give_everything_back(steps in proptest::collection::vec(step(), 1..60)) {
        let sim = Simulator::with(|builder| builder.memory_bytes(LIMIT).staging_bytes(64 << 10)).unwrap();
        sim.poison(true);
        let stream = host_stream(sim.device());
        let (transfers, batches, leases, seen) = Default::default();
        let mut world = World { sim: sim.clone(), stream, sent: 0, transfers, batches, leases, seen };
        for step in &steps {
            world.take(step);
            world.check();
        }
        sim.hold_staging(false);
        sim.complete_all();
        world.check();
        drop(world);
        sim.complete_all();
        let stats = sim.device().stats();
        prop_assert_eq!((stats.device_used, stats.limbo_blocks, stats.operations, stats.readback_used), (0, 0, 0, 0));
        prop_assert!(sim.device().drain().now_or_never().unwrap().is_ok());
        sim.device().trim();
        prop_assert_eq!(sim.counters().live_device_bytes, 0);
    }
}
