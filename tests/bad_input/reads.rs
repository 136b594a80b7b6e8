//! Reads, writes and page-locked arrays: wrong types and shapes, and more than their budgets.

use inflight::sim::Simulator;
use inflight::{Error, HostArray};

use crate::bed::{arrived, host_stream, now, refused};

#[test]
fn a_write_of_another_shape_or_type_writes_nothing() {
    let sim = Simulator::new().unwrap();
    let (device, stream) = (sim.device(), host_stream(sim.device()));
    let slice = stream.alloc::<f32, _>((2, 3)).unwrap();
    let text = "the data has shape [6], not [2, 3]";
    refused!(now(device.write([1.0_f32; 6], &slice, &stream)), Error::ShapeMismatch { .. }, text);
    let wrong = HostArray::zeros::<f64>((2, 3)).unwrap();
    let text = "the array is float64, not float32";
    refused!(now(device.write(wrong, &slice, &stream)), Error::DtypeMismatch { .. }, text);
    assert_eq!((sim.counters().copies_submitted, &slice.lock()[..]), (0, &[0.0; 6][..]));
}

#[test]
fn a_write_beyond_the_device_gives_the_array_back() {
    let sim = Simulator::with(|builder| builder.memory_bytes(1024)).unwrap();
    let (device, stream) = (sim.device(), host_stream(sim.device()));
    let slice = stream.alloc::<u8, _>(5000).unwrap();
    let text =
        "the batch needs 5120 bytes of device memory, the limit is 1024: send less at once, or raise memory_bytes";
    let error = refused!(now(device.write(vec![1_u8; 5000], &slice, &stream)), Error::BatchTooLarge { .. }, text);
    assert_eq!(error.take_batch().unwrap().bytes(), 5000);
}

#[test]
fn a_slice_without_elements_is_read_and_written() {
    let sim = Simulator::new().unwrap();
    let (device, stream) = (sim.device(), host_stream(sim.device()));
    let slice = stream.alloc::<f32, _>((0, 3)).unwrap();
    now(device.write(HostArray::zeros::<f32>((0, 3)).unwrap(), &slice, &stream)).unwrap();
    sim.complete_all();
    assert_eq!(now(device.read(&slice, &stream).unwrap()).unwrap().shape(), [0, 3]);
}

#[test]
fn reads_beyond_their_budget_say_the_limit() {
    let sim = Simulator::with(|builder| builder.readback_bytes(64 << 10)).unwrap();
    let transfer = sim.device().try_transfer(("x", vec![1_u8; 1 << 20])).unwrap();
    sim.complete_all();
    let batch = now(transfer).unwrap();
    let text = format!(
        "out of read-back memory (readback_bytes) on {}: 1048576 bytes were asked for, the limit is 65536",
        sim.device().name()
    );
    let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
    refused!(now(read), Error::OutOfMemory { .. }, text);
    refused!(now(batch.read_back()), Error::OutOfMemory { .. }, text);
    assert_eq!(batch.field("x").unwrap().as_host::<u8>().unwrap().len(), 1 << 20, "the batch is still there");
}

#[test]
fn a_field_is_read_back_as_what_it_is() {
    let sim = Simulator::new().unwrap();
    let batch = arrived(&sim);
    let text = "field \"labels\" is uint8, not bool";
    refused!(batch.field("labels").unwrap().read_back::<bool>(), Error::DtypeMismatch { .. }, text);
    let text = "the batch has no field \"label\"; its fields are [\"raw\", \"labels\"]";
    refused!(batch.field("label"), Error::UnknownField { .. }, text);
}

#[test]
fn pinned_arrays_of_shapes_that_can_not_be_are_refused() {
    let sim = Simulator::with(|builder| builder.pinned_bytes(4096)).unwrap();
    let device = sim.device();
    let text = "shape [4294967296, 4294967296] of uint8 has more bytes than an address space holds";
    refused!(now(device.pinned::<u8, _>((1 << 32, 1 << 32))), Error::ShapeOverflow { .. }, text);
    let text = format!(
        "out of page-locked memory (pinned_bytes) on {}: 8192 bytes were asked for, the limit is 4096",
        device.name()
    );
    refused!(now(device.pinned::<f64, _>(1024)), Error::OutOfMemory { .. }, text);
    let nothing = now(device.pinned::<f32, _>((0, 5))).unwrap();
    assert_eq!((nothing.shape(), device.stats().pinned_used), (&[0, 5][..], 0));
    let transfer = device.try_transfer(("x", nothing)).unwrap();
    assert_eq!(now(transfer).unwrap().field("x").unwrap().shape(), [0, 5]);
}

#[test]
fn registering_nothing_and_views_is_harmless() {
    let sim = Simulator::new().unwrap();
    let device = sim.device();
    let registered = now(device.register(HostArray::zeros::<f32>((3, 0)).unwrap())).unwrap();
    let again = now(device.register(registered.slice(ndarray::s![..;2, ..]).unwrap())).unwrap();
    assert_eq!(again.shape(), [2, 0]);
    let reversed = HostArray::from([1_u16, 2, 3]).slice(ndarray::s![..;-1]).unwrap();
    let reversed = now(device.register(reversed)).unwrap();
    let transfer = device.try_transfer(("x", reversed.cast::<f32>())).unwrap();
    sim.complete_all();
    let batch = now(transfer).unwrap();
    assert_eq!(batch.field("x").unwrap().as_host::<f32>().unwrap().as_slice(), Some(&[3.0, 2.0, 1.0][..]));
}
