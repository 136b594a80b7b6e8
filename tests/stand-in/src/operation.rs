//! [`Operation`]: what waits in a stream, and which memory it touches.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::copy::{Copy, Direction, Place};
use crate::event::Record;
use crate::jobs::HostFunction;
use crate::kernels::Prepared;

/// An operation of a stream.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Its place in the stream, from 1 on.
    pub(crate) number: u64,
    pub(crate) work: Work,
    pub(crate) queued: Instant,
    /// When its time is over, once it has started.
    pub(crate) finish: Option<Instant>,
}

/// What an operation does when its time is over.
#[derive(Debug)]
pub(crate) enum Work {
    Copy(Copy),
    Fill(Fill),
    Kernel(Arc<Prepared>),
    /// A kernel that has run and takes up its time.
    Spent(Arc<Prepared>),
    Record(Arc<Record>),
    /// Ready when the record is done.
    Wait(Arc<Record>),
    Host(HostFunction),
    /// The end of a block of device memory.
    Free(u64),
}

/// Bytes that are written over and over.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    pub(crate) pattern: Vec<u8>,
    pub(crate) times: usize,
}

impl Fill {
    pub(crate) fn bytes(&self) -> usize {
        self.pattern.len() * self.times
    }
}

impl Operation {
    pub(crate) fn new(number: u64, work: Work) -> Self {
        Self { number, work, queued: Instant::now(), finish: None }
    }
}

impl Work {
    /// Whether it reads or writes memory there, of the host or of a device.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        let meets = |start: u64, bytes: usize| start < range.end && range.start < start.saturating_add(bytes as u64);
        match self {
            Self::Copy(copy) => copy.parts.iter().any(|part| {
                [&part.to, &part.from].into_iter().filter_map(Place::address).any(|start| meets(start, part.bytes))
            }),
            Self::Fill(fill) => meets(fill.to, fill.bytes()),
            // What a kernel touches is not known: a block that an argument points into is taken for touched.
            Self::Kernel(kernel) | Self::Spent(kernel) => kernel.words().any(|word| range.contains(&word)),
            Self::Record(_) | Self::Wait(_) | Self::Host(_) | Self::Free(_) => false,
        }
    }

    /// Takes host memory out that is about to go: what it would have read there is read as freed memory.
    pub(crate) fn forget_host(&mut self, range: &Range<u64>) {
        if let Self::Copy(copy) = self {
            for part in &mut copy.parts {
                let bytes = part.bytes as u64;
                for place in [&mut part.to, &mut part.from] {
                    if let Place::Host(start) = *place
                        && (start as u64) < range.end
                        && range.start < start as u64 + bytes
                    {
                        *place = Place::Gone;
                    }
                }
            }
        }
    }

    /// What it is, for texts.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Copy(Copy { direction: Direction::ToDevice, .. }) => "copy to the device",
            Self::Copy(Copy { direction: Direction::ToHost, .. }) => "copy to the host",
            Self::Copy(_) => "copy",
            Self::Fill(_) => "fill",
            Self::Kernel(_) | Self::Spent(_) => "kernel",
            Self::Record(_) => "record",
            Self::Wait(_) => "wait",
            Self::Host(_) => "host function",
            Self::Free(_) => "free",
        }
    }
}
