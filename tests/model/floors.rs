//! Floors (invariant 10): however much the others take, each pipeline is given what it was given before.

use std::collections::VecDeque;
use std::task::Poll;

use futures::{FutureExt, StreamExt, stream};
use inflight::BatchStreamExt;
use inflight::sim::Simulator;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio_test::task;

use crate::config;

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn nobody_takes_the_floor_of_another(
        floors in vec(1_usize..12_000, 1..=3),
        filling in vec(1_usize..6000, 1..40),
        again in any::<[prop::sample::Index; 3]>(),
    ) {
        let sim = Simulator::with(|builder| builder.memory_bytes(48 << 10).staging_bytes(64 << 10).readback_bytes(16 << 10)).unwrap();
        let send = |(floor, again): (&usize, &prop::sample::Index)| {
            let sizes = [*floor, 1 + again.index(*floor)];
            task::spawn(stream::iter(sizes.map(|bytes| ("x", vec![1_u8; bytes]))).to_device(sim.device()))
        };
        let mut pipes: Vec<_> = floors.iter().zip(&again).map(send).collect();
        for pipe in &mut pipes {
            let Poll::Ready(Some(first)) = pipe.poll_next() else { panic!("nothing is in the way of the first") };
            sim.complete_all();
            prop_assert!(first.now_or_never().unwrap().is_ok());
        }
        // One more pipeline and the user alone take what they can get.
        let mut greedy = task::spawn(stream::iter(filling.clone()).map(|bytes| ("x", vec![2_u8; bytes])).to_device(sim.device()));
        let mut held = VecDeque::new();
        for bytes in filling {
            held.extend(sim.device().try_transfer(("x", vec![3_u8; bytes])));
            if let Poll::Ready(Some(transfer)) = greedy.poll_next() {
                held.push_back(transfer);
            }
        }
        for pipe in &mut pipes {
            let Poll::Ready(Some(transfer)) = pipe.poll_next() else { panic!("its floor was taken") };
            held.push_back(transfer);
        }
        sim.complete_all();
        for transfer in held {
            prop_assert!(transfer.now_or_never().unwrap().is_ok());
        }
    }
}
