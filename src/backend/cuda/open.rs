//! Why a CUDA device can't be opened, each as an error that says what to do; and which of them mean "there is no GPU".

use crate::backend::Fault;
use crate::error::Error;

/// A device that can't be opened.
#[derive(Debug)]
pub(crate) struct Unavailable {
    pub(crate) error: Error,
    /// There is no driver library, or no device: `Device::auto` takes the host.
    pub(crate) is_absent: bool,
}

impl Unavailable {
    fn broken(code: Option<i32>, reason: String) -> Self {
        Self { error: Error::DriverUnavailable { code, reason }, is_absent: false }
    }

    pub(super) fn no_library(said: &str, is_absent: bool) -> Self {
        let what = if is_absent { "no driver library was found" } else { "the driver library does not load" };
        let reason = format!("{what} ({said})");
        Self { error: Error::DriverUnavailable { code: None, reason }, is_absent }
    }

    pub(super) fn no_symbol(name: &str) -> Self {
        Self::broken(None, format!("the driver library has no {name}: it is damaged, or not the driver's"))
    }

    pub(super) fn too_old(version: i32, oldest: i32) -> Self {
        let named = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
        let (found, needed) = (named(version), named(oldest));
        Self::broken(None, format!("the driver is for CUDA {found}, and {needed} or newer is needed: update it"))
    }

    /// `cuInit` failed.
    pub(super) fn init(fault: Fault) -> Self {
        let Fault { code, call } = fault;
        let advice = match code {
            34 => {
                "a stub stands in the driver library's place: take the toolkit's folder of stubs off the library path"
            }
            100 => return Self::no_device("the driver finds no CUDA device".to_owned()),
            802 => "the system is not ready: is the fabric manager running?",
            803 => "the driver's library and its kernel module have different versions: restart the machine",
            804 => "the compatibility library does not work with this driver: remove one of them",
            _ => "the driver does not start",
        };
        Self::broken(Some(code), format!("{advice} ({call} failed with code {code})"))
    }

    pub(super) const fn no_device(reason: String) -> Self {
        Self { error: Error::NoDevice { reason }, is_absent: true }
    }

    /// There are devices, but not this one.
    pub(super) fn no_ordinal(ordinal: usize, count: i32) -> Self {
        let reason = format!("cuda:{ordinal} was asked for, and the driver finds {count}, numbered from 0");
        Self { error: Error::NoDevice { reason }, is_absent: false }
    }

    /// A call failed while the device was opened.
    pub(super) fn call(fault: Fault, name: &str) -> Self {
        Self { error: fault.into_error(name), is_absent: false }
    }
}
