//! A lost device: each call says so, with the cause, and gives back what it was given.

use futures::{StreamExt, stream};
use inflight::sim::Simulator;
use inflight::{BatchStreamExt, Error};

use crate::bed::{arrived, host_stream, now, small};

#[test]
fn every_call_on_a_lost_device_tells_the_cause_and_gives_batches_back() {
    let sim = Simulator::new().unwrap();
    let (device, stream) = (sim.device().clone(), host_stream(sim.device()));
    let batch = arrived(&sim);
    let mut lease = batch.on(&stream).unwrap();
    let slice = stream.alloc::<u8, _>(4).unwrap();
    let lost = device.try_transfer(small()).unwrap();
    assert!(sim.fail_next(700));
    // Where a driver was opened, it says what its code means.
    let (starts, call) = (format!("{} is lost: ", device.name()), "event query failed with code 700");
    let told = |error: &Error| {
        assert!(error.is_fatal() && matches!(error, Error::DeviceLost { code: 700, .. }), "{error:?}");
        assert!(error.to_string().starts_with(&format!("{starts}{call}")), "{error}");
    };
    let error = now(lost).unwrap_err();
    told(&error);
    assert!(error.take_batch().is_none(), "its copy had begun");

    let given_back = |error: Error| {
        told(&error);
        assert_eq!(error.take_batch().unwrap().len(), 2);
    };
    given_back(device.try_transfer(small()).map(drop).unwrap_err());
    given_back(now(device.transfer(small())).map(drop).unwrap_err());
    let mut transfers = stream::iter([small()]).to_device(&device);
    told(&now(now(transfers.next()).unwrap()).unwrap_err());
    assert!(now(transfers.next()).is_none(), "the source is not asked any more");

    told(&batch.on(&stream).map(drop).unwrap_err());
    told(&lease.view::<f32>("raw").map(drop).unwrap_err());
    told(&lease.wait("raw").unwrap_err());
    told(&lease.split_mut::<f32, 1>(["raw"]).map(drop).unwrap_err());
    told(&now(lease.run_mut(|_| Ok(()))).unwrap_err());
    told(&lease.read_back::<f32>("raw").map(drop).unwrap_err());
    told(&now(lease.run(|_| Ok(()))).unwrap_err());
    told(&now(batch.read_back()).map(drop).unwrap_err());
    told(&device.compute_stream().map(drop).unwrap_err());
    told(&now(device.pinned::<u8, _>(4)).map(drop).unwrap_err());
    told(&now(device.pinned::<u8, _>(0)).map(drop).unwrap_err());
    told(&now(device.register([1_u8; 4])).map(drop).unwrap_err());
    told(&device.read(&slice, &stream).map(drop).unwrap_err());
    told(&now(device.read_wait(&slice, &stream)).map(drop).unwrap_err());
    told(&now(device.write([1_u8; 4], &slice, &stream)).unwrap_err());
    told(&now(device.drain()).unwrap_err());
    device.trim();
    drop(lease);
}

#[test]
fn a_lease_that_ends_on_a_lost_device_says_so() {
    let sim = Simulator::new().unwrap();
    let (batch, stream) = (arrived(&sim), host_stream(sim.device()));
    let lease = batch.on(&stream).unwrap();
    lease.view::<f32>("raw").unwrap();
    let lost = sim.device().try_transfer(small()).unwrap();
    assert!(sim.fail_next(719));
    let cause = now(lost).unwrap_err();
    let error = lease.end().unwrap_err();
    assert!(matches!(error, Error::DeviceLost { code: 719, .. }), "{error:?}");
    assert_eq!(error.to_string(), cause.to_string(), "one cause");
}
