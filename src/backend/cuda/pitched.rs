//! [`RowCopies`]: copies of rows that lie at even distances, in as few calls of the driver as there can be.
#![expect(unsafe_code, reason = "makes driver calls")]

use cudarc::driver::sys::CUstream;
use smallvec::SmallVec;

use super::batch::{BatchCopy, Pieces};
use super::driver::Driver;
use super::shapes::{BoxCopy, PlaneCopy};
use crate::backend::{Fault, Pitched};
use crate::sync::atomic::{AtomicBool, Ordering};

/// The handles 0 and 1 are names of the legacy default stream.
const LEGACY: usize = 1;
const INVALID_VALUE: i32 = 1;

/// How rows are copied on one device.
#[derive(Debug)]
pub(super) struct RowCopies {
    driver: &'static Driver,
    batch: BatchCopy,
    /// Bytes from one row to the next, and of a row, that the driver takes at most.
    most_pitch: usize,
    /// The driver has the call for many copies, and has not refused it on this device.
    takes_batches: AtomicBool,
}

impl RowCopies {
    pub(super) fn new(driver: &'static Driver, batch: BatchCopy, most_pitch: usize) -> Self {
        Self { driver, batch, most_pitch, takes_batches: AtomicBool::new(!batch.is_absent()) }
    }

    /// Whether many contiguous copies go in one call.
    pub(super) fn takes_many(&self) -> bool {
        self.takes_batches.load(Ordering::Relaxed)
    }

    /// Enqueues all copies. The context is current.
    ///
    /// # Safety
    ///
    /// The contract of `Backend::copy_pitched`; the stream lives.
    pub(super) unsafe fn enqueue(&self, stream: CUstream, copies: &[Pitched]) -> Result<(), Fault> {
        let copies: SmallVec<[Pitched; 8]> = copies.iter().filter(|copy| copy.bytes() > 0).map(flat).collect();
        let are_plain = copies.len() > 1 && copies.iter().all(Pitched::is_contiguous);
        let as_batch = are_plain && stream.addr() > LEGACY && self.takes_batches.load(Ordering::Relaxed);
        if as_batch {
            // SAFETY: the caller's contract.
            match unsafe { self.batch(stream, &copies) } {
                Err(fault) if matches!(fault.code, INVALID_VALUE | Fault::NOT_SUPPORTED) => {}
                done => return done,
            }
        }
        for copy in &copies {
            // SAFETY: the caller's contract.
            unsafe { self.one(stream, copy) }?;
        }
        if as_batch {
            // Each copy is good, so it was the call that the driver does not want.
            self.takes_batches.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for `enqueue`; each copy is contiguous.
    unsafe fn batch(&self, stream: CUstream, copies: &[Pitched]) -> Result<(), Fault> {
        let mut pieces = Pieces::default();
        copies.iter().for_each(|copy| pieces.push(copy.dst, copy.src, copy.width));
        // SAFETY: the caller's contract.
        unsafe { self.batch.enqueue(&pieces, stream) }
    }

    /// # Safety
    ///
    /// As for `enqueue`.
    unsafe fn one(&self, stream: CUstream, copy: &Pitched) -> Result<(), Fault> {
        if copy.is_contiguous() {
            // SAFETY: the caller's contract.
            return unsafe { self.row(stream, copy, 0, 0) };
        }
        if copy.pitch > self.most_pitch || copy.width > self.most_pitch {
            for (plane, row) in (0..copy.planes).flat_map(|plane| (0..copy.rows).map(move |row| (plane, row))) {
                // SAFETY: the caller's contract.
                unsafe { self.row(stream, copy, plane, row) }?;
            }
            return Ok(());
        }
        if copy.planes == 1 {
            let plane = PlaneCopy::of(copy);
            // SAFETY: the caller's contract; the description is read during the call.
            return unsafe { self.driver.copy_plane(&raw const plane, stream) };
        }
        let planes = BoxCopy::of(copy);
        // SAFETY: as above.
        unsafe { self.driver.copy_box(&raw const planes, stream) }
    }

    /// Enqueues one row of a copy.
    ///
    /// # Safety
    ///
    /// As for `enqueue`; the copy has that row.
    unsafe fn row(&self, stream: CUstream, copy: &Pitched, plane: usize, row: usize) -> Result<(), Fault> {
        let from = copy.src.wrapping_add((plane * copy.height + row) * copy.pitch);
        let to = copy.dst.wrapping_add((plane * copy.rows + row) * copy.width);
        // SAFETY: the caller's contract.
        unsafe { self.driver.copy_to_device(to.addr() as u64, from.cast(), copy.width, stream) }
    }
}

/// The same bytes in as few dimensions as they have.
fn flat(copy: &Pitched) -> Pitched {
    let mut flat = *copy;
    if flat.planes > 1 && flat.rows == 1 {
        // Planes of one row each are rows.
        (flat.pitch, flat.rows) = (flat.pitch * flat.height, flat.planes);
        (flat.planes, flat.height) = (1, flat.rows);
    } else if flat.planes > 1 && flat.rows == flat.height {
        // No rows are left out between planes.
        flat.rows *= flat.planes;
        (flat.planes, flat.height) = (1, flat.rows);
    }
    if flat.planes == 1 && flat.width == flat.pitch {
        (flat.width, flat.rows, flat.height) = (flat.width * flat.rows, 1, 1);
        flat.pitch = flat.width;
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::{Pitched, flat};

    fn copy(width: usize, rows: usize, pitch: usize, planes: usize, height: usize) -> Pitched {
        Pitched { dst: std::ptr::null_mut(), src: std::ptr::null(), width, rows, pitch, planes, height }
    }

    #[test]
    fn what_lies_together_is_one_row_and_what_is_even_one_plane() {
        for (given, wanted) in [
            (copy(6, 1, 6, 1, 1), copy(6, 1, 6, 1, 1)),
            (copy(6, 4, 6, 1, 4), copy(24, 1, 24, 1, 1)),
            (copy(6, 4, 6, 3, 4), copy(72, 1, 72, 1, 1)),
            (copy(6, 4, 10, 1, 4), copy(6, 4, 10, 1, 4)),
            (copy(6, 4, 10, 3, 4), copy(6, 12, 10, 1, 12)),
            (copy(6, 1, 10, 3, 5), copy(6, 3, 50, 1, 3)),
            (copy(6, 1, 6, 3, 1), copy(18, 1, 18, 1, 1)),
            (copy(6, 4, 6, 3, 5), copy(6, 4, 6, 3, 5)),
            (copy(6, 4, 10, 3, 5), copy(6, 4, 10, 3, 5)),
        ] {
            assert_eq!(flat(&given), wanted, "{given:?}");
        }
    }
}
