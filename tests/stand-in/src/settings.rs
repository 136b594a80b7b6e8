//! [`Settings`]: what tests set, by controls or, for child processes, by environment variables.

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

/// How the devices are, and how their streams advance.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What `cuInit` returns, where that is set.
    pub(crate) init: Option<i32>,
    /// 1000 × major + 10 × minor.
    pub(crate) version: i32,
    pub(crate) devices: usize,
    /// Bytes of memory that each device has.
    pub(crate) memory: usize,
    /// Attributes that differ from the usual, by device (`None`: all) and number.
    attributes: BTreeMap<(Option<usize>, i32), i32>,
    /// Nothing completes but by `stand_in_advance`.
    pub(crate) manual: bool,
    /// Bytes a second over the link, in each direction.
    pub(crate) rate: f64,
    /// What each copy takes besides.
    pub(crate) latency: Duration,
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        let mut attributes = BTreeMap::new();
        for pair in env::var("STAND_IN_ATTRIBUTES").unwrap_or_default().split(',') {
            if let Some((number, value)) = pair.split_once('=')
                && let (Ok(number), Ok(value)) = (number.trim().parse(), value.trim().parse())
            {
                attributes.insert((None, number), value);
            }
        }
        Self {
            init: number("STAND_IN_INIT"),
            version: number("STAND_IN_VERSION").unwrap_or(13_000),
            devices: number("STAND_IN_DEVICES").unwrap_or(2),
            memory: number("STAND_IN_MEMORY").unwrap_or(1 << 30),
            attributes,
            manual: false,
            rate: 10e9,
            latency: Duration::from_micros(5),
        }
    }

    pub(crate) fn attribute(&self, device: usize, number: i32) -> i32 {
        let set = self.attributes.get(&(Some(device), number)).or_else(|| self.attributes.get(&(None, number)));
        set.copied().unwrap_or_else(|| usual(device, number))
    }

    /// Sets an attribute of one device; of all where `device` is `None`.
    pub(crate) fn set_attribute(&mut self, device: Option<usize>, number: i32, value: i32) {
        self.attributes.insert((device, number), value);
    }

    /// How long so many bytes are on the link.
    pub(crate) fn on_link(&self, bytes: usize) -> Duration {
        Duration::try_from_secs_f64(bytes as f64 / self.rate).unwrap_or(Duration::ZERO)
    }
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    env::var(variable).ok()?.trim().parse().ok()
}

/// A device of compute capability 9.0, with memory of its own behind a bus.
fn usual(device: usize, number: i32) -> i32 {
    match number {
        1..=3 | 39 => 1024,
        4 => 64,
        5 | 11 => i32::MAX,
        6 | 7 => 65_535,
        8 => 48 << 10,
        9 | 12 | 82 => 64 << 10,
        10 => 32,
        13 => 1_980_000,
        15 | 19 | 31 | 41 | 78 | 83 | 89..=91 | 95 | 99 | 115 => 1,
        16 => 132,
        33 => i32::try_from(device).unwrap_or(0) + 1,
        36 => 3_201_000,
        37 => 6144,
        38 => 50 << 20,
        40 => 3,
        75 => 9,
        81 => 228 << 10,
        97 => 227 << 10,
        _ => 0,
    }
}
