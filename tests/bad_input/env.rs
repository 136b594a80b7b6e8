//! Environment variables that can't be. Each case is a process of its own: the environment is everybody's.

use std::ffi::OsStr;
use std::process::Command;

use inflight::Device;

/// What the child says, run by the tests below in an environment of theirs.
#[test]
#[ignore = "the child of other tests"]
fn child_that_obeys_the_environment() {
    if std::env::var_os("INFLIGHT_BAD_INPUT_CHILD").is_none() {
        return;
    }
    match Device::from_env() {
        Ok(device) => println!("\nbuilt={} {}", device.name(), device.stats().device_limit),
        Err(error) => println!("\nrefused={error:?}\ntext={error}"),
    }
}

/// The child's output in an environment with these variables of ours, and no others.
fn child(variables: &[(&str, &OsStr)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    for name in ["INFLIGHT_DEVICE", "INFLIGHT_OVERLAP", "INFLIGHT_STAGING_BYTES", "INFLIGHT_MEMORY_BYTES"] {
        child.env_remove(name);
    }
    child.args(["--exact", "env::child_that_obeys_the_environment", "--ignored", "--nocapture"]);
    let output = child.env("INFLIGHT_BAD_INPUT_CHILD", "1").envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{variables:?}: {}: {text}", output.status);
    text
}

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[track_caller]
fn refused(name: &str, value: impl AsRef<OsStr>, text: &str) {
    let output = child(&[(name, value.as_ref())]);
    assert!(line(&output, "refused=").starts_with("InvalidSetting"), "{output}");
    assert_eq!(line(&output, "text="), text);
}

#[test]
fn a_device_that_is_none_is_named_with_its_variable() {
    const NAME: &str = "INFLIGHT_DEVICE";
    for value in ["", "gpu", "CUDA:0", "cuda", "cuda:", "cuda:-1", "cuda:1.0", " host", "cuda:18446744073709551616"] {
        refused(NAME, value, &format!("INFLIGHT_DEVICE can't be \"{value}\": it is auto, host or cuda:N"));
    }
    let long = "9".repeat(5000);
    refused(NAME, format!("cuda:{long}"), &format!("{NAME} can't be \"cuda:{long}\": it is auto, host or cuda:N"));
    refused(NAME, "a\n\"b\"", "INFLIGHT_DEVICE can't be \"a\\n\\\"b\\\"\": it is auto, host or cuda:N");
}

#[test]
fn an_overlap_that_is_neither_is_named_with_its_variable() {
    for value in ["", "ON", "1", "off "] {
        refused("INFLIGHT_OVERLAP", value, &format!("INFLIGHT_OVERLAP can't be \"{value}\": it is on or off"));
    }
}

#[test]
fn sizes_that_can_not_be_are_named_with_their_variables() {
    for (name, least) in [("INFLIGHT_STAGING_BYTES", 4096), ("INFLIGHT_MEMORY_BYTES", 1)] {
        for value in ["", "-1", "64MB", "1e9", "0x10", "4096 ", "18446744073709551616"] {
            let text = format!("{name} can't be \"{value}\": it is a number of bytes, in digits alone");
            refused(name, value, &text);
        }
        refused(name, "0", &format!("{name} can't be \"0\": it must be at least {least}"));
    }
    let text = "INFLIGHT_STAGING_BYTES can't be \"4095\": it must be at least 4096";
    refused("INFLIGHT_STAGING_BYTES", "4095", text);
}

#[test]
#[cfg(unix)]
fn a_value_that_is_not_text_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    for name in ["INFLIGHT_DEVICE", "INFLIGHT_OVERLAP", "INFLIGHT_STAGING_BYTES", "INFLIGHT_MEMORY_BYTES"] {
        refused(name, OsStr::from_bytes(b"ho\xffst"), &format!("{name} can't be \"ho\u{fffd}st\": it is not text"));
    }
}

#[test]
fn what_is_right_is_obeyed_and_the_number_of_processes_may_be_anything() {
    let host = ("INFLIGHT_DEVICE", OsStr::new("host"));
    for processes in ["", "0", "-3", "many", "18446744073709551615"] {
        let memory = ("INFLIGHT_MEMORY_BYTES", OsStr::new("8192"));
        let output = child(&[host, memory, ("LOCAL_WORLD_SIZE", OsStr::new(processes))]);
        assert_eq!(line(&output, "built="), "host 8192");
    }
}
