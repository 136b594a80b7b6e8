//! Enqueues filled chunks and direct parts, records their events, and hands both to the reactor.
#![expect(unsafe_code, reason = "copies are enqueued by address")]

use std::sync::atomic::Ordering;

use super::lane::StagedBatch;
use super::{Segment, gather};
use crate::HostArray;
use crate::backend::{Copy, Direction};
use crate::batch::{BatchOwner, HostBatch};
use crate::error::Result;
use crate::plan::{Plan, Way};
use crate::reactor::{Done, Entry, Held};

/// Something to enqueue for a batch: bytes `start..end` of its image, from `src`.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) part: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) src: *const u8,
    pub(super) held: Held,
    pub(super) plan: &'a Plan,
}

/// Writes bytes `start..end` of the image to `dst`, from the fields of one staged part.
///
/// # Safety
///
/// `dst` is valid for writes of `end - start` bytes and nobody else touches them.
pub(super) unsafe fn fill(batch: &HostBatch, plan: &Plan, part: usize, start: usize, end: usize, dst: *mut u8) {
    for place in plan.parts[part].fields.clone() {
        let (_, array) = &batch.fields()[place];
        let first = plan.offsets[place];
        let (from, to) = (start.max(first), end.min(first + array.bytes()));
        if from < to {
            // SAFETY: `from` lies in `start..end`, so the address stays in the memory that the caller answers for.
            let dst = unsafe { dst.add(from - start) };
            // SAFETY: as above; chunks are cut at multiples of 256 bytes from the image's start and fields begin at such
            // multiples, so the range is one of whole elements.
            unsafe { gather::gather(array, from - first..to - first, dst) };
        }
    }
}

/// Enqueues a piece and records behind it. On an error nothing of it is pending, or its block is quarantined.
pub(super) fn send(core: &BatchOwner, piece: Piece<'_>) -> Result<()> {
    let device = &core.device;
    let part = &piece.plan.parts[piece.part];
    let bytes = piece.end - piece.start;
    let copy = Copy { dst: core.address(piece.start), src: piece.src, bytes, direction: Direction::HostToDevice };
    // SAFETY: invariant 1: the block belongs to `core` and the source to `piece.held`; both go into the entry below, which
    // the reactor keeps until the event behind the copy has fired. Without an event they are quarantined and kept.
    let enqueued = unsafe { device.backend.copy(&device.copy_stream, copy, &core.names[part.fields.clone()]) };
    if let Err(fault) = enqueued {
        let error = device.fault(fault);
        if core.begun.is_up() {
            // The segment may hold parts that were enqueued before.
            device.orphan(piece.held);
        } else {
            piece.held.let_go(device, device.is_lost());
        }
        return Err(error);
    }
    if !core.begun.is_up() {
        core.begun.raise();
    }
    device.counters.sent(bytes);
    let event = match device.record(&device.copy_stream) {
        Ok(event) => event,
        Err(error) => {
            core.quarantined.raise();
            device.orphan(piece.held);
            return Err(crate::reactor::unrecorded(error));
        }
    };
    let last_part = piece.plan.parts.get(piece.part + 1).is_none_or(|next| next.group != part.group);
    let ends_group = last_part && piece.end == part.end;
    if device.backend.prompt() && matches!(device.query(&event), Ok(true)) {
        device.events.put(event);
        if ends_group {
            core.arrived_at_once(part.group);
        }
        piece.held.let_go(device, false);
        return Ok(());
    }
    let entry = if ends_group {
        core.queued(part.group, event);
        Done::Group(core.clone(), part.group)
    } else {
        Done::Chunk(core.clone(), part.group, event)
    };
    device.reactor.push(device, Entry::new(device, &device.copy_stream, bytes, piece.held, entry));
    Ok(())
}

/// Stages and enqueues a small batch on the calling thread.
///
/// `segment` holds all of its staged parts, one behind the other.
pub(super) fn send_inline(
    core: &BatchOwner,
    batch: &HostBatch,
    plan: &Plan,
    mut segment: Option<Segment>,
) -> Result<()> {
    let device = &core.device;
    let mut src = segment.as_ref().map_or(std::ptr::null_mut(), |segment| device.engine.address(segment.offset));
    let last_staged = plan.parts.iter().rposition(|part| part.way == Way::Staged);
    for (index, part) in plan.parts.iter().enumerate() {
        let (held, from) = match part.way {
            Way::Direct => direct(batch, plan, index),
            Way::Staged => {
                // SAFETY: the segment is ours until it is released, and long enough for all staged parts.
                unsafe { fill(batch, plan, index, part.start, part.end, src) };
                device.counters.gathered.fetch_add(part.bytes() as u64, Ordering::Relaxed);
                let from = src.cast_const();
                src = src.wrapping_add(part.bytes().next_multiple_of(crate::plan::ALIGN));
                let segment = if last_staged == Some(index) { segment.take() } else { None };
                (Held { segment, source: None }, from)
            }
        };
        let piece = Piece { part: index, start: part.start, end: part.end, src: from, held, plan };
        if let Err(error) = send(core, piece) {
            let rest = Held { segment, source: None };
            if !rest.is_empty() {
                device.orphan(rest);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Bytes of a segment that holds all staged parts of a plan.
pub(super) fn segment_bytes(plan: &Plan) -> usize {
    let staged = plan.parts.iter().filter(|part| part.way == Way::Staged);
    staged.map(|part| part.bytes().next_multiple_of(crate::plan::ALIGN)).sum()
}

/// Enqueues a chunk that a thread has filled, or a direct part.
pub(super) fn send_chunk(
    staged: &StagedBatch,
    part: usize,
    start: usize,
    end: usize,
    segment: Option<Segment>,
) -> Result<()> {
    let device = &staged.core.device;
    let (held, src) = match segment {
        Some(segment) => {
            let src = device.engine.address(segment.offset).cast_const();
            (Held { segment: Some(segment), source: None }, src)
        }
        None => direct(&staged.batch, &staged.plan, part),
    };
    if let Some(error) = device.lost().or_else(|| staged.core.failure().cloned()) {
        held.let_go(device, device.is_lost());
        return Err(error);
    }
    send(&staged.core, Piece { part, start, end, src, held, plan: &staged.plan })
}

fn direct(batch: &HostBatch, plan: &Plan, part: usize) -> (Held, *const u8) {
    let (_, array) = &batch.fields()[plan.parts[part].fields.start];
    let src = HostArray::contiguous_bytes(array).unwrap_or(std::ptr::null());
    (Held { segment: None, source: Some((array.owner().clone(), array.bytes())) }, src)
}
