//! What is said where there is no driver, or one that does not work. Each case is a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use inflight::Device;

use crate::rig::{StandIn, alone};

/// What the child prints, run by the tests below in an environment of theirs.
#[test]
#[ignore = "the child of other tests"]
fn child_that_opens_devices() {
    if std::env::var_os("INFLIGHT_OPENING_CHILD").is_none() {
        return;
    }
    // As under `panic = "abort"`: one that is caught counts too.
    std::panic::set_hook(Box::new(|panic| {
        println!("panicked: {panic}");
        std::process::exit(99);
    }));
    let say = |outcome: inflight::Result<Device>| match outcome {
        Ok(device) => device.name().to_owned(),
        Err(error) => format!("{error:?}: {error}"),
    };
    println!("\nauto={}", say(Device::auto()));
    println!("cuda={}", say(Device::cuda(0)));
    println!("again={}", say(Device::cuda(0)));
}

/// A folder with a library that the loader takes for the driver's.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("inflight-open-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn library(&self) -> PathBuf {
        self.0.join("libcuda.so")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The lines that a child in that folder's environment prints.
fn opened(folder: &Path, variables: &[(&str, &str)]) -> (String, String) {
    let _alone = alone();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "open::child_that_opens_devices", "--ignored", "--nocapture"]);
    child.env("INFLIGHT_OPENING_CHILD", "1").env("LD_LIBRARY_PATH", folder);
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}", output.status);
    let line = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    };
    let (auto, cuda) = (line("auto="), line("cuda="));
    assert_eq!(line("again="), cuda, "the second time as the first");
    (auto, cuda)
}

/// The stand-in as the driver of a child; `None` where it was not built.
fn stood_in(name: &str, variables: &[(&str, &str)]) -> Option<(String, String)> {
    let library = StandIn::path()?;
    let folder = Folder::new(name);
    fs::copy(library, folder.library()).unwrap();
    Some(opened(&folder.0, variables))
}

#[test]
fn without_a_driver_library_auto_is_the_host_and_cuda_says_so_b102() {
    let folder = Folder::new("none");
    let (auto, cuda) = opened(&folder.0, &[]);
    if auto.starts_with("cuda") {
        println!("this machine has a driver of its own");
        return;
    }
    assert_eq!(auto, "host");
    assert!(cuda.starts_with("DriverUnavailable { code: None"), "{cuda}");
    assert!(cuda.contains("the CUDA driver can't be used: no driver library was found (libcuda.so: "), "{cuda}");
}

#[test]
fn a_library_that_does_not_load_is_an_error_for_auto_too() {
    let folder = Folder::new("damaged");
    for name in ["libcuda.so", "libcuda.so.1"] {
        fs::write(folder.0.join(name), "not a library").unwrap();
    }
    let (auto, cuda) = opened(&folder.0, &[]);
    assert_eq!(auto, cuda);
    assert!(cuda.contains("the CUDA driver can't be used: the driver library does not load ("), "{cuda}");
}

#[test]
fn a_symbol_that_is_missing_is_named() {
    let Some(library) = StandIn::path() else { return };
    for symbol in ["cuEventQuery", "cuMemAllocFromPoolAsync", "cuLaunchKernel", "cuDriverGetVersion"] {
        let folder = Folder::new(symbol);
        let mut bytes = fs::read(&library).unwrap();
        let wanted = [b"\0", symbol.as_bytes(), b"\0"].concat();
        let places: Vec<usize> =
            (0..bytes.len() - wanted.len()).filter(|at| bytes[*at..].starts_with(&wanted)).collect();
        assert!(!places.is_empty(), "{symbol}");
        for at in places {
            bytes[at + 1] = b'x';
        }
        fs::write(folder.library(), bytes).unwrap();
        let (auto, cuda) = opened(&folder.0, &[]);
        assert_eq!(auto, cuda, "a broken driver is not taken for none");
        assert!(cuda.starts_with("DriverUnavailable { code: None"), "{cuda}");
        assert!(cuda.contains(&format!("the driver library has no {symbol}")), "{cuda}");
    }
}

#[test]
fn an_old_driver_is_told_by_its_version() {
    let Some((auto, cuda)) = stood_in("old", &[("STAND_IN_VERSION", "11040")]) else { return };
    assert_eq!(auto, cuda);
    let text = "the CUDA driver can't be used: the driver is for CUDA 11.4, and 12.0 or newer is needed: update it";
    assert!(cuda.ends_with(text), "{cuda}");
}

#[test]
fn without_a_device_auto_is_the_host() {
    let Some((auto, cuda)) = stood_in("no-device", &[("STAND_IN_DEVICES", "0")]) else { return };
    assert_eq!(auto, "host");
    assert!(cuda.ends_with("no such device: the driver finds no CUDA device"), "{cuda}");
    let Some((auto, cuda)) = stood_in("code-100", &[("STAND_IN_INIT", "100")]) else { return };
    assert_eq!(auto, "host");
    assert!(cuda.starts_with("NoDevice"), "{cuda}");
}

#[test]
fn a_driver_that_does_not_start_is_an_error_for_auto_too() {
    for (code, text) in [
        ("34", "a stub stands in the driver library's place"),
        ("803", "the driver's library and its kernel module have different versions"),
        ("802", "the system is not ready"),
        ("999", "the driver does not start"),
    ] {
        let Some((auto, cuda)) = stood_in("init", &[("STAND_IN_INIT", code)]) else { return };
        assert_eq!(auto, cuda);
        assert!(cuda.starts_with(&format!("DriverUnavailable {{ code: Some({code})")), "{cuda}");
        assert!(cuda.contains(text) && cuda.contains(&format!("(cuInit failed with code {code})")), "{cuda}");
    }
}

#[test]
fn a_driver_that_works_is_taken() {
    let Some((auto, cuda)) = stood_in("works", &[]) else { return };
    assert_eq!((auto.as_str(), cuda.as_str()), ("cuda:0", "cuda:0"));
}
