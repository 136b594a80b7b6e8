//! The option that all examples have: `--device auto|host|cuda:N`.

use std::fmt;
use std::str::FromStr;

use inflight::{Device, DeviceBuilder};

/// Which device was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// The first GPU, or the host where there is none.
    Auto,
    Host,
    Cuda(usize),
}

impl Which {
    /// Reads the arguments of a program that has no other option.
    #[allow(dead_code, reason = "a program with more options reads them itself")]
    pub(crate) fn from_arguments() -> Result<Self, String> {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Self::Auto),
            ["--device", text] => text.parse(),
            _ => Err("the one option is --device auto|host|cuda:N".to_owned()),
        }
    }

    /// Settings for that device.
    pub(crate) fn builder(self) -> DeviceBuilder<'static> {
        match self {
            Self::Auto => Device::builder(),
            Self::Host => Device::builder().host(),
            Self::Cuda(ordinal) => Device::builder().cuda(ordinal),
        }
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("auto", _) => Ok(Self::Auto),
            ("host", _) => Ok(Self::Host),
            (_, Some(Ok(ordinal))) => Ok(Self::Cuda(ordinal)),
            _ => Err(format!("--device \"{text}\" is not auto, host or cuda:N")),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Host => f.write_str("host"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}
