//! The options of the program.

use std::time::Duration;

pub(crate) const HELP: &str = "Keeps two devices under load for some minutes, and fails if anything is lost or grows.

  --minutes N            how long [0.1]
  --device LIST          host or cuda:N, or two of them with a comma between; one is opened twice [host]
  --seed N               where the random choices begin [1]
  --plant leak|byte|error  a mistake that must be found: a batch that is never dropped, a byte that is another,
                         an error that nobody expects
  --help                 prints this";

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Host,
    Cuda(usize),
}

/// A mistake that is made on purpose, once in a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    Leak,
    Byte,
    Error,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) time: Duration,
    pub(crate) devices: [Which; 2],
    pub(crate) seed: u64,
    pub(crate) plant: Option<Plant>,
    pub(crate) help: bool,
}

impl Options {
    pub(crate) fn from_arguments() -> Result<Self, String> {
        let (time, devices) = (Duration::from_secs(6), [Which::Host; 2]);
        let mut options = Self { time, devices, seed: 1, plant: None, help: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_default();
            match argument.as_str() {
                // What cargo adds.
                "--bench" => {}
                "--minutes" => options.time = minutes(&value())?,
                "--device" => options.devices = devices_of(&value())?,
                "--seed" => options.seed = value().parse().map_err(|_| "--seed is a number")?,
                "--plant" => options.plant = Some(plant(&value())?),
                "--help" => options.help = true,
                other => return Err(format!("there is no option \"{other}\"")),
            }
        }
        Ok(options)
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map(|minutes| minutes * 60.0);
    let time = seconds.ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("--minutes \"{text}\" is not a time"))
}

fn devices_of(text: &str) -> Result<[Which; 2], String> {
    let which = |text: &str| match (text, text.strip_prefix("cuda:").map(str::parse)) {
        ("host", _) => Ok(Which::Host),
        (_, Some(Ok(ordinal))) => Ok(Which::Cuda(ordinal)),
        _ => Err(format!("--device \"{text}\" is not host or cuda:N")),
    };
    match text.split_once(',') {
        None => Ok([which(text)?; 2]),
        Some((one, two)) => Ok([which(one)?, which(two)?]),
    }
}

fn plant(text: &str) -> Result<Plant, String> {
    match text {
        "leak" => Ok(Plant::Leak),
        "byte" => Ok(Plant::Byte),
        "error" => Ok(Plant::Error),
        _ => Err(format!("--plant \"{text}\" is not leak, byte or error")),
    }
}
