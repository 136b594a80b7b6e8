//! [`FieldRoute`]: how one array gets to the device, and where it is brought into order and converted on the way.

use smallvec::SmallVec;

use super::explain::Reason;
use super::order::{InMemory, Shuffle};
use super::relayout::{Fetches, Relayout, Terms};
use super::rows::Rows;
use super::{SMALL, Way};
use crate::HostArray;
use crate::backend::{MOST_CHANNELS, Rearranges};
use crate::batch::Change;
use crate::dtype::Dtype;

/// Runs of so many contiguous bytes are gathered about as fast as contiguous memory, in whatever order.
const RUN: usize = 64;

/// How one array gets to the device.
#[derive(Debug)]
pub(crate) struct FieldRoute {
    pub(crate) way: Way,
    pub(crate) reason: Reason,
    /// What is sent, where it is not the array as it is.
    pub(crate) special: Option<Box<Special>>,
}

/// An array that is sent in another order than it is to have.
#[derive(Debug)]
pub(crate) struct Special {
    pub(crate) sent: HostArray,
    pub(crate) rearranged: Option<Rearranged>,
    /// Strides of the array on the device in elements, where they are not those of C order.
    pub(crate) strides: Option<SmallVec<[isize; 4]>>,
}

/// What the device does with what was sent.
#[derive(Clone, Debug)]
pub(crate) struct Rearranged {
    pub(crate) stored: Dtype,
    pub(crate) shuffle: Shuffle,
    pub(crate) change: Option<Change>,
}

/// Why there is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// [`Relayout::Forbid`].
    Forbidden,
    /// [`Relayout::Device`] on a device without kernels.
    NoKernels,
}

impl FieldRoute {
    const fn plain(way: Way, reason: Reason) -> Self {
        Self { way, reason, special: None }
    }

    /// The route of an array with elements. Only if it `may` be, it is rearranged on the device.
    pub(super) fn of(array: &HostArray, terms: &Terms, may: bool) -> Result<Self, Refused> {
        let locked = array.page_locked() == Some(terms.device);
        if array.contiguous_bytes().is_some() {
            return Ok(Self::contiguous(locked));
        }
        let memory = InMemory::of(array);
        if terms.relayout == Relayout::Preserve
            && let Some(route) = Self::preserving(&memory, terms, may)
        {
            return route;
        }
        if let Some(route) = Self::on_device(array, &memory, terms, locked, may)? {
            return Ok(route);
        }
        // Backwards by long rows is a choice of rows.
        if terms.relayout == Relayout::Forbid && (memory.is_permuted || (memory.is_flipped && run(array) < RUN)) {
            return Err(Refused::Forbidden);
        }
        Ok(Self::on_host(array, &memory, locked, terms))
    }

    const fn contiguous(locked: bool) -> Self {
        if locked { Self::plain(Way::Direct, Reason::PageLocked) } else { Self::plain(Way::Staged, Reason::Pageable) }
    }

    /// Sends dense memory as it lies.
    fn preserving(memory: &InMemory, terms: &Terms, may: bool) -> Option<Result<Self, Refused>> {
        let is_dense = memory.view.unchanged().contiguous_bytes().is_some();
        if !memory.is_permuted || memory.is_flipped || memory.repeats || !is_dense {
            return None;
        }
        let route = Self::of(&memory.view, &Terms { relayout: Relayout::Auto, ..*terms }, may);
        Some(route.map(|route| {
            let plain = || Box::new(Special { sent: memory.view.clone(), rearranged: None, strides: None });
            let mut special = route.special.unwrap_or_else(plain);
            special.strides = Some(memory.strides().into());
            Self { special: Some(special), reason: Reason::Preserved, ..route }
        }))
    }

    /// Sends memory in its own order, and rearranges it on the device, where that is wanted and can be done.
    fn on_device(
        array: &HostArray,
        memory: &InMemory,
        terms: &Terms,
        locked: bool,
        may: bool,
    ) -> Result<Option<Self>, Refused> {
        let raw = memory.view.unchanged();
        // Where elements are converted is not to depend on whether kernels fetch just now.
        let (way, _) = straight(&raw, locked, &Terms { fetches: Fetches::Nothing, ..*terms });
        let walks = memory.differs() && run(array) < RUN;
        let saves = memory.repeats && raw.bytes() <= array.bytes() / 2;
        let converts = converts_there(array, way != Way::Staged, walks);
        let large = array.bytes() >= SMALL;
        let (wanted, forced) = match terms.relayout {
            Relayout::Host => (false, false),
            Relayout::Device => (memory.differs() || array.changes().len() == 1, true),
            Relayout::Forbid => (memory.is_permuted || walks || (large && (saves || converts)), false),
            Relayout::Auto | Relayout::Preserve => (large && (walks || saves || converts), false),
        };
        let able = match terms.rearranges {
            Rearranges::Fast => true,
            Rearranges::Slowly => forced,
            Rearranges::Not => false,
        };
        if !wanted || !may || !able {
            let refused = wanted && may && forced;
            return if refused { Err(Refused::NoKernels) } else { Ok(None) };
        }
        // What is converted on the host is converted before elements are repeated, which may be of several channels.
        let on_host = !(array.changes().is_empty() || converts || (forced && array.changes().len() == 1));
        let normalizes = array.changes().iter().any(|change| matches!(change, Change::Normalize(_)));
        if on_host && memory.repeats && normalizes {
            return Ok(None);
        }
        let change = if on_host { None } else { array.changes().first().cloned() };
        let kept = match &change {
            Some(Change::Normalize(normalization)) if normalization.mean.len() > MOST_CHANNELS => return Ok(None),
            Some(Change::Normalize(normalization)) => normalization.axis,
            _ => None,
        };
        let Some(shuffle) = memory.shuffle(array.shape(), kept) else { return Ok(None) };
        let change = change.map(|change| change.renumbered(|_| shuffle.kept.unwrap_or(0)));
        let sent = if on_host { memory.view.clone() } else { raw };
        let (way, _) = straight(&sent, locked, terms);
        let rearranged = Some(Rearranged { stored: sent.dtype(), shuffle, change });
        let reason = if memory.differs() { Reason::OrderedThere } else { Reason::ConvertedThere };
        Ok(Some(Self { way, reason, special: Some(Box::new(Special { sent, rearranged, strides: None })) }))
    }

    fn on_host(array: &HostArray, memory: &InMemory, locked: bool, terms: &Terms) -> Self {
        let (way, reason) = straight(array, locked, terms);
        let reason = match reason {
            Reason::Scattered if !array.changes().is_empty() => Reason::ConvertedHere,
            Reason::Scattered if memory.is_permuted || memory.is_flipped => Reason::OrderedHere,
            other => other,
        };
        Self::plain(way, reason)
    }
}

/// How an array gets to the device in its own order.
fn straight(array: &HostArray, locked: bool, terms: &Terms) -> (Way, Reason) {
    let is_contiguous = array.contiguous_bytes().is_some();
    match (is_contiguous, locked) {
        (true, true) => (Way::Direct, Reason::PageLocked),
        (true, false) => (Way::Staged, Reason::Pageable),
        (false, true) if array.changes().is_empty() => match Rows::of(array) {
            rows if rows.pay_a_kernel(terms.fetches) => (Way::Fetched, Reason::RowsFetched),
            rows if rows.pay() => (Way::Rows, Reason::RowsPageLocked),
            _ => (Way::Staged, Reason::Scattered),
        },
        (false, _) => (Way::Staged, Reason::Scattered),
    }
}

/// Whether the device converts an array that it may rearrange: where that keeps bytes off the link, or work off the host.
fn converts_there(array: &HostArray, is_direct: bool, is_ordered_there: bool) -> bool {
    let [change] = array.changes() else { return false };
    let (from, to) = (array.stored().size(), change.dtype().size());
    to > from || is_direct || (to == from && is_ordered_there)
}

/// Bytes that lie one behind the other at the end of the array's order.
fn run(array: &HostArray) -> usize {
    Rows::of(array).width()
}
