//! What must go on, and what must end: loops, streams, processes.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::stream::FusedStream;
use futures::task::{ArcWake, noop_waker_ref};
use futures::{FutureExt, StreamExt, stream};
use inflight::sim::{FaultPoint, Simulator};
use inflight::{BatchStreamExt, Depth, Device, DeviceBatch, Error, LinkModel, Ready, Transfer};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

use crate::bed::{by_hand, eventually, on_each, pattern};

fn source(count: usize) -> impl futures::Stream<Item = (&'static str, Vec<u8>)> + Unpin + Send + 'static {
    stream::iter((0..count).map(|n| ("x", pattern(n, 4096))))
}

#[test]
fn a_consumer_that_keeps_a_batch_gets_memory_for_another_b43() {
    for batches in [2, 3, 4] {
        let sim = by_hand(batches * 4096);
        let mut pipeline = task::spawn(source(6).to_device(sim.device()).buffered(2));
        assert_pending!(pipeline.poll_next());
        sim.complete_all();
        let Poll::Ready(Some(Ok(_kept))) = pipeline.poll_next() else { panic!("it has arrived") };
        // Nobody polls the pipeline now.
        let mut scratch = task::spawn(sim.device().transfer(("scratch", vec![0_u8; 4096])));
        let scratch = assert_ready_ok!(scratch.poll(), "{batches} batches of memory");
        sim.complete_all();
        scratch.now_or_never().unwrap().unwrap();
    }
    // A full ring keeps nobody from page-locked memory.
    let sim = Simulator::with(|builder| builder.staging_bytes(64 << 10)).unwrap();
    let _transfer = sim.device().try_transfer(("x", vec![1_u8; 1 << 20])).unwrap();
    assert_eq!(sim.pending().iter().map(|pending| pending.bytes).sum::<usize>(), 64 << 10);
    assert!(sim.device().pinned::<u8, _>(64 << 10).now_or_never().unwrap().is_ok());
}

#[test]
fn a_query_that_fails_resolves_the_future_at_once_b46_b47() {
    for code in [1, 400, 700, 999, 12_345] {
        let sim = by_hand(1 << 20);
        let mut transfer = task::spawn(sim.device().try_transfer(("x", vec![1_u8; 8])).unwrap());
        assert_pending!(transfer.poll());
        sim.inject(FaultPoint::Query, 1, code);
        assert!(sim.complete_next());
        assert!(transfer.is_woken());
        let error = assert_ready_err!(transfer.poll());
        assert!(
            matches!(error, Error::Driver { code: of, .. } | Error::DeviceLost { code: of, .. } if of == code),
            "{error}"
        );
        sim.complete_all();
        assert_pending!(transfer.poll());
        assert!(!transfer.is_woken(), "it waits for nothing any more");
    }
}

/// Does in its wake what others do in their callbacks.
struct Busy {
    device: Device,
    /// A batch, and somebody who waits for the same one as this.
    kept: Mutex<Option<(DeviceBatch, Ready)>>,
    sent: Mutex<Vec<Transfer>>,
}

impl ArcWake for Busy {
    fn wake_by_ref(this: &Arc<Self>) {
        drop(this.kept.lock().unwrap().take());
        this.device.trim();
        assert!(this.device.stats().limbo_blocks < 100);
        this.sent.lock().unwrap().push(this.device.try_transfer(("x", pattern(2, 4096))).unwrap());
    }
}

/// Waits for a batch with a waker that is busy; answers with what that sends.
fn woken_busily(device: &Device, go_on: impl FnOnce()) -> Transfer {
    let early = device.try_transfer(("x", pattern(1, 4096))).unwrap().early();
    let batch = futures::executor::block_on(early).unwrap();
    let x = batch.field("x").unwrap();
    let (mut ready, mut other) = (x.ready(), x.ready());
    drop(x);
    assert!(other.poll_unpin(&mut Context::from_waker(noop_waker_ref())).is_pending());
    let kept = Mutex::new(Some((batch, other)));
    let busy = Arc::new(Busy { device: device.clone(), kept, sent: Mutex::default() });
    let waker = futures::task::waker(busy.clone());
    assert!(ready.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    go_on();
    eventually("the waker was woken and came back", || !busy.sent.lock().unwrap().is_empty());
    assert!(ready.now_or_never().unwrap().is_ok());
    let mut sent = std::mem::take(&mut *busy.sent.lock().unwrap());
    assert_eq!(sent.len(), 1);
    sent.pop().unwrap()
}

#[test]
fn a_wake_may_drop_batches_and_send_others_b48() {
    let sim = by_hand(1 << 20);
    let sent = woken_busily(sim.device(), || assert!(sim.complete_next()));
    sim.complete_all();
    drop(sent.now_or_never().unwrap().unwrap());
    assert_eq!(sim.device().stats().device_used, 0);
    let link = LinkModel { bytes_per_second: 1e9, latency: Duration::from_millis(50) };
    let device = Device::builder().host().link_model(link).build().unwrap();
    futures::executor::block_on(woken_busily(&device, || {})).unwrap();
}

/// Polls to the end: `None` again and again, and terminated from the first `None` on.
fn ends<S: FusedStream<Item: std::fmt::Debug> + Unpin>(stream: S, items: usize, mut go_on: impl FnMut()) {
    let mut stream = task::spawn(stream);
    let mut got = 0;
    loop {
        assert!(!stream.is_terminated(), "before its end, after {got}");
        match stream.poll_next() {
            Poll::Ready(Some(_)) => got += 1,
            Poll::Ready(None) => break,
            Poll::Pending => go_on(),
        }
    }
    assert_eq!(got, items);
    for _ in 0..3 {
        assert!(stream.is_terminated());
        assert!(matches!(stream.poll_next(), Poll::Ready(None)));
    }
}

#[test]
fn after_the_end_there_is_nothing_and_that_is_said_b54() {
    let sim = by_hand(1 << 20);
    let go_on = || assert!(sim.complete_next());
    let depth = Depth::new(2).unwrap();
    ends(source(2).to_device(sim.device()), 2, go_on);
    ends(source(2).to_device(sim.device()).buffered_by(&depth), 2, go_on);
    ends(source(2).to_device(sim.device()).buffered_by(&depth).read_back().buffered_by(&depth), 2, go_on);
    ends(stream::iter([Ok(1), Err("no"), Ok(2)]).until_error(&inflight::Failure::new()), 1, go_on);
    // An error of the source is an item like others; that of a lost device is the last.
    let failing = stream::iter([Ok(("x", 1_u8)), Err(std::io::Error::other("disk")), Ok(("x", 2))]);
    ends(failing.to_device(sim.device()).buffered_by(&depth), 3, go_on);
    let lost = source(5).to_device(sim.device());
    let _pending = sim.device().try_transfer(("x", 1_u8)).unwrap();
    assert!(sim.fail_next(700));
    ends(lost, 1, || panic!("a lost device keeps nobody waiting"));
}

#[test]
fn pipelines_of_nothing_beside_one_of_something_end_b58() {
    on_each(
        |builder| builder,
        |bed| async move {
            let pipelines = [0, 0, 5].map(|count| source(count).to_device(&bed.device).buffered(2));
            let indices = stream::select_all(pipelines).map(|batch| batch.unwrap().index()).collect::<Vec<_>>().await;
            assert_eq!(indices, [0, 1, 2, 3, 4]);
        },
    );
}

static KEPT: OnceLock<(Device, Option<Transfer>)> = OnceLock::new();

#[test]
#[ignore = "the child of another test"]
fn child_that_ends() {
    let Ok(way) = std::env::var("INFLIGHT_ENDING_CHILD") else { return };
    let device = Device::host().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let source = source(100).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    match way.as_str() {
        "full" | "empty" => runtime.block_on(async {
            let only = if way == "full" { 100 } else { 1 };
            let source = source.take(only).chain(stream::pending());
            let mut batches = source.to_device(&device).buffered(2).prefetch(2).unwrap();
            batches.next().await.unwrap().unwrap();
            while way == "full" && taken.load(Ordering::Relaxed) < 5 {
                tokio::task::yield_now().await;
            }
            drop(batches);
        }),
        "idle" => assert!(KEPT.set((device, None)).is_ok()),
        _ => {
            let transfer = device.try_transfer(("x", vec![1_u8; 64 << 20])).unwrap();
            assert!(KEPT.set((device, Some(transfer))).is_ok());
        }
    }
    drop(runtime);
    println!("at its end");
}

#[test]
fn a_process_ends_whatever_is_queued_or_kept_b53_b57() {
    for way in ["full", "empty", "idle", "under way"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "hangs::child_that_ends", "--ignored", "--nocapture"]);
        let mut child = child.env("INFLIGHT_ENDING_CHILD", way).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{way}: it does not end");
            }
            std::thread::yield_now();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("at its end"), "{way}: {}: {said}", output.status);
    }
}
