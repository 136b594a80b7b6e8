//! A process that ends while a device lives, and a device that is dropped by a user's thread.

use std::cell::RefCell;
use std::process::Command;
use std::sync::OnceLock;

use futures::executor::block_on;
use inflight::{Device, Transfer};

use crate::rig::{Driver, Rig, alone, driver, eventually, pattern};

static DEVICE: OnceLock<(Device, Transfer)> = OnceLock::new();

thread_local! {
    static OWN: RefCell<Option<(Device, Transfer)>> = const { RefCell::new(None) };
}

fn under_way() -> (Device, Transfer) {
    let device = Device::cuda(0).unwrap();
    let transfer = device.try_transfer(("x", vec![1_u8; 64 << 20])).unwrap();
    (device, transfer)
}

#[test]
#[ignore = "the child of another test"]
fn child_that_exits() {
    let Some(way) = std::env::var_os("INFLIGHT_EXITING_CHILD") else { return };
    assert!(!matches!(driver(), Driver::None));
    assert!(DEVICE.set(under_way()).is_ok());
    let thread = std::thread::spawn(|| {
        OWN.set(Some(under_way()));
        // Ends with its device and a transfer under way.
    });
    thread.join().unwrap();
    OWN.set(Some(under_way()));
    if way == "exit" {
        std::process::exit(0);
    }
}

#[test]
fn a_process_ends_in_silence_with_transfers_pending_b57_b103() {
    let _alone = alone();
    if matches!(driver(), Driver::None) {
        return;
    }
    for way in ["exit", "return"] {
        let begun = std::time::Instant::now();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "exit::child_that_exits", "--ignored", "--nocapture"])
            .env("INFLIGHT_EXITING_CHILD", way)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{way}: {}: {said}", output.status);
        assert!(!said.contains("panicked"), "{said}");
        assert!(begun.elapsed().as_secs() < 20, "{way} took {:?}", begun.elapsed());
    }
}

#[test]
fn a_device_gives_everything_back_when_its_last_user_is_gone_b37_b53() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let held = || ["device_bytes", "host_bytes", "events", "streams"].map(|name| stand_in.counter(name));
    let before = held();
    let device = Device::builder().context(rig.context()).build().unwrap();
    let batch = block_on(async { device.transfer(("x", pattern(1, 300_000))).await?.await }).unwrap();
    let read = batch.field("x").unwrap().read_back::<u8>().unwrap();
    let transfer = device.try_transfer(("x", pattern(2, 5_000_000))).unwrap();
    assert_ne!(held(), before);
    drop(device);
    drop(transfer);
    drop(batch);
    drop(block_on(read).unwrap());
    eventually("the driver has all back", || held() == before);
    rig.finish();
}
