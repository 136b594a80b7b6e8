//! [`Copiers`]: the bare loop that staging is held against: threads that `memcpy` into page-locked memory, and the driver's
//! copies behind them.
#![expect(unsafe_code, reason = "writes page-locked memory by address")]

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use inflight::cudarc::driver::CudaContext;

use super::raw::Raw;
use super::rig::Outcome;

/// Bytes that a thread copies at a time, and how many such the page-locked memory has: as staging does by default.
const PIECE: usize = 4 << 20;
const SLOTS: usize = 16;
/// Threads where no other number was asked for.
const THREADS: usize = 12;

/// Page-locked memory in which no batch, order or owner is looked after.
pub(crate) struct Copiers {
    raw: Raw,
    threads: usize,
}

/// How far the pieces of a run are.
struct Progress {
    next: AtomicUsize,
    copied: Vec<AtomicBool>,
    /// So many have left the page-locked memory.
    sent: AtomicUsize,
}

impl Copiers {
    pub(crate) fn new(context: &Arc<CudaContext>, threads: Option<usize>) -> Outcome<Self> {
        Ok(Self { raw: Raw::new(context, PIECE, SLOTS)?, threads: threads.unwrap_or(THREADS) })
    }

    /// What it is, in words.
    pub(crate) fn name(&self) -> String {
        format!("bare memcpy by {} threads and copies", self.threads)
    }

    /// Sends all whole pieces of `source`, again and again until they are `bytes`. Seconds in all.
    pub(crate) fn send<T: Copy + Sync>(&self, source: &[T], bytes: usize) -> Outcome<f64> {
        let pieces: Vec<&[T]> = source.chunks_exact(PIECE / size_of::<T>()).collect();
        if pieces.is_empty() {
            return Err("the source is shorter than a piece".into());
        }
        let count = bytes.div_ceil(PIECE);
        let begun = Instant::now();
        let copied = (0..count).map(|_| AtomicBool::new(false)).collect();
        let progress = Progress { next: AtomicUsize::new(0), copied, sent: AtomicUsize::new(0) };
        let slots: Vec<usize> = (0..SLOTS).map(|slot| self.raw.host(slot).expose_provenance()).collect();
        thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| progress.copy(&pieces, &slots));
            }
            let sent = (0..count).try_for_each(|number| self.send_one(&progress, number));
            // Nobody is left to wait for.
            progress.sent.store(count, Ordering::Release);
            sent
        })?;
        (0..SLOTS.min(count)).try_for_each(|slot| self.raw.spin(slot))?;
        Ok(begun.elapsed().as_secs_f64() * bytes as f64 / (count * PIECE) as f64)
    }

    fn send_one(&self, progress: &Progress, number: usize) -> Outcome<()> {
        loop {
            let mut sent = progress.sent.load(Ordering::Relaxed);
            while sent < number && self.raw.is_done(sent % SLOTS)? {
                sent += 1;
            }
            progress.sent.store(sent, Ordering::Release);
            if progress.copied[number].load(Ordering::Acquire) {
                break;
            }
            spin_loop();
        }
        self.raw.upload(number % SLOTS)?;
        self.raw.record(number % SLOTS, 0)
    }
}

impl Progress {
    fn copy<T: Copy>(&self, pieces: &[&[T]], slots: &[usize]) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(copied) = self.copied.get(number) else { return };
            while number >= self.sent.load(Ordering::Acquire) + SLOTS {
                spin_loop();
            }
            let (from, to) =
                (pieces[number % pieces.len()], std::ptr::with_exposed_provenance_mut(slots[number % SLOTS]));
            // SAFETY: a slot has room for a piece; it is this thread's from when its last copy was done until this is stored.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
            copied.store(true, Ordering::Release);
        }
    }
}

/// [`Copiers::send`], where there are some.
pub(crate) fn bare_copies<T: Copy + Sync>(copiers: Option<&Copiers>, source: &[T], bytes: usize) -> Outcome<f64> {
    copiers.ok_or("a bare loop is a GPU's")?.send(source, bytes)
}
