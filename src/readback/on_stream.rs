//! Reads that are enqueued on the user's own stream inside the call, so that the source may change right after it.
//!
//! Small ones go straight into page-locked memory; larger ones into a block of ours, which the read stream brings home.
#![expect(unsafe_code, reason = "copies are enqueued by address")]

use std::sync::Arc;

use smallvec::smallvec;

use super::{Origin, ReadCore};
use crate::admission::{Block, Decision, Ticket};
use crate::backend::{Copy, Direction, StreamHandle};
use crate::batch::{BatchCore, BatchOwner, Dims, Name};
use crate::device::Shared;
use crate::dtype::Dtype;
use crate::error::{Error, Result, Returned};
use crate::memory::allocate::{block_for, out_of_memory};
use crate::memory::blocks::class_of;
use crate::staging::{PinnedBlock, Purpose, Taken};

/// Up to this many bytes go straight into page-locked memory, in slots of this size.
pub(crate) const SMALL: usize = 64 << 10;

/// Which way `bytes` go.
pub(crate) const fn direction(bytes: usize) -> Direction {
    if bytes <= SMALL { Direction::DeviceToHost } else { Direction::DeviceToDevice }
}

/// What is read, and from where.
pub(crate) trait Source {
    /// Enqueues a copy of the source to `dst` on `stream`.
    ///
    /// # Safety
    ///
    /// `dst` is valid for writes of the source's bytes until an event recorded on `stream` after this call has fired.
    unsafe fn enqueue(&self, device: &Shared, stream: &StreamHandle, dst: *mut u8) -> Result<()>;
}

/// Room for what is read.
#[derive(Debug)]
pub(crate) enum Room {
    Nothing,
    Slot(PinnedBlock),
    Block(Block),
}

/// Room for `bytes`, if there is some at this moment.
pub(crate) fn try_room(device: &Arc<Shared>, bytes: usize) -> Result<Room> {
    device.check()?;
    let busy = Error::Busy { what: "read-back memory", bytes, batch: Returned::default() };
    if bytes == 0 {
        return Ok(Room::Nothing);
    }
    if bytes <= SMALL {
        return match device.pinned.try_take(device, Purpose::Read, SMALL)? {
            Taken::Block(block) => Ok(Room::Slot(block)),
            Taken::Full => Err(busy),
            Taken::Reserved(block) => {
                // The next call finds it.
                device.engine.run(Box::new(move || drop(block.fill())));
                Err(busy)
            }
        };
    }
    let class = class_of(bytes).ok_or_else(|| busy.clone())?;
    match device.admission.admit(&device.reads, class, &mut Ticket::default(), None, device.clock.now()) {
        Decision::Refused(error) => Err(error),
        Decision::Wait => Err(busy),
        Decision::Granted(mut grant) => {
            device.admission.operation_done();
            if let Some(memory) = grant.block.take() {
                device.free_condemned_later(&grant);
                return Ok(Room::Block(Block { memory, pipeline: grant.pipeline }));
            }
            let grower = device.clone();
            device.engine.run(Box::new(move || match block_for(&grower, &mut grant) {
                Ok(memory) => grower.release(Block { memory, pipeline: grant.pipeline }),
                Err(_) => grower.admission.cancel(grant.pipeline, grant.bytes),
            }));
            Err(busy)
        }
    }
}

/// Room for `bytes`, when there is some.
pub(crate) async fn room(device: &Arc<Shared>, bytes: usize) -> Result<Room> {
    device.check()?;
    if bytes == 0 {
        return Ok(Room::Nothing);
    }
    if bytes <= SMALL {
        return device.pinned.take(device, Purpose::Read, SMALL).await.map(Room::Slot);
    }
    let overflow = || Error::BatchTooLarge { bytes, limit: device.admission.bytes().limit, batch: Returned::default() };
    let class = class_of(bytes).ok_or_else(overflow)?;
    let mut grant = crate::device::admitted(device, &device.reads, class).await?;
    device.admission.operation_done();
    let (done, filled) = futures::channel::oneshot::channel();
    let grower = device.clone();
    device.engine.run(Box::new(move || {
        let found = block_for(&grower, &mut grant).map_err(|fault| {
            grower.admission.cancel(grant.pipeline, grant.bytes);
            out_of_memory(&grower, fault, grant.bytes)
        });
        let block = found.map(|memory| Block { memory, pipeline: grant.pipeline });
        // Nobody may be waiting any more: then the block goes back where it came from.
        if let Err(Ok(block)) = done.send(block) {
            grower.release(block);
        }
    }));
    let block = filled.await.unwrap_or_else(|_| Err(device.lost().unwrap_or_else(overflow)))?;
    Ok(Room::Block(block))
}

/// Enqueues the read on `stream` into `room`.
pub(crate) fn read(
    device: &Arc<Shared>,
    layout: (Dtype, Dims, usize),
    name: Name,
    source: &dyn Source,
    stream: &StreamHandle,
    room: Room,
) -> Result<Arc<ReadCore>> {
    match room {
        Room::Nothing => {
            let core = ReadCore::new(device, layout, name, Origin::Elsewhere, smallvec![]);
            ReadCore::start(smallvec![core.clone()]);
            Ok(core)
        }
        Room::Slot(slot) => {
            // SAFETY: invariant 1: the slot goes into the read-back, which keeps it until the event behind the copy fired.
            unsafe { source.enqueue(device, stream, slot.ptr()) }?;
            let core = ReadCore::new(device, layout, name, Origin::Elsewhere, smallvec![]);
            if let Err(error) = core.follow(slot, stream) {
                core.finish(Err(error.clone()));
                return Err(error);
            }
            Ok(core)
        }
        Room::Block(block) => {
            // SAFETY: invariant 1: the block goes into the read-back, or is quarantined.
            if let Err(error) = unsafe { source.enqueue(device, stream, block.memory.ptr) } {
                device.release(block);
                return Err(error);
            }
            let event = match device.record(stream) {
                Ok(event) => event,
                Err(error) => {
                    device.quarantine(block);
                    return Err(crate::reactor::unrecorded(error));
                }
            };
            let core = ReadCore::new(device, layout, name, Origin::Block(block), smallvec![event]);
            ReadCore::start(smallvec![core.clone()]);
            Ok(core)
        }
    }
}

/// A field that the lease of `stream` writes to.
struct FieldSource<'a>(&'a BatchCore, usize);

impl Source for FieldSource<'_> {
    unsafe fn enqueue(&self, device: &Shared, stream: &StreamHandle, dst: *mut u8) -> Result<()> {
        let field = &self.0.layout.fields[self.1];
        let (src, bytes) = (self.0.address(field.offset).cast_const(), field.bytes);
        let direction = direction(bytes);
        // SAFETY: invariant 3 keeps the field until work on the lease's stream, this copy among it, is done; `dst` is the
        // caller's to answer for.
        let enqueued = unsafe {
            device.backend.copy(stream, Copy { dst, src, bytes, direction }, &self.0.layout.names[self.1..=self.1])
        };
        enqueued.map_err(|fault| device.fault(fault))
    }
}

/// Reads a field on the stream of the lease that writes to it.
pub(crate) fn read_field(core: &BatchOwner, place: usize, stream: &StreamHandle) -> Result<Arc<ReadCore>> {
    let field = &core.layout.fields[place];
    let layout = (field.dtype, field.dims.clone(), field.bytes);
    let room = try_room(&core.device, field.bytes)?;
    read(&core.device, layout, core.layout.names[place].clone(), &FieldSource(core, place), stream, room)
}
