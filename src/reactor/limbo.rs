//! [`Limbo`]: blocks whose owners are gone and whose events have not all fired (invariant 3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use crate::admission::Block;
use crate::backend::Event;
use crate::device::{Active, Shared};
use crate::sync::{Mutex, lock};

/// Blocks that wait for the work which still touches them.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    entries: Mutex<Vec<Retired>>,
    count: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct Retired {
    block: Block,
    events: SmallVec<[Event; 2]>,
    /// While it waits: the device stays for it, and who drains waits for it.
    active: Option<Active>,
}

/// What became of a block.
enum Fate {
    Free,
    Waits,
    Unknown,
}

impl Limbo {
    /// Takes a block whose last owner is gone. It goes on at once if nothing touches it any more.
    pub(crate) fn retire(&self, device: &Arc<Shared>, block: Block, events: SmallVec<[Event; 2]>) {
        let mut retired = Retired { block, events, active: None };
        match retired.ask(device) {
            Fate::Free => device.release(retired.block),
            Fate::Unknown => device.leak(retired.block),
            Fate::Waits => {
                retired.active = Some(Active::new(device));
                self.count.fetch_add(1, Ordering::AcqRel);
                self.bytes.fetch_add(retired.block.memory.bytes, Ordering::AcqRel);
                lock(&self.entries).push(retired);
                device.reactor.notify_by(device.clock.now() + super::pace::LIMBO.0);
            }
        }
    }

    /// Releases the blocks that nothing touches any more. Answers whether there were any.
    ///
    /// The entries are taken out while they are asked: the driver is not called under the lock.
    pub(crate) fn reap(&self, device: &Arc<Shared>) -> bool {
        if self.count() == 0 {
            return false;
        }
        let taken = std::mem::take(&mut *lock(&self.entries));
        let mut waiting = Vec::new();
        let mut moved = false;
        for mut retired in taken {
            let bytes = retired.block.memory.bytes;
            match retired.ask(device) {
                Fate::Waits => {
                    waiting.push(retired);
                    continue;
                }
                Fate::Free => device.release(retired.block),
                Fate::Unknown => device.leak(retired.block),
            }
            moved = true;
            self.count.fetch_sub(1, Ordering::AcqRel);
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            drop(retired.active);
        }
        if !waiting.is_empty() {
            lock(&self.entries).append(&mut waiting);
        }
        moved
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

impl Retired {
    fn ask(&mut self, device: &Shared) -> Fate {
        if device.is_lost() {
            return Fate::Unknown;
        }
        while let Some(event) = self.events.last() {
            match device.query(event) {
                Ok(false) => return Fate::Waits,
                Ok(true) => {}
                // The work ended in an error of its own: the block is no longer touched.
                Err(_) if !device.is_lost() => {}
                Err(_) => return Fate::Unknown,
            }
            if let Some(event) = self.events.pop() {
                device.events.put(event);
            }
        }
        Fate::Free
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use futures::executor::block_on;

    use crate::{ComputeStream, Device};

    #[test]
    fn invariant_12_a_block_in_limbo_keeps_its_device() {
        let device = Device::host().unwrap();
        let Ok(ComputeStream::Host(stream)) = device.compute_stream() else { panic!("the host has host streams") };
        let batch = block_on(async { device.transfer(("x", vec![1_u8; 4096])).await?.await }).unwrap();
        // Until then the reactor may have a share in the batch.
        block_on(device.drain()).unwrap();
        let (go_on, held_up) = mpsc::channel::<()>();
        drop(stream.run(move || held_up.recv()));
        let lease = batch.on(&stream).unwrap();
        lease.view::<u8>("x").unwrap();
        lease.end().unwrap();
        let shared = Arc::downgrade(device.shared());
        drop((batch, device));
        {
            let shared = shared.upgrade().expect("somebody must free the block");
            assert_eq!(shared.limbo.count(), 1);
        }
        go_on.send(()).unwrap();
        while shared.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
