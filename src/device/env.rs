//! [`from_env`]: a device as variables of the environment ask for it.

use std::ffi::OsString;

use super::builder::{LEAST_STAGING_BYTES, Which, at_least, invalid};
use super::{Device, DeviceBuilder};
use crate::error::Result;

/// The device that the environment asks for; `read` reads a variable.
pub(super) fn from_env(read: impl Fn(&str) -> Option<OsString>) -> Result<Device> {
    let mut builder = DeviceBuilder::default();
    if let Some(text) = text(&read, "INFLIGHT_DEVICE")? {
        builder.which = match text.as_str() {
            "auto" => Which::Auto,
            "host" => Which::Host,
            other => match other.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
                Some(ordinal) => Which::Cuda(ordinal),
                None => return Err(invalid("INFLIGHT_DEVICE", text, "it is auto, host or cuda:N")),
            },
        };
    }
    builder.staging_bytes = number(&read, "INFLIGHT_STAGING_BYTES", LEAST_STAGING_BYTES)?;
    builder.memory_bytes = number(&read, "INFLIGHT_MEMORY_BYTES", 1)?;
    match text(&read, "INFLIGHT_OVERLAP")?.as_deref() {
        None | Some("on") => builder.build(),
        Some("off") => {
            builder.single_of_its_own = true;
            builder.build()
        }
        Some(other) => Err(invalid("INFLIGHT_OVERLAP", other.to_owned(), "it is on or off")),
    }
}

fn text(read: &impl Fn(&str) -> Option<OsString>, name: &'static str) -> Result<Option<String>> {
    let Some(value) = read(name) else { return Ok(None) };
    value.into_string().map(Some).map_err(|value| invalid(name, value.to_string_lossy().into_owned(), "it is not text"))
}

fn number(read: &impl Fn(&str) -> Option<OsString>, name: &'static str, least: usize) -> Result<Option<usize>> {
    let Some(text) = text(read, name)? else { return Ok(None) };
    let number = text.parse().map_err(|_| invalid(name, text, "it is a number of bytes, in digits alone"))?;
    at_least(least, name, number).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceKind;

    fn env(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).into())
    }

    #[test]
    fn the_environment_is_obeyed() {
        let device = from_env(env(&[("INFLIGHT_DEVICE", "host"), ("INFLIGHT_MEMORY_BYTES", "8192")])).unwrap();
        assert_eq!((device.kind(), device.stats().device_limit), (DeviceKind::Host, 8192));
        let device = from_env(env(&[("INFLIGHT_DEVICE", "host"), ("INFLIGHT_OVERLAP", "off")])).unwrap();
        let (one, two) = (device.compute_stream().unwrap(), device.compute_stream().unwrap());
        let id = |stream| device.shared().bind(stream).unwrap().id();
        assert_eq!(id(&one), id(&two), "copies and compute share one stream");
    }

    #[test]
    fn a_bad_value_in_the_environment_is_an_error() {
        for (pairs, text) in [
            (
                &[("INFLIGHT_DEVICE", "gpu")] as &'static [_],
                "INFLIGHT_DEVICE can't be \"gpu\": it is auto, host or cuda:N",
            ),
            (&[("INFLIGHT_OVERLAP", "yes")], "INFLIGHT_OVERLAP can't be \"yes\": it is on or off"),
            (
                &[("INFLIGHT_STAGING_BYTES", "64MB")],
                "INFLIGHT_STAGING_BYTES can't be \"64MB\": it is a number of bytes, in digits alone",
            ),
            (&[("INFLIGHT_MEMORY_BYTES", "0")], "INFLIGHT_MEMORY_BYTES can't be \"0\": it must be at least 1"),
            (&[("INFLIGHT_STAGING_BYTES", "100")], "INFLIGHT_STAGING_BYTES can't be \"100\": it must be at least 4096"),
        ] {
            assert_eq!(from_env(env(pairs)).unwrap_err().to_string(), text);
        }
    }
}
