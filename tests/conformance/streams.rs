//! The adaptors: ends, hints, fusing, errors, fairness.

use futures::stream::FusedStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Depth, Error, Failure, HostArray, HostBatch};
use ndarray::Array2;
use tokio_test::{assert_pending, assert_ready, task};

use crate::bed::{by_hand, elements, on_each, on_host};

fn source(count: u8) -> impl Stream<Item = (&'static str, Vec<u8>)> + Unpin {
    stream::iter((0..count).map(|n| ("x", vec![n; 64])))
}

#[test]
fn size_hints_count_what_is_still_to_come() {
    let sim = by_hand(1024);
    let mut transfers = task::spawn(source(3).to_device(sim.device()));
    assert_eq!(transfers.size_hint(), (3, Some(3)));
    let held = assert_ready!(transfers.poll_next());
    assert_eq!(transfers.size_hint(), (2, Some(2)));
    assert_pending!(transfers.poll_next());
    assert_eq!(transfers.size_hint(), (2, Some(2)), "one waits for room");
    sim.complete_all();
    drop(held);
    while let std::task::Poll::Ready(Some(transfer)) = transfers.poll_next() {
        sim.complete_all();
        drop(transfer);
    }
    assert_eq!(transfers.size_hint(), (0, Some(0)));
    assert!(transfers.is_terminated());
    let depth = Depth::new(2).unwrap();
    let mut buffered = task::spawn(source(5).map(|_| futures::future::ready(())).buffered_by(&depth));
    assert_eq!(buffered.size_hint(), (5, Some(5)));
    assert_ready!(buffered.poll_next());
    assert_eq!(buffered.size_hint(), (4, Some(4)));
    assert!(!buffered.is_terminated());
    let reads = stream::iter(Vec::<inflight::DeviceBatch>::new()).read_back();
    assert_eq!(reads.size_hint(), (0, Some(0)));
    let until = stream::iter([Ok(1), Err("x")]).until_error(&Failure::<&str>::new());
    assert_eq!(until.size_hint(), (0, Some(2)));
}

#[test]
fn batches_unlike_the_one_before_have_their_own_names_shapes_and_types() {
    let batch = |n: u8| match n % 6 {
        0 | 1 => HostBatch::new().with("x", vec![n; 64]).with("y", vec![f32::from(n); 8]),
        2 | 3 => HostBatch::new().with("x", vec![n; 64]).with("y", vec![u32::from(n); 8]),
        4 => HostBatch::new().with("x", vec![n; 64]).with("z", vec![u32::from(n); 8]),
        _ => HostBatch::new().with("x", HostArray::from(Array2::from_elem((2, 8), n)).permuted_axes([1, 0]).unwrap()),
    };
    on_each(
        |builder| builder,
        |bed| async move {
            let mut batches = stream::iter((0..40).map(batch)).to_device(&bed.device).buffered(3);
            for n in 0..40_u8 {
                let found = batches.try_next().await.unwrap().unwrap();
                let expected = batch(n);
                assert!(found.names().eq(expected.names()), "batch {n}");
                for name in expected.names() {
                    let (array, expected) = (found.field(name).unwrap(), expected.field(name).unwrap());
                    assert_eq!((array.shape(), array.dtype()), (expected.shape(), expected.dtype()), "batch {n}");
                }
                let x = on_host::<u8>(&found, "x").await;
                assert!(x.iter().all(|element| *element == n), "batch {n}");
                match n % 6 {
                    0 | 1 => assert_eq!(elements(&on_host::<f32>(&found, "y").await), [f32::from(n); 8]),
                    2 | 3 => assert_eq!(elements(&on_host::<u32>(&found, "y").await), [u32::from(n); 8]),
                    4 => assert_eq!(elements(&on_host::<u32>(&found, "z").await), [u32::from(n); 8]),
                    _ => {}
                }
            }
        },
    );
}

#[test]
fn a_depth_of_zero_is_refused_b42() {
    let text = "depth can't be \"0\": it must be at least 1";
    assert_eq!(Depth::new(0).unwrap_err().to_string(), text);
    let depth = Depth::new(3).unwrap();
    assert_eq!(depth.set(0).unwrap_err().to_string(), text);
    assert_eq!(depth.get(), 3);
    let items = stream::iter([Ok::<_, Error>(1)]);
    assert_eq!(items.prefetch(0).unwrap_err().to_string(), "prefetch can't be \"0\": it must be at least 1");
}

#[test]
fn a_depth_can_be_changed_while_the_stream_runs() {
    let sim = by_hand(1 << 20);
    let depth = Depth::new(1).unwrap();
    let mut batches = task::spawn(source(20).to_device(sim.device()).buffered_by(&depth));
    assert_pending!(batches.poll_next());
    assert_eq!(sim.counters().copies_submitted, 1);
    depth.set(4).unwrap();
    assert!(batches.is_woken(), "a larger depth has more to start");
    assert_pending!(batches.poll_next());
    assert_eq!(sim.counters().copies_submitted, 4);
    depth.set(2).unwrap();
    sim.complete_all();
    for n in 0..20 {
        while batches.poll_next().map(|batch| assert_eq!(batch.unwrap().unwrap().index(), n)).is_pending() {
            assert!(sim.complete_next());
        }
    }
    assert_eq!(assert_ready!(batches.poll_next()).map(|_| ()), None);
    assert!(batches.is_terminated());
}

#[test]
fn until_error_ends_at_the_first_error_and_keeps_it() {
    on_each(
        |builder| builder,
        |bed| async move {
            let items =
                [Ok(("x", vec![1_u8])), Ok(("x", vec![2])), Err(std::io::Error::other("disk")), Ok(("x", vec![4]))];
            let failure = Failure::new();
            let batches = stream::iter(items).to_device(&bed.device).buffered(4).until_error(&failure);
            let mut batches = std::pin::pin!(batches);
            let mut count = 0;
            while let Some(batch) = batches.next().await {
                assert_eq!(batch.index(), count);
                count += 1;
            }
            assert!(batches.is_terminated());
            assert!(batches.next().await.is_none());
            assert_eq!((count, failure.take().unwrap().to_string().as_str()), (2, "the source failed: disk"));
            assert!(failure.check().is_ok());
        },
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefetch_drives_itself_and_clones_share_the_work() {
    let device = inflight::Device::host().unwrap();
    let batches = source(100).to_device(&device).buffered(4).prefetch(2).unwrap();
    let take = |mut batches: inflight::Prefetch<_>| async move {
        let mut seen = Vec::new();
        while let Some(batch) = batches.try_next().await.unwrap() {
            let batch: inflight::DeviceBatch = batch;
            seen.push(batch.index());
            tokio::task::yield_now().await;
        }
        seen
    };
    let (one, two) = (tokio::spawn(take(batches.clone())), tokio::spawn(take(batches)));
    let mut all = [one.await.unwrap(), two.await.unwrap()].concat();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_panic_of_the_source_is_the_last_item_b98() {
    let device = inflight::Device::host().unwrap();
    let source = source(10).map(|(name, bytes)| if bytes[0] == 3 { panic!("collate") } else { (name, bytes) });
    let items: Vec<_> = source.to_device(&device).buffered(1).prefetch(1).unwrap().collect().await;
    assert_eq!(items.len(), 4);
    assert!(items[..3].iter().all(Result::is_ok));
    let error = items[3].as_ref().unwrap_err();
    assert_eq!(error.to_string(), "the source of a prefetch panicked: collate");
}

#[tokio::test]
async fn dropping_a_prefetch_ends_its_task_b53() {
    let device = inflight::Device::host().unwrap();
    let endless = stream::repeat(()).map(|()| ("x", vec![1_u8; 64])).to_device(&device).named("endless").buffered(2);
    let mut items = endless.prefetch(1).unwrap();
    items.next().await.unwrap().unwrap();
    drop(items);
    let handle = tokio::runtime::Handle::current();
    while handle.metrics().num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn prefetch_outside_a_runtime_is_an_error() {
    let error = stream::iter([Ok::<_, Error>(1)]).prefetch(1).unwrap_err();
    assert_eq!(error.to_string(), "this thread has no tokio runtime to spawn a prefetch on");
}

#[test]
fn a_stream_that_is_always_ready_yields_now_and_then() {
    let device = inflight::Device::host().unwrap();
    let mut transfers = task::spawn(stream::repeat(()).map(|()| HostBatch::new()).to_device(&device));
    let ready = std::iter::from_fn(|| transfers.poll_next().is_ready().then_some(())).take(1000).count();
    assert_eq!(ready, 64);
    assert!(transfers.is_woken(), "it goes on by itself");
}

#[tokio::test]
async fn inside_tokio_it_takes_part_in_the_cooperative_budget() {
    let device = inflight::Device::host().unwrap();
    let mut transfers = stream::repeat(()).map(|()| HostBatch::new()).to_device(&device);
    let mut ready = 0;
    std::future::poll_fn(|context| {
        while ready < 100_000 && transfers.poll_next_unpin(context).is_ready() {
            ready += 1;
        }
        std::task::Poll::Ready(())
    })
    .await;
    assert!((64..1000).contains(&ready), "{ready} items in one poll");
}

#[test]
fn a_users_own_type_and_its_results_can_be_sent() {
    struct Scan {
        voxels: ndarray::Array3<f32>,
        label: u8,
    }
    impl From<Scan> for HostBatch {
        fn from(scan: Scan) -> Self {
            inflight::batch! { voxels: scan.voxels, label: scan.label }
        }
    }
    let sim = by_hand(1 << 20);
    let scans = stream::iter((0..2).map(|label| Scan { voxels: ndarray::Array3::zeros((2, 3, 4)), label }));
    let mut plain = task::spawn(scans.to_device(sim.device()));
    drop(assert_ready!(plain.poll_next()).unwrap());
    let scans = stream::iter(
        (0..2).map(|label| Ok::<_, std::io::Error>(Scan { voxels: ndarray::Array3::zeros((2, 3, 4)), label })),
    );
    let mut fallible = task::spawn(scans.to_device(sim.device()));
    let transfer = assert_ready!(fallible.poll_next()).unwrap();
    sim.complete_all();
    assert_eq!(transfer.now_or_never().unwrap().unwrap().names().collect::<Vec<_>>(), ["voxels", "label"]);
}
