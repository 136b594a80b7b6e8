//! Read-backs and writes of the user's memory.

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use inflight::sim::{PendingStream, Simulator};
use inflight::{BatchStreamExt, Error, HostArray, batch};
use ndarray::Array2;
use tokio_test::{assert_pending, assert_ready_ok, task};

use crate::bed::{by_hand, elements, host_stream, on_each, on_host, on_hosts, pattern};

#[test]
fn a_read_sees_what_the_stream_had_done_and_nothing_later_b14() {
    for len in [4, 16 << 10, 100_000] {
        on_hosts(
            |builder| builder,
            |bed| async move {
                let stream = host_stream(&bed.device);
                let slice = stream.alloc::<f32, _>(len).unwrap();
                let fill = |value: f32| {
                    let slice = slice.clone();
                    drop(stream.run(move || slice.lock().fill(value)));
                };
                fill(1.0);
                let read = match bed.device.read(&slice, &stream) {
                    Ok(read) => read,
                    Err(Error::Busy { .. }) => bed.device.read_wait(&slice, &stream).await.unwrap(),
                    Err(error) => panic!("{error}"),
                };
                fill(2.0);
                let shown = read.await.unwrap();
                assert_eq!(elements(&shown), vec![1.0; len]);
                assert_eq!(shown.shape(), [len]);
                drop(slice);
            },
        );
    }
}

#[test]
fn a_read_back_owns_its_source_until_it_is_done_b14() {
    let sim = by_hand(1 << 20);
    let transfer = sim.device().try_transfer(("x", pattern(1, 4096))).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let mut read = task::spawn(batch.field("x").unwrap().read_back::<u8>().unwrap());
    drop(batch);
    let next = sim.device().try_transfer(("x", vec![255_u8; 4096])).unwrap();
    while sim.complete_on(PendingStream::Copy) {}
    assert_pending!(read.poll());
    sim.complete_all();
    assert_eq!(elements(&assert_ready_ok!(read.poll())), pattern(1, 4096));
    drop(next);
}

#[test]
fn dropping_a_read_keeps_both_ends_until_it_is_done() {
    let sim = by_hand(1 << 20);
    let transfer = sim.device().try_transfer(("x", pattern(1, 4096))).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    drop(batch.read_back());
    drop(batch);
    assert_eq!(sim.device().stats().device_used, 4096);
    assert!(sim.device().stats().readback_used > 0);
    sim.complete_all();
    let stats = sim.device().stats();
    assert_eq!((stats.device_used, stats.readback_used), (0, 0));
}

#[test]
fn reads_wait_for_room_and_go_on_in_order() {
    let settings = |builder: inflight::DeviceBuilder<'static>| builder.readback_bytes(128 << 10);
    let sim = Simulator::with(settings).unwrap();
    let transfer = sim.device().try_transfer(("x", pattern(1, 100_000))).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let mut reads: Vec<_> = (0..3).map(|_| task::spawn(batch.field("x").unwrap().read_back::<u8>().unwrap())).collect();
    for mut read in reads.drain(..) {
        assert_pending!(read.poll());
        sim.complete_all();
        assert!(read.is_woken());
        assert_eq!(elements(&assert_ready_ok!(read.poll())), pattern(1, 100_000));
    }
}

#[test]
fn no_slot_is_busy_and_read_wait_waits() {
    let settings = |builder: inflight::DeviceBuilder<'static>| builder.readback_bytes(64 << 10);
    let sim = Simulator::with(settings).unwrap();
    let stream = host_stream(sim.device());
    let slice = stream.alloc::<f32, _>(1).unwrap();
    let first = sim.device().read(&slice, &stream).unwrap();
    let error = sim.device().read(&slice, &stream).unwrap_err();
    assert_eq!(error.to_string(), "no room for 4 bytes in the read-back memory right now");
    let device = sim.device().clone();
    let mut second = task::spawn(async move { device.read_wait(&slice, &stream).await });
    assert_pending!(second.poll());
    sim.complete_all();
    drop(first);
    assert!(second.is_woken());
    let read = assert_ready_ok!(second.poll());
    sim.complete_all();
    assert_eq!(elements(&read.now_or_never().unwrap().unwrap()), [0.0]);
}

#[test]
fn what_a_lease_wrote_is_read_back_through_it() {
    for len in [10, 40_000] {
        on_hosts(
            |builder| builder,
            |bed| async move {
                let stream = host_stream(&bed.device);
                let batch = bed.device.transfer(("y", vec![0_f32; len])).await.unwrap().await.unwrap();
                let mut lease = batch.on(&stream).unwrap();
                let write = |fields: &mut inflight::FieldsMut| {
                    fields.view_mut::<f32>("y")?.mapv_inplace(|y| y + 1.0);
                    Ok(())
                };
                drop(lease.run_mut(write));
                let read = loop {
                    match lease.read_back::<f32>("y") {
                        Ok(read) => break read,
                        Err(Error::Busy { .. }) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                };
                drop(lease.run_mut(write));
                lease.end().unwrap();
                assert_eq!(elements(&read.await.unwrap()), vec![1.0; len]);
                let later = batch.field("y").unwrap().read_back::<f32>().unwrap().await.unwrap();
                assert_eq!(elements(&later), vec![2.0; len]);
            },
        );
    }
}

#[test]
fn a_write_takes_its_turn_on_the_stream() {
    on_hosts(
        |builder| builder,
        |bed| async move {
            let stream = host_stream(&bed.device);
            let slice = stream.alloc::<f64, _>((300, 200)).unwrap();
            let array = Array2::from_shape_fn((200, 300), |(i, j)| (i * 300 + j) as f64);
            let view = HostArray::from(array.clone()).permuted_axes([1, 0]).unwrap();
            let before = slice.clone();
            let seen_before = stream.run(move || before.lock()[5]);
            bed.device.write(view, &slice, &stream).await.unwrap();
            let after = slice.clone();
            let seen = stream.run(move || after.lock().array().to_owned()).await.unwrap();
            assert_eq!(seen, array.t().into_owned().into_dyn());
            assert_eq!(seen_before.await.unwrap(), 0.0);
            let wrong = bed.device.write(vec![1.0_f64], &slice, &stream).await.unwrap_err();
            assert_eq!(wrong.to_string(), "the data has shape [1], not [300, 200]");
            let wrong = bed.device.write(Array2::<f32>::zeros((300, 200)), &slice, &stream).await;
            assert!(matches!(wrong, Err(Error::DtypeMismatch { .. })));
        },
    );
}

#[test]
fn predict_writes_every_result_in_order() {
    on_hosts(
        |builder| builder,
        |bed| async move {
            let stream = host_stream(&bed.device);
            let source = stream::iter(0..12_u8).map(|n| {
                batch! { x: vec![n; 100], scores: HostArray::zeros::<f32>(100).unwrap() }
            });
            let forward = |batch: inflight::Result<inflight::DeviceBatch>| {
                let batch = batch?;
                let mut lease = batch.on(&stream)?;
                drop(lease.run_mut(|fields| {
                    let (x, mut scores) = fields.split::<u8, f32>("x", "scores")?;
                    scores.zip_mut_with(&x, |score, x| *score = f32::from(*x) * 2.0);
                    Ok(())
                }));
                lease.end()?;
                batch.select(["scores"])
            };
            let results = source.to_device(&bed.device).buffered(3).map(forward).read_back().buffered(2);
            let results: Vec<_> = results.try_collect().await.unwrap();
            for (n, result) in results.iter().enumerate() {
                assert_eq!(result.names().collect::<Vec<_>>(), ["scores"]);
                assert_eq!(
                    elements(&result.field("scores").unwrap().to_array::<f32>().unwrap()),
                    [n as f32 * 2.0; 100]
                );
            }
        },
    );
}

#[test]
fn what_failed_work_wrote_is_not_read_as_a_result() {
    on_hosts(
        |builder| builder,
        |bed| async move {
            let stream = host_stream(&bed.device);
            for panics in [false, true] {
                let batch = bed.device.transfer(("y", vec![0_f32; 10])).await.unwrap().await.unwrap();
                let mut lease = batch.on(&stream).unwrap();
                let work = lease.run_mut::<(), _>(move |_| {
                    assert!(!panics, "half way");
                    Err(Error::source("no weights"))
                });
                drop(work);
                lease.end().unwrap();
                let error = match batch.field("y").unwrap().read_back::<f32>() {
                    Ok(read) => read.await.unwrap_err(),
                    Err(error) => error,
                };
                assert!(matches!(error, Error::Panicked { .. }) == panics, "{error}");
            }
        },
    );
}

#[test]
fn results_can_be_sent_again() {
    on_each(
        |builder| builder,
        |bed| async move {
            let batch = bed.device.transfer(("x", pattern(1, 5000))).await.unwrap().await.unwrap();
            let back = batch.read_back().await.unwrap();
            let staged = bed.device.stats().bytes_staged;
            let again = bed.device.transfer(back).await.unwrap().await.unwrap();
            assert_eq!(elements(&on_host::<u8>(&again, "x").await), pattern(1, 5000));
            assert_eq!(bed.device.stats().bytes_staged, staged, "it lies in page-locked memory");
        },
    );
}

#[test]
fn a_read_that_finds_no_memory_keeps_its_block_until_the_copy_into_it_is_done() {
    let sim = Simulator::with(|builder| builder.memory_bytes(1 << 20).readback_bytes(64 << 10)).unwrap();
    let stream = host_stream(sim.device());
    let slice = stream.alloc::<u8, _>(128 << 10).unwrap();
    let read = loop {
        match sim.device().read(&slice, &stream) {
            Ok(read) => break read,
            Err(Error::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let error = read.now_or_never().unwrap().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert!(sim.device().stats().device_used > 0, "the copy into the block is still queued");
    sim.complete_all();
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn invariant_09_no_more_reads_are_enqueued_than_a_driver_takes_without_blocking() {
    let sim = by_hand(1 << 20);
    let transfer = sim.device().try_transfer(("x", vec![7_u8; 100])).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let reads: Vec<_> = (0..700).map(|_| batch.field("x").unwrap().read_back::<u8>().unwrap()).collect();
    assert_eq!(sim.pending().len(), 256);
    sim.complete_next();
    assert_eq!(sim.pending().len(), 256, "as one is done the next goes");
    sim.complete_all();
    for read in reads {
        assert_eq!(elements(&read.now_or_never().unwrap().unwrap()), [7; 100]);
    }
}

#[test]
fn invariant_05_a_read_waits_for_what_was_written_whatever_becomes_of_other_events() {
    let sim = by_hand(16 << 20);
    let stream = host_stream(sim.device());
    let transfer = sim.device().try_transfer(("x", pattern(1, 100_000))).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let mut lease = batch.on(&stream).unwrap();
    drop(lease.run_mut(|fields| {
        fields.view_mut::<u8>("x")?.mapv_inplace(|x| !x);
        Ok(())
    }));
    let read = loop {
        match lease.read_back::<u8>("x") {
            Ok(read) => break read,
            Err(Error::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    // An event that came back to the pool too early would be this one's, and would fire before the work is done.
    let other = sim.device().try_transfer(("x", pattern(2, 4096))).unwrap();
    while sim.complete_on(PendingStream::Copy) {}
    assert!(other.now_or_never().is_some(), "the other batch has arrived");
    assert!(!sim.complete_on(PendingStream::Read), "the copy home comes after the work, which is not done");
    sim.complete_all();
    let written: Vec<u8> = pattern(1, 100_000).iter().map(|x| !x).collect();
    assert_eq!(elements(&read.now_or_never().unwrap().unwrap()), written);
}

#[test]
fn a_read_behind_a_write_that_never_ran_is_an_error() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let transfer = sim.device().try_transfer(("x", pattern(1, 4096))).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let mut lease = batch.on(&stream).unwrap();
    let work = lease.run_mut(|fields| fields.view_mut::<u8>("x").map(|mut field| field.fill(0)));
    lease.end().unwrap();
    let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
    assert!(sim.fail_next(1), "the stream fails the work before it runs");
    sim.complete_all();
    assert!(work.now_or_never().unwrap().is_err());
    assert!(read.now_or_never().unwrap().is_err(), "what was there before is not what was meant");
    assert!(batch.on(&stream).is_err());
}

#[test]
fn a_read_whose_copy_on_the_users_stream_failed_is_an_error() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let slice = stream.alloc::<u8, _>(128 << 10).unwrap();
    let read = loop {
        match sim.device().read(&slice, &stream) {
            Ok(read) => break read,
            Err(Error::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(sim.fail_next(1));
    sim.complete_all();
    let error = read.now_or_never().unwrap().unwrap_err();
    assert!(matches!(error, Error::Driver { code: 1, .. }), "{error}");
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn reading_a_batch_beyond_the_budget_is_an_error_and_no_wait_for_itself() {
    let sim = Simulator::with(|builder| builder.readback_bytes(96 << 10)).unwrap();
    let fields = ["a", "b"].map(|name| (name, pattern(1, 64 << 10)));
    let transfer = sim.device().try_transfer(inflight::HostBatch::from_fields(fields)).unwrap();
    sim.complete_all();
    let batch = transfer.now_or_never().unwrap().unwrap();
    let read = batch.read_back();
    sim.complete_all();
    let error = read.now_or_never().unwrap().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    let one = batch.field("a").unwrap().read_back::<u8>().unwrap();
    sim.complete_all();
    assert!(one.now_or_never().unwrap().is_ok(), "one of them has room");
}

#[test]
fn reads_of_two_batches_do_not_wait_for_each_other() {
    const KB: usize = 1 << 10;
    let sim = Simulator::with(|builder| builder.readback_bytes(16 * KB)).unwrap();
    let send = |sizes: [usize; 2]| {
        let fields = ["a", "b"].into_iter().zip(sizes.map(|bytes| pattern(1, bytes)));
        let transfer = sim.device().try_transfer(inflight::HostBatch::from_fields(fields)).unwrap();
        sim.complete_all();
        transfer.now_or_never().unwrap().unwrap()
    };
    let (first, second, third) = (send([3 * KB, 3 * KB]), send([2 * KB, 10 * KB]), send([6 * KB, 6 * KB]));
    let mut held = task::spawn(first.read_back());
    let mut wide = task::spawn(second.read_back());
    let mut last = task::spawn(third.read_back());
    sim.complete_all();
    let result = assert_ready_ok!(held.poll());
    assert_pending!(wide.poll());
    assert_pending!(last.poll());
    drop((result, held));
    for read in [&mut wide, &mut last] {
        sim.complete_all();
        assert!(read.is_woken());
        drop(assert_ready_ok!(read.poll()));
    }
}
