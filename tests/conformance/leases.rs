//! Batches in use by compute streams (invariants 3 and 4).

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::sim::{PendingStream, Simulator};
use inflight::{BatchStreamExt, ComputeStream, Device, DeviceBatch, Error, HostStream, batch};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

use crate::bed::{by_hand, elements, host_stream, on_hosts, pattern};

fn arrived(sim: &Simulator, byte: u8) -> DeviceBatch {
    let transfer = sim.device().try_transfer(batch! { x: vec![byte; 4096], y: vec![0_f32; 8] }).unwrap();
    assert!(sim.complete_field("x"));
    transfer.now_or_never().unwrap().unwrap()
}

#[test]
fn invariant_04_the_copy_stream_never_waits_for_compute() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let source = stream::iter((0..16_u8).map(|n| ("x", vec![n; 4096])));
    let mut batches = task::spawn(source.to_device(sim.device()).buffered(2));
    let mut work = Vec::new();
    let mut taken = 0;
    while taken < 16 {
        match batches.poll_next() {
            std::task::Poll::Ready(batch) => {
                let lease = batch.unwrap().unwrap().on(&stream).unwrap();
                work.push(lease.run(|fields| Ok(fields.view::<u8>("x")?[0])));
                taken += 1;
            }
            std::task::Poll::Pending => assert!(sim.complete_on(PendingStream::Copy), "the copies depend on compute"),
        }
    }
    assert_eq!(sim.pending().iter().filter(|pending| pending.is_task).count(), 16, "no work was done meanwhile");
    assert_eq!(sim.device().stats().limbo_blocks, 16);
    sim.complete_all();
    for (n, work) in work.into_iter().enumerate() {
        assert_eq!(usize::from(work.now_or_never().unwrap().unwrap()), n);
    }
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn compute_is_ordered_after_the_copies_on_the_device() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let early = sim.device().try_transfer(("x", vec![7_u8; 16])).unwrap().early();
    let batch = early.now_or_never().unwrap().unwrap();
    let lease = batch.on(&stream).unwrap();
    let mut work = task::spawn(lease.run(|fields| Ok(elements(&fields.view::<u8>("x")?))));
    assert_eq!(sim.counters().waits, 1);
    assert!(!sim.complete_on(PendingStream::Compute(0)), "it waits for the copy");
    assert_pending!(work.poll());
    sim.complete_all();
    assert_eq!(assert_ready_ok!(work.poll()), [7; 16]);
    let again = batch.on(&stream).unwrap();
    again.view::<u8>("x").unwrap();
    assert_eq!(sim.counters().waits, 1, "what has arrived needs no wait");
}

#[test]
fn a_lease_outlives_its_batch_and_moves_between_threads() {
    on_hosts(
        |builder| builder,
        |bed| async move {
            let stream = bed.device.compute_stream().unwrap();
            let ComputeStream::Host(host) = &stream else { unreachable!() };
            let batch = bed.device.transfer(("x", pattern(3, 1000))).await.unwrap().await.unwrap();
            let (lease, generic) = (batch.on(host).unwrap(), batch.on(&stream).unwrap());
            assert_eq!(generic.view::<u8>("x").unwrap().len(), 1000);
            drop(batch);
            let work = std::thread::spawn(move || lease.run(|fields| Ok(elements(&fields.view::<u8>("x")?))));
            assert_eq!(work.join().unwrap().await.unwrap(), pattern(3, 1000));
            generic.end().unwrap();
        },
    );
}

#[test]
fn views_are_typed_and_named() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let batch = arrived(&sim, 1);
    let lease = batch.on(&stream).unwrap();
    let view = lease.view::<u8>("x").unwrap();
    assert_eq!((view.shape(), view.len(), view.is_empty()), (&[4096][..], 4096, false));
    assert_eq!(view.address() % 256, 0);
    assert!(matches!(lease.view::<f32>("x"), Err(Error::DtypeMismatch { .. })));
    assert!(matches!(lease.view::<u8>("z"), Err(Error::UnknownField { names, .. }) if names == ["x", "y"]));
}

#[test]
fn writing_needs_the_only_lease() {
    let sim = by_hand(1 << 20);
    let (one, two) = (host_stream(sim.device()), host_stream(sim.device()));
    let batch = arrived(&sim, 1);
    let mut writer = batch.on(&one).unwrap();
    let reader = batch.on(&two).unwrap();
    let error = writer.split_mut::<u8, 1>(["x"]).unwrap_err();
    assert_eq!(error.to_string(), "the batch has other leases or reads, so this one can't write to it");
    drop(reader);
    let error = writer.split_mut::<u8, 2>(["x", "x"]).unwrap_err();
    assert_eq!(error.to_string(), "one field can't be written through two views");
    assert_eq!(writer.split_mut::<u8, 1>(["x"]).unwrap()[0].len(), 4096);
    assert!(matches!(batch.on(&two), Err(Error::Borrowed { .. })));
    assert!(matches!(batch.field("x").unwrap().as_host::<u8>(), Err(Error::Borrowed { .. })));
    assert!(matches!(batch.field("x").unwrap().read_back::<u8>(), Err(Error::Borrowed { .. })));
    writer.end().unwrap();
    assert!(batch.on(&two).is_ok());
    sim.complete_all();
}

#[test]
fn a_host_view_keeps_writers_out() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let batch = arrived(&sim, 1);
    let field = batch.field("x").unwrap();
    let view = field.as_host::<u8>().unwrap();
    let mut lease = batch.on(&stream).unwrap();
    assert!(lease.split_mut::<u8, 1>(["x"]).is_err());
    let mut refused = task::spawn(lease.run_mut(|_| Ok(())));
    assert!(matches!(assert_ready_err!(refused.poll()), Error::Borrowed { .. }));
    drop(view);
    let mut work = task::spawn(lease.run_mut(|fields| {
        fields.view_mut::<u8>("x")?.fill(9);
        Ok(())
    }));
    lease.end().unwrap();
    assert!(matches!(field.as_host::<u8>(), Err(Error::Borrowed { .. })), "what it wrote is not done");
    sim.complete_all();
    assert_ready_ok!(work.poll());
    assert_eq!(elements(&field.as_host::<u8>().unwrap()), [9; 4096]);
}

#[test]
fn a_reader_on_another_stream_comes_after_the_writer() {
    let sim = by_hand(1 << 20);
    let (one, two) = (host_stream(sim.device()), host_stream(sim.device()));
    let batch = arrived(&sim, 1);
    let mut writer = batch.on(&one).unwrap();
    drop(writer.run_mut(|fields| {
        let (x, mut y) = fields.split::<u8, f32>("x", "y")?;
        y.fill(f32::from(x[0]) + 0.5);
        Ok(())
    }));
    writer.end().unwrap();
    let reader = batch.on(&two).unwrap();
    let mut work = task::spawn(reader.run(|fields| Ok(elements(&fields.view::<f32>("y")?))));
    let mut read = task::spawn(batch.select(["y"]).unwrap().read_back());
    assert!(!sim.complete_on(PendingStream::Compute(1)), "the reader's stream waits for the writer's");
    assert!(!sim.complete_on(PendingStream::Read), "and so does the read-back");
    sim.complete_all();
    assert_eq!(assert_ready_ok!(work.poll()), [1.5; 8]);
    assert_eq!(elements(&assert_ready_ok!(read.poll()).field("y").unwrap().to_array::<f32>().unwrap()), [1.5; 8]);
}

#[test]
fn streams_and_batches_of_different_devices_do_not_mix_b105() {
    let (one, two) = (by_hand(1 << 20), by_hand(1 << 20));
    let stream = host_stream(two.device());
    let batch = arrived(&one, 1);
    let error = batch.on(&stream).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { what: "compute stream", .. }), "{error}");
    let slice = stream.alloc::<u8, _>(4).unwrap();
    assert!(matches!(one.device().read(&slice, &stream), Err(Error::WrongDevice { .. })));
    let free = HostStream::new().unwrap();
    let host = Device::host().unwrap();
    let batch = futures::executor::block_on(host.try_transfer(("x", 1_u8)).unwrap()).unwrap();
    assert!(batch.on(&free).is_ok(), "a stream belongs to the first device that uses it");
}

#[test]
fn a_panic_in_the_users_work_is_an_error_of_its_task() {
    on_hosts(
        |builder| builder,
        |bed| async move {
            let stream = host_stream(&bed.device);
            let batch = bed.device.transfer(("x", vec![1_u8; 8])).await.unwrap().await.unwrap();
            let lease = batch.on(&stream).unwrap();
            let error = lease.run::<(), _>(|_| panic!("a wrong turn")).await.unwrap_err();
            assert_eq!(error.to_string(), "work on a host stream panicked: a wrong turn");
            assert_eq!(lease.run(|fields| Ok(fields.names().count())).await.unwrap(), 1);
        },
    );
}

#[test]
fn a_device_with_one_stream_gives_the_same_results() {
    let stream = ComputeStream::Host(HostStream::new().unwrap());
    let builder = Device::builder().host().overlap(inflight::Overlap::Off(&stream));
    let device = futures::executor::block_on(builder.build_async()).unwrap();
    let ComputeStream::Host(host) = device.compute_stream().unwrap() else { unreachable!() };
    futures::executor::block_on(async {
        let source = stream::iter((0..10).map(|n| ("x", pattern(n, 100_000))));
        let mut batches = source.to_device(&device).buffered(3);
        let mut n = 0;
        while let Some(batch) = batches.try_next().await.unwrap() {
            let lease = batch.on(&host).unwrap();
            let seen = lease.run(|fields| Ok(elements(&fields.view::<u8>("x")?))).await.unwrap();
            assert_eq!(seen, pattern(n, 100_000));
            n += 1;
        }
        assert_eq!(n, 10);
    });
}

#[test]
fn a_lease_of_a_batch_without_bytes_costs_no_event() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    for _ in 0..10 {
        let transfer = sim.device().try_transfer(("x", Vec::<u8>::new())).unwrap();
        let batch = transfer.now_or_never().unwrap().unwrap();
        let mut lease = batch.on(&stream).unwrap();
        let seen = lease.run(|fields| Ok(fields.view::<u8>("x")?.len()));
        let written = lease.run_mut(|fields| Ok(fields.view_mut::<u8>("x")?.len()));
        lease.end().unwrap();
        drop(batch);
        sim.complete_all();
        assert_eq!((seen.now_or_never().unwrap().unwrap(), written.now_or_never().unwrap().unwrap()), (0, 0));
    }
    assert_eq!(sim.device().stats().events_made, 0, "there is no memory that must wait for the work");
}
