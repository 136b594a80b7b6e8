//! [`Explanation`]: which way each field of a batch takes to the device, what that costs, and why.

use std::fmt::{Display, Formatter};

use super::Way;

/// What a transfer does with each field; from [`Device::explain`](crate::Device::explain) and
/// [`DeviceBatch::explain`](crate::DeviceBatch::explain). Printed, it is a line for each field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// A row for each field, in order.
    pub fields: Vec<FieldExplanation>,
    /// Bytes of device memory that the batch needs, scratch memory and padding included; it takes a size class.
    pub device_bytes: usize,
}

/// What a transfer does with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldExplanation {
    /// The field's name.
    pub name: String,
    /// How its bytes get to the device.
    pub route: Route,
    /// Whether it is brought into order or converted by a kernel on the device.
    pub is_rearranged: bool,
    /// Copies or launches that bring it there; small neighbours share theirs.
    pub pieces: usize,
    /// Bytes over the link, or written where there is none; without padding.
    pub link_bytes: usize,
    /// Bytes that the processor copies, gathers or converts.
    pub staged_bytes: usize,
    /// Why.
    pub reason: &'static str,
}

/// How bytes get to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// There are none.
    Empty,
    /// By one copy from page-locked memory.
    Direct,
    /// By copies of rows from page-locked memory that lie apart.
    Rows,
    /// By a kernel that reads such rows: see [`FetchKernels`](crate::FetchKernels).
    Fetched,
    /// By way of the staging ring.
    Staged,
    /// Straight into the batch's memory by the staging threads, where that is the host's own (the host backend).
    Written,
}

/// Why a field takes its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Empty,
    PageLocked,
    Pageable,
    RowsPageLocked,
    RowsFetched,
    Scattered,
    OrderedHere,
    ConvertedHere,
    OrderedThere,
    ConvertedThere,
    Preserved,
}

impl Reason {
    const fn text(self) -> &'static str {
        match self {
            Self::Empty => "it has no elements",
            Self::PageLocked => "it is contiguous and page-locked",
            Self::Pageable => "it is contiguous and pageable",
            Self::RowsPageLocked => "it is page-locked, in rows that are long enough for copies of their own",
            Self::RowsFetched => "it is page-locked, and a kernel reads its rows",
            Self::Scattered => "it lies in pieces, which the staging threads gather",
            Self::OrderedHere => "memory has it in another order, and the host brings it into this one",
            Self::ConvertedHere => "its elements are converted while they are staged",
            Self::OrderedThere => "memory has it in another order: it is sent as it lies and ordered on the device",
            Self::ConvertedThere => "it is sent as it is stored and converted on the device",
            Self::Preserved => "it is sent and stays as it lies",
        }
    }
}

/// What is kept of a field's plan to tell it later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) way: Way,
    pub(crate) reason: Reason,
    pub(crate) is_rearranged: bool,
    pub(crate) pieces: usize,
    pub(crate) sent_bytes: usize,
}

impl Told {
    pub(crate) fn of(self, name: &str) -> FieldExplanation {
        let route = match self.way {
            _ if self.sent_bytes == 0 => Route::Empty,
            Way::Direct => Route::Direct,
            Way::Rows => Route::Rows,
            Way::Fetched => Route::Fetched,
            Way::Staged => Route::Staged,
            Way::Written => Route::Written,
        };
        FieldExplanation {
            name: name.to_owned(),
            route,
            is_rearranged: self.is_rearranged,
            pieces: self.pieces,
            link_bytes: self.sent_bytes,
            staged_bytes: if self.way.is_gathered() { self.sent_bytes } else { 0 },
            reason: self.reason.text(),
        }
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for field in &self.fields {
            writeln!(f, "{field}")?;
        }
        write!(f, "{} bytes of device memory", self.device_bytes)
    }
}

impl Display for FieldExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { name, route, is_rearranged, pieces, link_bytes, staged_bytes, reason } = self;
        let there = if *is_rearranged { ", rearranged on the device" } else { "" };
        write!(
            f,
            "{name}: {route:?}{there}, {pieces} pieces, {link_bytes} bytes over the link, {staged_bytes} copied by the "
        )?;
        write!(f, "processor: {reason}")
    }
}
