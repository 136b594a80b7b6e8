//! [`HostMemory`]: page-locked memory, allocated here or registered.
#![expect(unsafe_code, reason = "allocates memory by hand")]

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::Range;

use super::{FREED, FRESH, rights};
use crate::code::Code;
use crate::refusal::Refusal;
use crate::world::World;

const PAGE: usize = 4096;

/// The page-locked ranges, by address.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    ranges: BTreeMap<usize, Locked>,
}

/// A page-locked range.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) bytes: usize,
    pub(crate) context: usize,
    /// Allocated here, in this layout; else it is the caller's.
    layout: Option<Layout>,
}

impl HostMemory {
    /// The range that this address is in, and where that starts.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, &Locked)> {
        let (start, range) = self.ranges.range(..=address).next_back()?;
        (address < start + range.bytes).then_some((*start, range))
    }

    /// Whether all these bytes are page-locked. A range that starts in page-locked memory must end there.
    pub(crate) fn is_locked(&self, address: usize, bytes: usize) -> Result<bool, Refusal> {
        match self.find(address) {
            None => Ok(false),
            Some((start, range)) if address + bytes <= start + range.bytes => Ok(true),
            Some(_) => Err(Refusal::misuse(
                Code::INVALID_VALUE,
                format!("{bytes} bytes at {address:#x} go past the end of page-locked memory"),
            )),
        }
    }

    /// Bytes and ranges.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        (self.ranges.values().map(|range| range.bytes).sum(), self.ranges.len())
    }

    /// Whether a known range has a page of these.
    fn overlaps(&self, address: usize, bytes: usize) -> bool {
        let pages = |start: usize, bytes: usize| start / PAGE..(start + bytes).div_ceil(PAGE);
        let wanted = pages(address, bytes);
        self.ranges.iter().any(|(start, range)| {
            let known = pages(*start, range.bytes);
            known.start < wanted.end && wanted.start < known.end
        })
    }

    /// A context ends. Memory that was allocated in it is kept from being used again: who still has it must not crash.
    pub(crate) fn forget_all_of(&mut self, context: usize) {
        self.ranges.retain(|_, range| range.context != context);
    }
}

impl World {
    pub(crate) fn allocate_host(&mut self, context: usize, bytes: usize) -> Result<usize, Refusal> {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE).map_err(|_| Code::OUT_OF_MEMORY)?;
        if bytes == 0 {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "no bytes were asked for"));
        }
        // SAFETY: the layout has bytes.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            return Err(Code::OUT_OF_MEMORY.into());
        }
        // SAFETY: so many bytes were allocated just now.
        unsafe { start.write_bytes(FRESH, layout.size()) };
        self.host.ranges.insert(start.addr(), Locked { bytes, context, layout: Some(layout) });
        Ok(start.expose_provenance())
    }

    pub(crate) fn free_host(&mut self, start: usize) -> Result<(), Refusal> {
        let known = self.host.ranges.get(&start).and_then(|range| range.layout);
        let Some(layout) = known else {
            return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{start:#x} is no block of page-locked memory")));
        };
        self.end_host(start);
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: it was allocated in this layout, and no operation knows it any more.
        unsafe { start.write_bytes(FREED, layout.size()) };
        // SAFETY: as above.
        unsafe { std::alloc::dealloc(start, layout) };
        Ok(())
    }

    pub(crate) fn register(
        &mut self,
        context: usize,
        start: usize,
        bytes: usize,
        read_only: bool,
    ) -> Result<(), Refusal> {
        if start == 0 || bytes == 0 || start.checked_add(bytes).is_none() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "there is nothing to register"));
        }
        if self.host.overlaps(start, bytes) {
            return Err(Code::ALREADY_REGISTERED.into());
        }
        rights::check(start, bytes, read_only)?;
        self.host.ranges.insert(start, Locked { bytes, context, layout: None });
        Ok(())
    }

    pub(crate) fn unregister(&mut self, start: usize) -> Result<(), Refusal> {
        match self.host.ranges.get(&start) {
            Some(Locked { layout: None, .. }) => {
                self.end_host(start);
                Ok(())
            }
            _ => Err(Refusal::misuse(Code::NOT_REGISTERED, format!("{start:#x} was not registered"))),
        }
    }

    fn end_host(&mut self, start: usize) {
        let Some(range) = self.host.ranges.remove(&start) else { return };
        let range: Range<u64> = start as u64..(start + range.bytes) as u64;
        self.check_unused(&range, None);
        self.forget_host(&range);
    }
}
