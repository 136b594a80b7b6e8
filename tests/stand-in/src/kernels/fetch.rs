//! The kernels of the crate's `fetch.cu`, which says more: pieces of page-locked memory that the GPU reads by itself.

use super::{Kernel, Launch, Outcome};

/// The CPU version of one of the kernels here.
pub(crate) fn find(name: &str) -> Option<Kernel> {
    Some(match name {
        "fetch_4" => |launch| ran(fetch(launch, 4, 4)),
        "fetch_16" => |launch| ran(fetch(launch, 16, 16)),
        "fetch_anywhere_16" => |launch| ran(fetch(launch, 16, 1)),
        _ => return None,
    })
}

/// As for the other kernels: what was invalid is known to the launch.
fn ran(_: Option<()>) -> Outcome {
    Outcome::done()
}

/// `fetch_4(u64 dst, Pieces pieces)`, and the others: rows of whole units, which begin at multiples of so many bytes.
fn fetch(launch: &Launch<'_>, unit: u64, begins: u64) -> Option<()> {
    let (mut to, pieces) = (launch.u64_at(0), launch.bytes_at(1));
    let long = |at: usize| Some(u64::from_le_bytes(pieces.get(at..at + 8)?.try_into().ok()?));
    let word = |at: usize| Some(u64::from(u32::from_le_bytes(pieces.get(at..at + 4)?.try_into().ok()?)));
    let (pitch, plane) = (long(0)?, long(8)?);
    let (width, rows, planes, count) = (word(16)?, word(20)?, word(24)?, word(28)?);
    let bytes = usize::try_from(width * unit).ok()?;
    for piece in 0..usize::try_from(count / (width * rows * planes)).ok()? {
        let from = long(32 + 8 * piece)?;
        for row in (0..planes).flat_map(|z| (0..rows).map(move |y| from + z * plane + y * pitch)) {
            // A GPU reads and writes whole units only: elsewhere is a fault.
            let row = if row.is_multiple_of(begins) && to.is_multiple_of(unit) { row } else { 0 };
            if !launch.copy(row, to, bytes) {
                return None;
            }
            to += width * unit;
        }
    }
    Some(())
}
