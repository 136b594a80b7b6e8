//! Loaded by its path, the library is what the process finds as the driver.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "opens a library")]

#[path = "../../support/stand_in.rs"]
mod stand_in;

use libloading::Library;
use stand_in::StandIn;

#[test]
fn it_is_found_under_the_driver_s_name() {
    let stand_in = StandIn::load().expect("the library is built with this test");
    // SAFETY: the library is loaded already.
    let driver = unsafe { Library::new("libcuda.so") }.expect("the name is the loaded library's");
    // SAFETY: this is the function's signature.
    let version = unsafe { driver.get::<unsafe extern "C" fn(*mut i32) -> i32>(b"cuDriverGetVersion") }.unwrap();
    let mut found = 0;
    // SAFETY: a number is written.
    assert_eq!(unsafe { version(&raw mut found) }, 0);
    assert_eq!(found, 13_000);
    // The same copy has counted it.
    assert_eq!(stand_in.calls(Some("cuDriverGetVersion")), 1);
    stand_in.log(true);
    // SAFETY: as above.
    assert_eq!(unsafe { version(&raw mut found) }, 0);
    assert_eq!(stand_in.log_take(), ["cuDriverGetVersion -> 0"]);
    assert_eq!(stand_in.violations(), [""; 0]);
}

#[test]
fn a_child_process_is_set_by_its_environment() {
    const NAME: &str = "a_child_process_is_set_by_its_environment";
    if std::env::var_os("STAND_IN_VERSION").is_none() {
        let test = std::env::current_exe().unwrap();
        let settings = [
            ("STAND_IN_VERSION", "11040"),
            ("STAND_IN_INIT", "803"),
            ("STAND_IN_DEVICES", "1"),
            ("STAND_IN_MEMORY", "4096"),
            ("STAND_IN_ATTRIBUTES", "88=1,100=1"),
        ];
        let child = std::process::Command::new(test).args(["--exact", NAME]).envs(settings).output().unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let _stand_in = StandIn::load().expect("the library is built with this test");
    // SAFETY: the library is loaded already.
    let driver = unsafe { Library::new("libcuda.so") }.expect("the name is the loaded library's");
    // SAFETY: this is the function's signature.
    let init = unsafe { driver.get::<unsafe extern "C" fn(u32) -> i32>(b"cuInit") }.unwrap();
    // SAFETY: this is the function's signature.
    let version = unsafe { driver.get::<unsafe extern "C" fn(*mut i32) -> i32>(b"cuDriverGetVersion") }.unwrap();
    let mut found = 0;
    // SAFETY: a number is written.
    assert_eq!(unsafe { version(&raw mut found) }, 0);
    // SAFETY: takes a number.
    assert_eq!((found, unsafe { init(0) }), (11_040, 803));
}
