//! Settings of a device that can't be, and absurd ones that do no harm.

use std::time::Duration;

use futures::executor::block_on;
use inflight::sim::Simulator;
use inflight::{Device, DeviceBuilder, Error, HostArray, HostStream, LinkModel, Overlap};

use crate::bed::{host_stream, now, refused};

type Setting = fn(DeviceBuilder<'static>) -> DeviceBuilder<'static>;

#[test]
fn sizes_and_numbers_that_can_not_be_are_named() {
    let settings: [(Setting, &str); 11] = [
        (|builder| builder.memory_bytes(0), "memory_bytes can't be \"0\": it must be at least 1"),
        (|builder| builder.staging_bytes(0), "staging_bytes can't be \"0\": it must be at least 4096"),
        (|builder| builder.staging_bytes(4095), "staging_bytes can't be \"4095\": it must be at least 4096"),
        (|builder| builder.pinned_bytes(0), "pinned_bytes can't be \"0\": it must be at least 1"),
        (|builder| builder.readback_bytes(0), "readback_bytes can't be \"0\": it must be at least 1"),
        (|builder| builder.staging_threads(0), "staging_threads can't be \"0\": it must be at least 1"),
        (|builder| builder.staging_threads(1025), "staging_threads can't be \"1025\": it must be at most 1024"),
        (
            |builder| builder.staging_threads(usize::MAX),
            "staging_threads can't be \"18446744073709551615\": it must be at most 1024",
        ),
        (|builder| builder.batches_per_call(0), "batches_per_call can't be \"0\": it must be at least 1"),
        (|builder| builder.batches_per_call(257), "batches_per_call can't be \"257\": it must be at most 256"),
        (|builder| builder.memory_bytes(0).staging_bytes(0), "memory_bytes can't be \"0\": it must be at least 1"),
    ];
    for (setting, text) in settings {
        refused!(setting(Device::builder().host()).build(), Error::InvalidSetting { .. }, text);
        refused!(block_on(setting(Device::builder().host()).build_async()), Error::InvalidSetting { .. }, text);
        refused!(Simulator::with(setting), Error::InvalidSetting { .. }, text);
    }
}

#[test]
fn a_link_without_a_rate_is_refused() {
    let built = |bytes_per_second| {
        Device::builder().host().link_model(LinkModel { bytes_per_second, latency: Duration::ZERO }).build()
    };
    for rate in ["0", "-0", "-1", "NaN", "-inf", "0.5"] {
        let text = format!("bytes_per_second can't be \"{rate}\": it must be at least 1");
        refused!(built(rate.parse().unwrap()), Error::InvalidSetting { .. }, text);
    }
    let fast = built(f64::INFINITY).unwrap();
    block_on(async { fast.transfer(("x", [1_u8; 100])).await?.await }).unwrap();
}

#[test]
fn more_staging_than_there_is_memory_is_told() {
    for bytes in [1 << 60, usize::MAX] {
        let rounded = bytes / 256 * 256;
        let text = format!("out of page-locked memory (staging_bytes) on host: {rounded} bytes were asked for");
        refused!(Device::builder().host().staging_bytes(bytes).build(), Error::OutOfMemory { .. }, text);
    }
}

#[test]
fn an_odd_ring_of_the_least_size_does() {
    let device = Device::builder().host().staging_bytes(4097).build().unwrap();
    let batch = block_on(async { device.transfer(("x", vec![3_u8; 100_001])).await?.await }).unwrap();
    assert!(batch.field("x").unwrap().as_host::<u8>().unwrap().iter().all(|byte| *byte == 3));
}

#[test]
fn a_limit_beyond_all_memory_is_no_overflow() {
    let sim =
        Simulator::with(|builder| builder.memory_bytes(usize::MAX).pinned_bytes(usize::MAX).readback_bytes(usize::MAX));
    let sim = sim.unwrap();
    let huge = || ("x", HostArray::zeros::<u8>(1 << 62).unwrap());
    sim.hold_staging(true);
    let sent = sim.device().try_transfer(huge()).unwrap();
    for _ in 0..3 {
        let text = "no room for 4611686018427387904 bytes in the device memory right now";
        let error = refused!(sim.device().try_transfer(huge()), Error::Busy { .. }, text);
        assert_eq!(error.take_batch().unwrap().bytes(), 1 << 62);
    }
    sim.hold_staging(false);
    let text = format!("out of device memory on {}: 4611686018427387904 bytes were asked for", sim.device().name());
    let error = refused!(now(sent), Error::OutOfMemory { .. }, text);
    assert_eq!(error.take_batch().unwrap().bytes(), 1 << 62);
    assert_eq!(sim.device().stats().device_limit, isize::MAX as usize);
    let text = "the batch needs 9223372036854775808 bytes of device memory, the limit is 9223372036854775807: send less \
                at once, or raise memory_bytes";
    let most = HostArray::zeros::<u8>(isize::MAX as usize).unwrap();
    refused!(sim.device().try_transfer(("x", most)), Error::BatchTooLarge { .. }, text);
    let text = format!(
        "out of page-locked memory (pinned_bytes) on {}: 4611686018427387904 bytes were asked for",
        sim.device().name()
    );
    refused!(now(sim.device().pinned::<u8, _>(1 << 62)), Error::OutOfMemory { .. }, text);
    let transfer = sim.device().try_transfer(("x", [1_u8])).unwrap();
    sim.complete_all();
    now(transfer).unwrap();
}

#[test]
fn budgets_too_small_for_anything_are_told_when_they_are_asked() {
    let sim = Simulator::with(|builder| builder.pinned_bytes(1).readback_bytes(1)).unwrap();
    let (device, stream) = (sim.device(), host_stream(sim.device()));
    let name = device.name();
    let text = format!("out of page-locked memory (pinned_bytes) on {name}: 1 bytes were asked for, the limit is 1");
    refused!(now(device.pinned::<u8, _>(1)), Error::OutOfMemory { .. }, text);
    let slice = stream.alloc::<u8, _>(4).unwrap();
    let text =
        format!("out of read-back memory (readback_bytes) on {name}: 65536 bytes were asked for, the limit is 1");
    refused!(device.read(&slice, &stream), Error::OutOfMemory { .. }, text);
    refused!(now(device.read_wait(&slice, &stream)), Error::OutOfMemory { .. }, text);
}

#[test]
fn copies_can_not_share_the_stream_of_another_device() {
    let sim = Simulator::new().unwrap();
    let stream = sim.device().compute_stream().unwrap();
    let text = format!("the compute stream belongs to another device, {}, not to host", sim.device().name());
    refused!(Device::builder().host().overlap(Overlap::Off(&stream)).build(), Error::WrongDevice { .. }, text);
    let builder = Device::builder().host().overlap(Overlap::Off(&stream));
    refused!(block_on(builder.build_async()), Error::WrongDevice { .. }, text);
    let own = inflight::ComputeStream::Host(HostStream::new().unwrap());
    assert!(Device::builder().host().overlap(Overlap::Off(&own)).build().is_ok(), "it belonged to nobody");
    let text = "the compute stream belongs to another device, host, not to host";
    refused!(Device::builder().host().overlap(Overlap::Off(&own)).build(), Error::WrongDevice { .. }, text);
}

#[test]
fn an_ordinal_that_does_not_exist_is_an_error_with_a_driver_or_without() {
    for ordinal in [4096, 1 << 32, usize::MAX] {
        let Err(error) = Device::cuda(ordinal) else { panic!("cuda:{ordinal} was opened") };
        assert!(matches!(error, Error::NoDevice { .. } | Error::DriverUnavailable { .. }), "{error:?}");
    }
}
