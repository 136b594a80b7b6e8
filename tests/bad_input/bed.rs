//! What the tests stand on: how a refusal is looked at, and batches that have arrived.

use futures::FutureExt;
use inflight::sim::Simulator;
use inflight::{ComputeStream, Device, DeviceBatch, HostBatch, HostStream, batch};

/// The error of a result: of that variant, and with that text.
macro_rules! refused {
    ($result:expr, $variant:pat, $text:expr) => {{
        let Err(error) = $result else { panic!("it was taken") };
        assert!(matches!(error, $variant), "{error:?}");
        assert_eq!(error.to_string(), $text);
        error
    }};
}
pub(crate) use refused;

/// What a future that needs not wait comes to.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("it waits")
}

/// Two fields, of 4 and 2 elements.
pub(crate) fn small() -> HostBatch {
    batch! { raw: [1.0_f32, 2.0, 3.0, 4.0], labels: [5_u8, 6] }
}

/// That batch on a simulated device.
pub(crate) fn arrived(sim: &Simulator) -> DeviceBatch {
    let transfer = sim.device().try_transfer(small()).unwrap();
    sim.complete_all();
    now(transfer).unwrap()
}

pub(crate) fn host_stream(device: &Device) -> HostStream {
    match device.compute_stream().unwrap() {
        ComputeStream::Host(stream) => stream,
        other => panic!("{other:?} on a host device"),
    }
}
