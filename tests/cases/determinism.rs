//! The same order in every run.

use std::task::Poll;

use futures::{StreamExt, stream};
use inflight::BatchStreamExt;
use tokio_test::task;

use crate::bed::{elements, host_stream, pattern};
use crate::{Numbers, small};

#[test]
fn batches_come_in_the_sources_order_and_unordered_ones_say_their_place_b121() {
    for seed in 0..100 {
        for in_order in [true, false] {
            let (sim, mut numbers) = (small(), Numbers(seed));
            let stream = host_stream(sim.device());
            let source = stream::iter((0..12).map(|n| ("x", pattern(n, 64 + n))));
            let transfers = source.to_device(sim.device());
            // Resolved when work behind the batch is done, and the streams' work is done in any order.
            let used = transfers.map(|transfer| {
                let stream = stream.clone();
                async move {
                    let batch = transfer.early().await.unwrap();
                    let read = batch.read_back();
                    let sum = batch.on(&stream).unwrap().run(|fields| Ok(elements(&fields.view::<u8>("x")?)));
                    let place = batch.index();
                    if place % 2 == 0 {
                        drop(read.await.unwrap())
                    }
                    (place, sum.await.unwrap())
                }
            });
            let mut used = task::spawn(if in_order {
                used.buffered(4).left_stream()
            } else {
                used.buffer_unordered(4).right_stream()
            });
            let mut places = Vec::new();
            while places.len() < 12 {
                match used.poll_next() {
                    Poll::Ready(item) => {
                        let (place, seen) = item.unwrap();
                        assert_eq!(seen, pattern(place as usize, 64 + place as usize), "seed {seed}");
                        places.push(place);
                    }
                    Poll::Pending => {
                        let ready: Vec<_> = sim.pending().iter().filter(|one| one.runnable).map(|one| one.id).collect();
                        assert!(sim.complete(ready[numbers.below(ready.len())]));
                    }
                }
            }
            if !in_order {
                places.sort_unstable();
            }
            assert_eq!(places, (0..12).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
