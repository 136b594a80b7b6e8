//! Leases asked for what they can't give: names, types, streams, two writers, fields that are not there.

use inflight::sim::{PendingStream, Simulator};
use inflight::{Device, Error, HostStream, batch};
use tokio_test::{assert_ready_err, task};

use crate::bed::{arrived, host_stream, now, refused, small};

const UNKNOWN: &str = "the batch has no field \"row\"; its fields are [\"raw\", \"labels\"]";
const OTHER_TYPE: &str = "field \"raw\" is float32, not float64";

#[test]
fn each_way_to_a_field_names_those_that_there_are() {
    let sim = Simulator::new().unwrap();
    let (batch, stream) = (arrived(&sim), host_stream(sim.device()));
    let mut lease = batch.on(&stream).unwrap();
    refused!(lease.view::<f32>("row"), Error::UnknownField { .. }, UNKNOWN);
    refused!(lease.wait("row"), Error::UnknownField { .. }, UNKNOWN);
    refused!(now(lease.queued("row")), Error::UnknownField { .. }, UNKNOWN);
    refused!(lease.read_back::<f32>("row"), Error::UnknownField { .. }, UNKNOWN);
    refused!(now(lease.run_on(&["raw", "row"], |_| Ok(()))), Error::UnknownField { .. }, UNKNOWN);
    refused!(lease.split_mut::<f32, 2>(["raw", "row"]), Error::UnknownField { .. }, UNKNOWN);
    let second = batch.on(&stream);
    assert!(second.is_ok(), "a refused lease writes nothing");
}

#[test]
fn each_way_to_a_field_says_both_types() {
    let sim = Simulator::new().unwrap();
    let (batch, stream) = (arrived(&sim), host_stream(sim.device()));
    let mut lease = batch.on(&stream).unwrap();
    refused!(lease.view::<f64>("raw"), Error::DtypeMismatch { .. }, OTHER_TYPE);
    refused!(lease.read_back::<f64>("raw"), Error::DtypeMismatch { .. }, OTHER_TYPE);
    refused!(lease.split_mut::<f64, 1>(["raw"]), Error::DtypeMismatch { .. }, OTHER_TYPE);
    let field = batch.field("raw").unwrap();
    refused!(field.as_host::<f64>(), Error::DtypeMismatch { .. }, OTHER_TYPE);
    refused!(field.read_back::<f64>(), Error::DtypeMismatch { .. }, OTHER_TYPE);
    let text = "field \"labels\" is uint8, not int8";
    refused!(lease.view::<i8>("labels"), Error::DtypeMismatch { .. }, text);
}

#[test]
fn work_on_a_stream_gets_the_same_errors_and_they_are_its_tasks() {
    let sim = Simulator::new().unwrap();
    let (batch, stream) = (arrived(&sim), host_stream(sim.device()));
    let lease = batch.on(&stream).unwrap();
    let unknown = lease.run(|fields| fields.view::<f32>("row").map(drop));
    let other = lease.run(|fields| fields.view::<f64>("raw").map(drop));
    lease.end().unwrap();
    sim.complete_all();
    refused!(now(unknown), Error::UnknownField { .. }, UNKNOWN);
    refused!(now(other), Error::DtypeMismatch { .. }, OTHER_TYPE);
}

#[test]
fn one_field_can_not_be_read_and_written_at_once() {
    let sim = Simulator::new().unwrap();
    let (batch, stream) = (arrived(&sim), host_stream(sim.device()));
    let mut lease = batch.on(&stream).unwrap();
    let work = lease.run_mut(|fields| fields.split::<f32, f32>("raw", "raw").map(drop));
    lease.end().unwrap();
    sim.complete_all();
    let text = "one field can't be read and written at once";
    refused!(now(work), Error::Borrowed { .. }, text);
    refused!(batch.on(&stream), Error::Borrowed { .. }, text);
}

#[test]
fn a_second_writer_is_told_what_is_in_the_way() {
    let sim = Simulator::new().unwrap();
    let (batch, stream) = (arrived(&sim), host_stream(sim.device()));
    let (mut one, mut two) = (batch.on(&stream).unwrap(), batch.on(&stream).unwrap());
    let text = "the batch has other leases or reads, so this one can't write to it";
    refused!(one.split_mut::<f32, 1>(["raw"]), Error::Borrowed { .. }, text);
    refused!(now(two.run_mut(|_| Ok(()))), Error::Borrowed { .. }, text);
    drop(two);
    let work = one.run_mut(|_| Ok(()));
    let text = "the batch is in use by a lease that writes to it";
    refused!(batch.on(&stream), Error::Borrowed { .. }, text);
    refused!(batch.field("raw").unwrap().read_back::<f32>(), Error::Borrowed { .. }, text);
    refused!(now(batch.read_back()), Error::Borrowed { .. }, text);
    refused!(batch.field("raw").unwrap().as_host::<f32>(), Error::Borrowed { .. }, text);
    one.end().unwrap();
    let text = "work that writes to the batch is not done";
    refused!(batch.field("raw").unwrap().as_host::<f32>(), Error::Borrowed { .. }, text);
    sim.complete_all();
    now(work).unwrap();
    assert!(batch.on(&stream).is_ok());
}

#[test]
fn the_stream_of_another_device_is_told_by_its_device() {
    let (sim, other) = (Simulator::new().unwrap(), Simulator::new().unwrap());
    let (batch, stream) = (arrived(&sim), host_stream(other.device()));
    let (here, there) = (sim.device().name(), other.device().name());
    let text = format!("the compute stream belongs to another device, {there}, not to {here}");
    refused!(batch.on(&stream), Error::WrongDevice { .. }, text);
    let slice = stream.alloc::<u8, _>(4).unwrap();
    refused!(sim.device().read(&slice, &stream), Error::WrongDevice { .. }, text);
    refused!(now(sim.device().read_wait(&slice, &stream)), Error::WrongDevice { .. }, text);
    refused!(now(sim.device().write([1_u8; 4], &slice, &stream)), Error::WrongDevice { .. }, text);
    // A stream of nobody's belongs to the first that uses it.
    let free = HostStream::new().unwrap();
    let host = Device::host().unwrap();
    drop(host.read(&slice, &free).unwrap());
    let text = format!("the compute stream belongs to another device, host, not to {here}");
    refused!(batch.on(&free), Error::WrongDevice { .. }, text);
}

#[test]
fn a_field_that_has_not_arrived_says_what_to_await() {
    let sim = Simulator::new().unwrap();
    let batch = batch! { raw: vec![1_u8; 256 << 10], labels: vec![2_u8; 8 << 20] };
    let mut early = task::spawn(sim.device().try_transfer(batch).unwrap().early());
    let std::task::Poll::Ready(Ok(batch)) = early.poll() else { panic!("its first field is queued") };
    let text = "field \"raw\" has not arrived yet: await its `ready`";
    refused!(batch.field("raw").unwrap().as_host::<u8>(), Error::NotArrived { .. }, text);
    sim.complete_all();
}

#[test]
fn a_lease_on_a_batch_that_failed_tells_its_cause() {
    let sim = Simulator::new().unwrap();
    let stream = host_stream(sim.device());
    let mut early = task::spawn(sim.device().try_transfer(small()).unwrap().early());
    let std::task::Poll::Ready(Ok(batch)) = early.poll() else { panic!("its first field is queued") };
    let lease = batch.on(&stream).unwrap();
    assert!(sim.fail_next(1));
    let name = sim.device().name();
    let starts = format!("event query failed with code 1 on {name}");
    let plain = |error: Error| {
        assert!(matches!(error, Error::Driver { code: 1, .. }), "{error:?}");
        // Where a driver was opened, it says what its code means.
        assert_eq!(error.to_string().replace(" (invalid argument)", ""), starts);
    };
    plain(batch.on(&stream).map(drop).unwrap_err());
    plain(lease.view::<f32>("raw").map(drop).unwrap_err());
    plain(now(lease.queued("raw")).unwrap_err());
    plain(batch.field("raw").unwrap().as_host::<f32>().map(drop).unwrap_err());
    plain(batch.field("raw").unwrap().read_back::<f32>().map(drop).unwrap_err());
    plain(now(batch.field("raw").unwrap().ready()).unwrap_err());
    plain(now(batch.read_back()).map(drop).unwrap_err());
    let mut work = task::spawn(lease.run(|fields| fields.view::<f32>("raw").map(drop)));
    sim.complete_on(PendingStream::Compute(0));
    plain(assert_ready_err!(work.poll()));
}
