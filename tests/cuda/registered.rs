//! Memory of the user's that the driver knows: who shares a registration, when it ends, and what is never given to a driver.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::executor::block_on;
use inflight::{Device, Dtype, HostArray, MappedFile, Registered};
use ndarray::s;

use crate::rig::{Rig, StandIn, eventually, pattern, quiet};

/// So large that it has pages of its own, which nothing else has a part of.
const BYTES: usize = 4 << 20;
const PAGE: usize = 4096;

fn register(device: &Device, array: impl Into<HostArray>) -> Registered {
    block_on(device.register(array)).unwrap()
}

/// Sends an array, and checks what arrives.
fn arrives(rig: &Rig, array: impl Into<HostArray>, expected: &[u8]) {
    let batch = block_on(async { rig.device.transfer(("x", array.into())).await?.await }).unwrap();
    let back = block_on(batch.field("x").unwrap().read_back::<u8>().unwrap()).unwrap();
    assert!(back.iter().eq(expected), "it arrived otherwise");
}

/// A file with these bytes, gone from its folder already.
pub(crate) fn mapped(bytes: &[u8]) -> MappedFile {
    let path = std::env::temp_dir().join(format!("inflight-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
    // SAFETY: nobody else knows the file.
    let file = unsafe { MappedFile::open(&path) }.unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

/// Arguments of a function in the log, one line each.
fn logged(log: &[String], function: &str) -> Vec<String> {
    log.iter().filter(|line| line.starts_with(function)).cloned().collect()
}

/// The registrations of the memory that begins at an address, as the driver is told of them.
struct Watch {
    stand_in: &'static StandIn,
    address: String,
    made: i32,
}

impl Watch {
    fn new(stand_in: &'static StandIn, array: &HostArray) -> Self {
        stand_in.log(true);
        Self { stand_in, address: format!("address={:#x} ", array.as_ptr().addr()), made: 0 }
    }

    /// How many were made and not ended.
    fn made(&mut self) -> i32 {
        for line in self.stand_in.log_take().iter().filter(|line| line.contains(&self.address)) {
            self.made += i32::from(line.starts_with("cuMemHostRegister"));
            self.made -= i32::from(line.starts_with("cuMemHostUnregister"));
        }
        self.made
    }
}

#[test]
fn arrays_inside_known_memory_share_it_until_the_last_is_gone() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let array = HostArray::from(pattern(1, BYTES));
    let mut watch = Watch::new(stand_in, &array);
    let whole = register(&rig.device, array.clone());
    let same = register(&rig.device, array.clone());
    let part = register(&rig.device, array.slice(s![1000..9000]).unwrap());
    let rows = register(&rig.device, array.select_rows([70, 3, 9]).unwrap());
    let again = register(&rig.device, whole.slice(s![..10]).unwrap());
    assert!([&whole, &same, &part, &rows, &again].into_iter().all(Registered::is_direct));
    assert_eq!(watch.made(), 1);
    let pageable = stand_in.counter("pageable_copies");
    drop((whole, same, rows, again));
    arrives(&rig, part.clone(), &pattern(1, BYTES)[1000..9000]);
    block_on(rig.device.drain()).unwrap();
    assert_eq!((watch.made(), stand_in.counter("pageable_copies")), (1, pageable));
    drop(part);
    eventually("it is unregistered", || watch.made() == 0);
    let further = register(&rig.device, array);
    assert!(further.is_direct());
    drop(further);
    rig.finish();
}

#[test]
fn memory_of_which_a_part_is_known_goes_through_staging_until_that_is_forgotten_b12() {
    let Some(rig) = Rig::new() else { return };
    let array = HostArray::from(pattern(1, BYTES));
    let half = register(&rig.device, array.slice(s![..BYTES / 2]).unwrap());
    let whole = register(&rig.device, array.clone());
    let later = register(&rig.device, array.slice(s![BYTES / 2 - 100..]).unwrap());
    assert!(half.is_direct() && !whole.is_direct() && !later.is_direct());
    for (sent, from, to) in [(&half, 0, BYTES / 2), (&whole, 0, BYTES), (&later, BYTES / 2 - 100, BYTES)] {
        arrives(&rig, sent.clone(), &pattern(1, BYTES)[from..to]);
    }
    block_on(rig.device.drain()).unwrap();
    drop(half);
    // At once: the driver has not been told yet.
    assert!(register(&rig.device, array).is_direct());
    rig.finish();
}

#[test]
fn whoever_comes_while_a_registration_is_made_or_ended_is_never_refused_b12() {
    let Some(rig) = Rig::new() else { return };
    let array = HostArray::from(pattern(1, BYTES));
    let refused = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (device, array, refused) = (rig.device.clone(), array.clone(), refused.clone());
            scope.spawn(move || {
                for n in 0..300 {
                    // Now and then backwards: the same memory, and another array.
                    let array = if thread == 0 || n % 7 > 0 { array.clone() } else { array.slice(s![..;-1]).unwrap() };
                    let registered = register(&device, array);
                    refused.fetch_or(!registered.is_direct(), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(!refused.load(Ordering::Relaxed));
    rig.finish();
}

#[test]
fn memory_stays_known_while_a_copy_from_it_is_pending() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let array = HostArray::from(pattern(1, BYTES));
    let mut watch = Watch::new(stand_in, &array);
    let (whole, part) = (register(&rig.device, array.clone()), register(&rig.device, array.slice(s![9..]).unwrap()));
    drop(block_on(async { rig.device.transfer(("x", pattern(0, BYTES))).await?.await }).unwrap());
    stand_in.manual(true);
    let transfer = block_on(rig.device.transfer(("x", part))).unwrap();
    eventually("it is under way", || stand_in.counter("pending") > 0);
    drop((whole, transfer));
    // Whoever comes now shares what the copy keeps; what was to be ended before would be by now.
    assert!(register(&rig.device, array).is_direct());
    (0..4).for_each(|n| drop(register(&rig.device, pattern(n, BYTES))));
    assert!(watch.made() == 1 && stand_in.counter("pending") > 0);
    stand_in.manual(false);
    eventually("it is unregistered", || watch.made() == 0);
    rig.finish();
}

#[test]
fn a_mapped_file_is_registered_in_whole_pages_and_read_only() {
    let Some(rig) = Rig::new() else { return };
    let Some(stand_in) = rig.stand_in else { return };
    let file = mapped(&pattern(3, 5 * PAGE + 10));
    quiet(stand_in);
    stand_in.log(true);
    let array = register(&rig.device, file.array(Dtype::U8, PAGE, PAGE + 100).unwrap());
    let known = register(&rig.device, file.array(Dtype::U8, 90, PAGE + 3).unwrap());
    let across = register(&rig.device, file.array(Dtype::U8, PAGE, 2 * PAGE + 1).unwrap());
    let tail = register(&rig.device, file.array(Dtype::U8, 11, 5 * PAGE - 1).unwrap());
    assert_eq!([&array, &known, &across, &tail].map(Registered::is_direct), [true, true, false, true]);
    let pageable = stand_in.counter("pageable_copies");
    for (sent, from, bytes) in
        [(&array, PAGE + 100, PAGE), (&known, PAGE + 3, 90), (&across, 2 * PAGE + 1, PAGE), (&tail, 5 * PAGE - 1, 11)]
    {
        arrives(&rig, sent.clone(), &pattern(3, 5 * PAGE + 10)[from..from + bytes]);
    }
    assert_eq!(stand_in.counter("pageable_copies"), pageable);
    block_on(rig.device.drain()).unwrap();
    drop((array, known, across, tail));
    eventually("all is unregistered", || stand_in.calls(Some("cuMemHostUnregister")) == 2);
    let (log, start) = (stand_in.log_take(), file.as_ptr().addr());
    let asked = |page: usize| format!("address={:#x} bytes={} flags=9", start + page * PAGE, 2 * PAGE);
    let registered = logged(&log, "cuMemHostRegister");
    assert_eq!(registered.len(), 3, "{registered:?}");
    for (line, page) in registered.iter().zip([1, 2, 4]) {
        assert!(line.contains(&asked(page)), "{line} is not for page {page}");
    }
    for page in [1, 4] {
        let address = format!("address={:#x}", start + page * PAGE);
        assert!(logged(&log, "cuMemHostUnregister").iter().any(|line| line.contains(&address)), "page {page}");
    }
    rig.finish();
}

#[test]
fn arrays_of_a_file_share_the_registration_of_all_its_bytes() {
    let Some(rig) = Rig::new() else { return };
    let file = mapped(&pattern(4, 3 * PAGE));
    let all = register(&rig.device, file.array(Dtype::U8, file.len(), 0).unwrap());
    let arrays =
        [(10, 5000), (5010, 7000)].map(|(from, len)| register(&rig.device, file.array(Dtype::U8, len, from).unwrap()));
    assert!(all.is_direct() && arrays.iter().all(Registered::is_direct));
    drop(all);
    for (array, (from, len)) in arrays.into_iter().zip([(10, 5000), (5010, 7000)]) {
        arrives(&rig, array, &pattern(4, 3 * PAGE)[from..from + len]);
    }
    rig.finish();
}

#[test]
#[cfg(target_os = "linux")]
fn memory_that_can_not_be_written_to_is_never_given_to_a_driver() {
    static CONSTANT: [u8; 10_000] = [7; 10_000];
    let Some(rig) = Rig::new() else { return };
    let before = rig.stand_in.map(|stand_in| stand_in.calls(Some("cuMemHostRegister_v2")));
    let constant = HostArray::from_owner(&CONSTANT[..], 10_000).unwrap();
    // The bytes of a file by way of an owner: nothing is known of them but the address.
    let file = HostArray::from_bytes(mapped(&pattern(5, 10_000)), Dtype::U8, 10_000).unwrap();
    for (array, expected) in [(constant, CONSTANT.to_vec()), (file, pattern(5, 10_000))] {
        let registered = register(&rig.device, array);
        assert!(!registered.is_direct());
        arrives(&rig, registered, &expected);
    }
    assert_eq!(rig.stand_in.map(|stand_in| stand_in.calls(Some("cuMemHostRegister_v2"))), before);
    rig.finish();
}
