//! [`Cell`]: the element types that are sent, and what writers on the device make of an element.

use inflight::Element;
use inflight::cudarc::driver::{DeviceRepr, ValidAsZeroBits};

/// What a batch's lease has written since it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Nothing,
    /// Every bit was turned over.
    Flipped,
    Zeroes,
}

/// An element that can be compared with the bytes that were sent.
pub(crate) trait Cell: Element + Eq + DeviceRepr + ValidAsZeroBits {
    /// The element of those bytes.
    fn of(bytes: &[u8]) -> Self;

    fn flipped(self) -> Self;

    /// What it is after a write.
    fn after(self, written: Written) -> Self {
        match written {
            Written::Nothing => self,
            Written::Flipped => self.flipped(),
            Written::Zeroes => Self::default(),
        }
    }
}

impl Cell for u8 {
    fn of(bytes: &[u8]) -> Self {
        bytes.first().copied().unwrap_or_default()
    }

    fn flipped(self) -> Self {
        !self
    }
}

impl Cell for u32 {
    fn of(bytes: &[u8]) -> Self {
        bytes.try_into().map(Self::from_ne_bytes).unwrap_or_default()
    }

    fn flipped(self) -> Self {
        !self
    }
}
