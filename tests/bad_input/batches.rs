//! Batches that can't be sent, by each of the three ways to send one: they come back whole.

use futures::{StreamExt, stream};
use inflight::sim::{FaultPoint, Simulator};
use inflight::{BatchStreamExt, Device, Error, HostArray, HostBatch, Result};

use crate::bed::{arrived, host_stream, now, refused, small};

/// What each way of sending says.
fn sent(device: &Device, batch: &HostBatch) -> [Result<()>; 3] {
    let streamed = now(stream::iter([batch.clone()]).to_device(device).next()).unwrap();
    [
        device.try_transfer(batch.clone()).map(drop),
        now(device.transfer(batch.clone())).map(drop),
        now(streamed).map(drop),
    ]
}

/// Sends it by each way, and takes it back out of the error.
macro_rules! refused_by_all {
    ($device:expr, $batch:expr, $variant:pat, $text:expr) => {
        let batch = $batch;
        for outcome in sent($device, &batch) {
            let error = refused!(outcome, $variant, $text);
            let back = error.take_batch().expect("the batch comes back");
            assert!(back.names().eq(batch.names()));
            assert_eq!(back.bytes(), batch.bytes());
            assert_eq!(error.take_batch().map(drop), None, "once");
        }
    };
}

#[test]
fn a_field_that_no_memory_holds_is_named_and_comes_back() {
    let sim = Simulator::new().unwrap();
    let wide = HostArray::zeros::<u8>(isize::MAX as usize).unwrap().cast::<f64>();
    let text = "field \"raw\": shape [9223372036854775807] of float64 has more bytes than an address space holds";
    let batch = HostBatch::new().with("labels", [1_u8]).with("raw", wide);
    refused_by_all!(sim.device(), batch, Error::ShapeOverflow { .. }, text);
    assert_eq!(sim.device().stats().device_used, 0);
}

#[test]
fn fields_that_no_memory_holds_together_come_back() {
    let sim = Simulator::new().unwrap();
    let half = HostArray::zeros::<u8>(1 << 62).unwrap();
    let batch = HostBatch::new().with("one", half.clone()).with("two", half);
    let text = "the batch needs 9223372036854775808 bytes of device memory, the limit is 9223372036854775807: send less \
                at once, or raise memory_bytes";
    refused_by_all!(sim.device(), batch, Error::BatchTooLarge { .. }, text);
    let most = HostArray::zeros::<u8>(isize::MAX as usize).unwrap();
    let text = "the batch needs 9223372036854775808 bytes of device memory, the limit is 4096: send less at once, or \
                raise memory_bytes";
    let sim = Simulator::with(|builder| builder.memory_bytes(4096)).unwrap();
    refused_by_all!(sim.device(), HostBatch::new().with("x", most), Error::BatchTooLarge { .. }, text);
}

#[test]
fn a_batch_beyond_the_limit_comes_back() {
    let sim = Simulator::with(|builder| builder.memory_bytes(1)).unwrap();
    let text = "the batch needs 1024 bytes of device memory, the limit is 1: send less at once, or raise memory_bytes";
    refused_by_all!(sim.device(), small(), Error::BatchTooLarge { .. }, text);
}

#[test]
fn a_batch_whose_first_copy_is_refused_comes_back_however_large_it_is() {
    for bytes in [64, 4 << 10, (256 << 10) + 1, 8 << 20] {
        let sim = Simulator::new().unwrap();
        sim.inject(FaultPoint::Submit, 1, 1);
        let error = now(sim.device().try_transfer(("x", vec![1_u8; bytes])).unwrap()).unwrap_err();
        assert!(matches!(error, Error::Driver { code: 1, call: "copy", .. }), "{error:?}");
        assert_eq!(error.take_batch().expect("it comes back").bytes(), bytes);
        assert_eq!(sim.device().stats().device_used, 0);
    }
}

#[test]
fn two_fields_of_one_name_come_back_however_many_there_are() {
    let sim = Simulator::new().unwrap();
    refused_by_all!(
        sim.device(),
        small().with("raw", 1_u8),
        Error::DuplicateField { .. },
        "two fields of the batch are named \"raw\""
    );
    for (first, again) in [(0, 99), (50, 99), (15, 16)] {
        let name = |place: usize| if place == again { format!("f{first}") } else { format!("f{place}") };
        let many = HostBatch::from_fields((0..100).map(|place| (name(place), place as u64)));
        let text = format!("two fields of the batch are named \"f{first}\"");
        refused_by_all!(sim.device(), many, Error::DuplicateField { .. }, text);
    }
    let many = HostBatch::from_fields((0..100).map(|place| (place.to_string(), place)));
    assert!(sim.device().try_transfer(many).is_ok());
}

#[test]
fn names_are_told_so_that_they_can_be_told_apart() {
    let sim = Simulator::new().unwrap();
    let strange = HostBatch::new().with("", 1_u8).with(" \"\n", 2_u8).with(" \"\n", 3_u8);
    let text = "two fields of the batch are named \" \\\"\\n\"";
    refused_by_all!(sim.device(), strange.clone(), Error::DuplicateField { .. }, text);
    let text = "the batch has no field \"\\t\"; its fields are [\"\", \" \\\"\\n\", \" \\\"\\n\"]";
    refused!(strange.field("\t"), Error::UnknownField { .. }, text);
    let text = "the batch has no field \"raw\"; its fields are []";
    refused!(HostBatch::new().field("raw"), Error::UnknownField { .. }, text);
}

#[test]
fn a_field_without_a_name_is_a_field() {
    let sim = Simulator::new().unwrap();
    let transfer = sim.device().try_transfer(("", [1_u8, 2])).unwrap();
    sim.complete_all();
    let batch = now(transfer).unwrap();
    assert_eq!(batch.field("").unwrap().as_host::<u8>().unwrap().as_slice(), Some(&[1, 2][..]));
}

#[test]
fn a_batch_of_nothing_takes_no_memory_and_is_there_at_once() {
    let sim = Simulator::with(|builder| builder.memory_bytes(1)).unwrap();
    let stream = host_stream(sim.device());
    let nothing = HostArray::zeros::<f32>((0, 3)).unwrap();
    for batch in [HostBatch::new(), HostBatch::new().with("raw", nothing)] {
        let arrived = now(sim.device().try_transfer(batch.clone()).unwrap()).unwrap();
        assert!(arrived.is_ready() && arrived.names().eq(batch.names()));
        let back = now(arrived.read_back()).unwrap();
        assert!(back.names().eq(batch.names()) && back.bytes() == 0);
        let mut lease = arrived.on(&stream).unwrap();
        assert!(lease.split_mut::<f32, 0>([]).unwrap().is_empty());
        lease.end().unwrap();
        let text = format!("the batch has no field \"x\"; its fields are {:?}", batch.names().collect::<Vec<_>>());
        refused!(arrived.field("x"), Error::UnknownField { .. }, text);
    }
    assert_eq!((sim.counters().copies_submitted, sim.device().stats().device_used), (0, 0));
    now(sim.device().drain()).unwrap();
}

#[test]
fn an_array_of_forty_axes_is_an_array() {
    let sim = Simulator::new().unwrap();
    let array = ndarray::ArrayD::from_elem(vec![1; 40], 7_u16);
    let transfer = sim.device().try_transfer(("x", array.clone())).unwrap();
    sim.complete_all();
    let batch = now(transfer).unwrap();
    assert_eq!(*batch.field("x").unwrap().as_host::<u16>().unwrap(), array);
}

#[test]
fn a_choice_of_fields_names_each_once() {
    let sim = Simulator::new().unwrap();
    let batch = arrived(&sim);
    let text = "the batch has no field \"row\"; its fields are [\"raw\", \"labels\"]";
    refused!(batch.select(["labels", "row"]), Error::UnknownField { .. }, text);
    let text = "two fields of the batch are named \"raw\"";
    refused!(batch.select(["raw", "labels", "raw"]), Error::DuplicateField { .. }, text);
    let chosen = batch.select(["labels"]).unwrap();
    let text = "the batch has no field \"raw\"; its fields are [\"labels\"]";
    refused!(chosen.field("raw"), Error::UnknownField { .. }, text);
    assert_eq!(batch.select([] as [&str; 0]).unwrap().rows(), None);
}
