//! [`Copy`]: bytes from one place to another, read and written when the copy completes.
#![expect(unsafe_code, reason = "reads and writes memory of the caller's")]

use crate::code::Code;
use crate::memory::{DEVICE_ADDRESSES, FREED};
use crate::refusal::Refusal;
use crate::world::World;

/// A copy, in one part or many.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) parts: Vec<Part>,
    pub(crate) direction: Direction,
    /// It writes to memory that is not page-locked: the call that queues it waits for it.
    pub(crate) blocks: bool,
}

/// Which way the bytes go; the first two are the ways over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    ToHost,
    /// On one side of the link.
    Within,
}

/// Bytes that lie together.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) to: Place,
    pub(crate) from: Place,
    pub(crate) bytes: usize,
}

/// Where bytes are.
#[derive(Debug)]
pub(crate) enum Place {
    Device(u64),
    Host(usize),
    /// Read when the call was made, because the memory is not page-locked.
    Staged(Box<[u8]>),
    /// Host memory that was taken away meanwhile.
    Gone,
}

/// An end of a copy as the caller names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Device(u64),
    Host(usize),
    /// The address says which it is.
    Either(u64),
}

impl End {
    /// The same, so many bytes further.
    pub(crate) const fn at(self, bytes: usize) -> Self {
        match self {
            Self::Device(start) => Self::Device(start.wrapping_add(bytes as u64)),
            Self::Host(start) => Self::Host(start.wrapping_add(bytes)),
            Self::Either(start) => Self::Either(start.wrapping_add(bytes as u64)),
        }
    }

    fn is_device(self) -> bool {
        match self {
            Self::Device(_) => true,
            Self::Host(_) => false,
            Self::Either(start) => DEVICE_ADDRESSES.contains(&start),
        }
    }

    const fn address(self) -> u64 {
        match self {
            Self::Device(start) | Self::Either(start) => start,
            Self::Host(start) => start as u64,
        }
    }
}

impl Place {
    /// Its address, if it is memory that can be freed.
    pub(crate) const fn address(&self) -> Option<u64> {
        match self {
            Self::Device(start) => Some(*start),
            Self::Host(start) => Some(*start as u64),
            Self::Staged(_) | Self::Gone => None,
        }
    }
}

impl World {
    /// Checks both ends of all parts and makes a copy of them. Memory that is not page-locked is read now.
    ///
    /// # Safety
    ///
    /// Host memory that is not page-locked is valid, all along the parts.
    pub(crate) unsafe fn make_copy(&mut self, parts: &[(End, End, usize)]) -> Result<Copy, Refusal> {
        let mut copy = Copy { parts: Vec::with_capacity(parts.len()), direction: Direction::Within, blocks: false };
        let mut pageable = false;
        for &(to, from, bytes) in parts.iter().filter(|(_, _, bytes)| *bytes > 0) {
            if copy.parts.is_empty() {
                copy.direction = match (to.is_device(), from.is_device()) {
                    (true, false) => Direction::ToDevice,
                    (false, true) => Direction::ToHost,
                    _ => Direction::Within,
                };
            }
            let (source, is_locked) = self.place(from, bytes)?;
            let (target, target_is_locked) = self.place(to, bytes)?;
            pageable |= !is_locked || !target_is_locked;
            copy.blocks |= !target_is_locked;
            let from = match source {
                Place::Host(start) if !is_locked => {
                    // SAFETY: the caller's contract.
                    let staged = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
                    Place::Staged(staged.into())
                }
                other => other,
            };
            copy.parts.push(Part { to: target, from, bytes });
        }
        self.counts.pageable_copies += u64::from(pageable);
        Ok(copy)
    }

    /// Where an end is, and whether copies reach it without help of the host: not so for memory that is not page-locked.
    fn place(&self, end: End, bytes: usize) -> Result<(Place, bool), Refusal> {
        let start = end.address();
        if end.is_device() {
            self.check_device_range(start, bytes)?;
            return Ok((Place::Device(start), true));
        }
        if start == 0 || DEVICE_ADDRESSES.contains(&start) {
            return Err(Refusal::misuse(Code::INVALID_VALUE, format!("{start:#x} is not the host's")));
        }
        let host = usize::try_from(start).unwrap_or(0);
        let is_locked = self.host.is_locked(host, bytes)?;
        Ok((Place::Host(host), is_locked))
    }

    /// Copies.
    pub(crate) fn perform(&self, copy: &Copy) {
        for part in &copy.parts {
            self.perform_part(part);
        }
    }

    fn perform_part(&self, part: &Part) {
        let bytes = part.bytes;
        match (&part.from, &part.to) {
            (Place::Host(from), Place::Device(to)) => self.device.change(*to, bytes, |target| {
                // SAFETY: page-locked memory stays until an operation is done, or is `Gone` by now; `bytes` were checked.
                unsafe { std::ptr::copy_nonoverlapping(*from as *const u8, target.as_mut_ptr(), bytes) }
            }),
            (Place::Device(from), Place::Host(to)) => {
                let copied = self.device.look(*from, bytes, |source| {
                    // SAFETY: as above; where the target is not page-locked, its call waits for this.
                    unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), *to as *mut u8, bytes) }
                });
                if copied.is_none() {
                    // SAFETY: as above.
                    unsafe { std::ptr::write_bytes(*to as *mut u8, FREED, bytes) }
                }
            }
            (Place::Staged(from), Place::Device(to)) => self.device.change(*to, bytes, |to| to.copy_from_slice(from)),
            (Place::Device(from), Place::Device(to)) => {
                let source = self.device.look(*from, bytes, <[u8]>::to_vec).unwrap_or_else(|| vec![FREED; bytes]);
                self.device.change(*to, bytes, |to| to.copy_from_slice(&source));
            }
            (Place::Host(from), Place::Host(to)) => {
                // SAFETY: as above; the two may overlap.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, bytes) }
            }
            (Place::Staged(from), Place::Host(to)) => {
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), *to as *mut u8, bytes) }
            }
            (Place::Gone, Place::Device(to)) => self.device.change(*to, bytes, |to| to.fill(FREED)),
            (_, Place::Gone | Place::Staged(_)) | (Place::Gone, Place::Host(_)) => {}
        }
    }
}
