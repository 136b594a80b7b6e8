//! [`Log`]: how often each function was called, and a line for each call while that is wanted.

use std::collections::BTreeMap;
use std::fmt::{Arguments, Write};

use crate::code::Code;

/// The calls since the log was started or reset.
#[derive(Debug, Default)]
pub(crate) struct Log {
    is_on: bool,
    text: String,
    calls: BTreeMap<&'static str, u64>,
}

impl Log {
    /// Turned on, it starts anew, and so do the counts.
    pub(crate) fn turn(&mut self, on: bool) {
        if on {
            *self = Self::default();
        }
        self.is_on = on;
    }

    pub(crate) fn count(&mut self, name: &'static str) {
        *self.calls.entry(name).or_default() += 1;
    }

    /// A call that is over; `results` is what it wrote to its caller.
    pub(crate) fn line(&mut self, name: &str, arguments: Arguments<'_>, results: &str, code: Code) {
        if self.is_on {
            let details = format!("{name} {arguments}");
            let _ = writeln!(self.text, "{}{results} -> {}", details.trim_end(), code.0);
        }
    }

    /// Calls of one function, or of all.
    pub(crate) fn calls(&self, name: Option<&str>) -> u64 {
        match name {
            Some(name) => self.calls.get(name).copied().unwrap_or(0),
            None => self.calls.values().sum(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
    }
}
