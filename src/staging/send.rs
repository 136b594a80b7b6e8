//! Enqueues filled chunks and direct parts, records their events, and hands both to the reactor.
#![expect(unsafe_code, reason = "copies are enqueued by address")]

use std::sync::atomic::Ordering;

use super::gather::{self, Next};
use super::lane::StagedBatch;
use super::together::Parcel;
use crate::HostArray;
use crate::backend::{Copy, Direction, Event, Fault, Rearrangement, StreamHandle};
use crate::batch::{BatchOwner, GroupEvent, HostBatch};
use crate::device::{Fetch, Shared};
use crate::error::Result;
use crate::memory::Segment;
use crate::plan::{Field, Part, Plan, Rearranged, Rows, Way, operations};
use crate::reactor::{Done, Entry, Held};

/// A launch counts as so many operations against the bound of what is pending: it takes 4 KiB of arguments along.
const LAUNCH: usize = 8;
/// A batch of so many bytes is too large for a processor's own cache.
const KEPT: usize = 4 << 20;

/// Something to enqueue for a batch: bytes `start..end` of its image.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) part: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) from: From<'a>,
    pub(super) held: Held,
    pub(super) plan: &'a Plan,
}

/// Where a piece is copied from.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    /// Bytes that lie one behind the other.
    Dense(*const u8),
    /// From nowhere: the block has them.
    Written,
    /// Page-locked rows of an array.
    Rows(&'a HostArray),
    /// The same, by a kernel.
    Fetched(&'a HostArray),
}

impl Piece<'_> {
    /// Where it is enqueued.
    fn stream<'a>(&self, device: &'a Shared) -> &'a StreamHandle {
        if matches!(self.from, From::Fetched(_)) { &device.fetch_stream } else { &device.copy_stream }
    }
}

/// Writes bytes `start..end` of the image to `dst`, from the fields of one staged part.
///
/// # Safety
///
/// `dst` is valid for writes of `end - start` bytes and nobody else touches them.
pub(super) unsafe fn fill(batch: &HostBatch, plan: &Plan, part: usize, start: usize, end: usize, dst: *mut u8) {
    let Part { way, ref fields, .. } = plan.layout.parts[part];
    let is_kept = way == Way::Written && plan.layout.bytes >= KEPT;
    let next = if is_kept { Next::Kept } else { Next::Read };
    for place in fields.clone() {
        let array = plan.sent(batch, place);
        let Field { sent_at: first, ref told, .. } = plan.layout.fields[place];
        let (from, to) = (start.max(first), end.min(first + told.sent_bytes));
        if from < to {
            // SAFETY: `from` lies in `start..end`, so the address stays in the memory that the caller answers for.
            let dst = unsafe { dst.add(from - start) };
            // SAFETY: as above; chunks are cut at multiples of 256 bytes from the image's start and fields begin at such
            // multiples, so the range is one of whole elements.
            unsafe { gather::gather(array, from - first..to - first, dst, next) };
        }
    }
}

/// Enqueues a piece and records behind it. On an error nothing of it is pending, or both ends are kept until that is over, or
/// its block is quarantined.
pub(super) fn send(core: &BatchOwner, piece: Piece<'_>) -> Result<()> {
    let device = &core.device;
    let part = &piece.plan.layout.parts[piece.part];
    let bytes = piece.end - piece.start;
    let stream = piece.stream(device);
    let (enqueued, operations) = enqueue(core, &piece);
    if let Err(fault) = enqueued {
        if matches!(piece.from, From::Fetched(_)) {
            device.fetching.refused(&device.name, fault);
        }
        let error = device.fault(fault);
        if matches!(piece.from, From::Rows(_)) {
            // Some of the copies may be pending.
            core.begun.raise();
            keep(core, piece.held, part.group);
        } else if core.begun.is_up() {
            // The segment may hold parts that were enqueued before.
            device.orphan(stream.id(), piece.held);
        } else {
            piece.held.let_go(device, device.is_lost());
        }
        return Err(error);
    }
    if !core.begun.is_up() {
        core.begun.raise();
    }
    device.counters.sent(bytes);
    let event = match device.record(stream) {
        Ok(event) => event,
        Err(error) => {
            core.quarantined.raise();
            device.orphan(stream.id(), piece.held);
            return Err(crate::reactor::unrecorded(error));
        }
    };
    let last_part = piece.plan.layout.parts.get(piece.part + 1).is_none_or(|next| next.group != part.group);
    let ends_group = last_part && piece.end == part.end;
    let from = piece.from;
    let entry = |held, done| {
        let entry = Entry::of_many(device, stream, bytes, held, done, operations);
        match from {
            From::Dense(_) | From::Rows(_) => entry,
            From::Written => entry.behind_a_copy(),
            From::Fetched(array) => entry.by_a_kernel(Fetch {
                by_copies: Rows::of(array).time_of_copies(bytes, device.counters.link_rate()),
                is_beside_copies: device.uploads.load(Ordering::Relaxed) > 0,
            }),
        }
    };
    if let Some((field, rearranged)) = piece.plan.rearranged(part).filter(|_| ends_group) {
        let launched = rearrange(core, part, (field, rearranged), &event, bytes);
        // Only now: an event that has fired is used again.
        device.reactor.push(device, entry(piece.held, Done::Chunk(core.clone(), part.group, event)));
        return launched;
    }
    if device.backend.prompt() && matches!(device.query(&event), Ok(true)) {
        device.events.put(event);
        if ends_group {
            core.arrived_at_once(part.group);
        }
        piece.held.let_go(device, false);
        return Ok(());
    }
    let done = if ends_group {
        core.queued(part.group, GroupEvent::Own(event));
        Done::Group(core.clone(), part.group)
    } else {
        Done::Chunk(core.clone(), part.group, event)
    };
    device.reactor.push(device, entry(piece.held, done));
    Ok(())
}

/// Keeps both ends of copies that may be pending although their call failed, until all that is enqueued now is done.
pub(super) fn keep(core: &BatchOwner, held: Held, group: usize) {
    let device = &core.device;
    match device.record(&device.copy_stream) {
        Ok(event) => {
            let done = Done::Chunk(core.clone(), group, event);
            device.reactor.push(device, Entry::new(device, &device.copy_stream, 0, held, done));
        }
        Err(_) => {
            core.quarantined.raise();
            device.orphan(device.copy_stream.id(), held);
        }
    }
}

/// Enqueues the copies of a piece. Answers how many operations they are.
fn enqueue(core: &BatchOwner, piece: &Piece<'_>) -> (Result<(), Fault>, usize) {
    let (device, dst) = (&core.device, core.address(piece.start));
    let part = &piece.plan.layout.parts[piece.part];
    let names = &core.layout.names[part.fields.clone()];
    match piece.from {
        From::Dense(src) => {
            let copy = Copy { dst, src, bytes: piece.end - piece.start, direction: Direction::HostToDevice };
            // SAFETY: invariant 1: the block belongs to `core` and the source to the piece's `held`; both go into an entry
            // which the reactor keeps until the event behind the copy has fired. Without an event they are quarantined and
            // kept.
            (unsafe { device.backend.copy(&device.copy_stream, copy, names) }, 1)
        }
        From::Written => (Ok(()), 1),
        From::Fetched(array) => {
            let copies = Rows::of(array).copies(piece.start - part.start, piece.end - part.start, dst);
            // SAFETY: as above; copies of an array's rows are of one shape and lie one behind the other in the block.
            (unsafe { device.backend.fetch(&device.fetch_stream, &copies, names) }, LAUNCH)
        }
        From::Rows(array) => {
            let copies = Rows::of(array).copies(piece.start - part.start, piece.end - part.start, dst);
            // SAFETY: as above, for each of the rows, which are elements of the array.
            (
                unsafe { device.backend.copy_pitched(&device.copy_stream, &copies, &[names]) },
                operations(&copies, device.backend.takes_many()),
            )
        }
    }
}

/// Has the device bring into order what is in a part once `copied` has fired. The group is queued then.
///
/// `last_bytes` are those of the part's last copy: the rest is on its way, and the kernel done soon after that one.
fn rearrange(
    core: &BatchOwner,
    part: &Part,
    (field, rearranged): (&Field, &Rearranged),
    copied: &Event,
    last_bytes: usize,
) -> Result<()> {
    let device = &core.device;
    let stream = &device.relayout_stream;
    device.wait(stream, copied)?;
    let Rearranged { stored, shuffle, change } = rearranged;
    let first = shuffle.first * stored.size().cast_signed();
    let rearrangement = Rearrangement {
        src: core.address(part.start).wrapping_offset(first).cast_const(),
        dst: core.address(field.offset),
        stored: *stored,
        shape: shuffle.shape.clone(),
        strides: shuffle.strides.clone(),
        change: change.clone(),
    };
    // SAFETY: invariants 1 and 3: both ends lie in the block of `core`, which the entry below keeps until the event behind
    // the kernel has fired; nobody else writes there before. Without an event the block is quarantined.
    let launched = unsafe { device.backend.rearrange(stream, rearrangement, &core.layout.names[part.fields.clone()]) };
    launched.map_err(|fault| device.fault(fault))?;
    let event = device.record(stream).map_err(|error| {
        core.quarantined.raise();
        crate::reactor::unrecorded(error)
    })?;
    core.queued(part.group, GroupEvent::Own(event));
    let entry = Entry::new(device, stream, last_bytes, Held::default(), Done::Group(core.clone(), part.group));
    device.reactor.push(device, entry.behind_a_copy());
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
    let last_staged = plan.layout.parts.iter().rposition(|part| part.way == Way::Staged);
    for (index, part) in plan.layout.parts.iter().enumerate() {
        let (held, from) = match part.way {
            Way::Direct | Way::Rows | Way::Fetched => direct(batch, plan, index),
            Way::Written => {
                // SAFETY: the block is the host's memory and belongs to the batch, of which nobody reads a part that was
                // not sent.
                unsafe { fill(batch, plan, index, part.start, part.end, core.address(part.start)) };
                device.counters.gathered.fetch_add(part.bytes() as u64, Ordering::Relaxed);
                (Held::default(), From::Written)
            }
            Way::Staged => {
                // SAFETY: the segment is ours until it is released, and long enough for all staged parts.
                unsafe { fill(batch, plan, index, part.start, part.end, src) };
                device.counters.gathered.fetch_add(part.bytes() as u64, Ordering::Relaxed);
                let from = src.cast_const();
                src = src.wrapping_add(part.bytes().next_multiple_of(crate::plan::ALIGN));
                let segment = if last_staged == Some(index) { segment.take() } else { None };
                (Held { segment, source: None }, From::Dense(from))
            }
        };
        let piece = Piece { part: index, start: part.start, end: part.end, from, held, plan };
        if let Err(error) = send(core, piece) {
            let rest = Held { segment, source: None };
            if !rest.is_empty() {
                device.orphan(device.copy_stream.id(), rest);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Whether all of a batch is one part that goes through staging.
pub(super) fn is_one_staged_part(plan: &Plan) -> bool {
    matches!(plan.layout.parts.as_slice(), [part] if part.way == Way::Staged)
}

/// Stages a batch of one part, which is enqueued later.
pub(super) fn parcel(core: &BatchOwner, batch: HostBatch, plan: &Plan, segment: Segment) -> Parcel {
    let Part { group, ref fields, start, end, .. } = plan.layout.parts[0];
    let device = &core.device;
    // SAFETY: the segment is ours until it is released, and as long as the part.
    unsafe { fill(&batch, plan, 0, start, end, device.engine.address(segment.offset)) };
    device.counters.gathered.fetch_add((end - start) as u64, Ordering::Relaxed);
    Parcel { core: core.clone(), batch, group, fields: fields.clone(), start, end, segment }
}

/// Bytes of a parcel's segment: as many as of its block, where that lies beside others.
pub(super) fn parcel_bytes(core: &BatchOwner, plan: &Plan) -> usize {
    let is_beside_others = core.device.admission.is_in_arena(core.address(0));
    core.class().filter(|_| is_beside_others).unwrap_or_else(|| segment_bytes(plan))
}

/// Bytes of a segment that holds all staged parts of a plan.
pub(super) fn segment_bytes(plan: &Plan) -> usize {
    let staged = plan.layout.parts.iter().filter(|part| part.way == Way::Staged);
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
    let (held, from) = match segment {
        Some(segment) => {
            let src = device.engine.address(segment.offset).cast_const();
            (Held { segment: Some(segment), source: None }, From::Dense(src))
        }
        None if staged.plan.layout.parts[part].way == Way::Written => (Held::default(), From::Written),
        None => direct(&staged.batch, &staged.plan, part),
    };
    if let Some(error) = device.lost().or_else(|| staged.core.failure().cloned()) {
        held.let_go(device, device.is_lost());
        return Err(error);
    }
    send(&staged.core, Piece { part, start, end, from, held, plan: &staged.plan })
}

fn direct<'a>(batch: &'a HostBatch, plan: &'a Plan, part: usize) -> (Held, From<'a>) {
    let part = &plan.layout.parts[part];
    let array = plan.sent(batch, part.fields.start);
    let from = match array.contiguous_bytes() {
        Some(src) => From::Dense(src),
        None if part.way == Way::Fetched => From::Fetched(array),
        None => From::Rows(array),
    };
    (Held { segment: None, source: Some((array.owner().clone(), part.bytes())) }, from)
}
