//! Drivers with the call for many copies in its first form, in its second, and without it.

use std::fs;

use libloading::Library;

use super::Bed;
use super::pitched::{Shape, calls_for};
use super::stand_in::StandIn;
use crate::backend::cuda::batch::BatchCopy;
use crate::backend::cuda::driver::library;
use crate::backend::cuda::pitched::RowCopies;

const TWO: [Shape; 2] = [[9, 1, 9, 1, 1], [5, 1, 5, 1, 1]];

/// What is found in a copy of the stand-in that lacks those functions; `None` where the stand-in was not built.
fn found_without(symbols: &[&str]) -> Option<(BatchCopy, Library)> {
    let mut bytes = fs::read(StandIn::path()?).unwrap();
    for symbol in symbols {
        let wanted = [b"\0", symbol.as_bytes(), b"\0"].concat();
        let places: Vec<usize> =
            (0..bytes.len() - wanted.len()).filter(|at| bytes[*at..].starts_with(&wanted)).collect();
        places.into_iter().for_each(|at| bytes[at + 1] = b'x');
    }
    let path = std::env::temp_dir().join(format!("inflight-batch-{}-{}.so", std::process::id(), symbols.len()));
    fs::write(&path, bytes).unwrap();
    // SAFETY: the library does nothing when it is loaded.
    let library = unsafe { Library::new(&path) }.unwrap();
    fs::remove_file(&path).unwrap();
    Some((BatchCopy::find(&library), library))
}

#[test]
fn the_newest_form_that_the_driver_has_is_taken() {
    let Some((found, _library)) = found_without(&[]) else { return };
    assert!(matches!(found, BatchCopy::Second(_)), "{found:?}");
    let Some((found, _library)) = found_without(&["cuMemcpyBatchAsync_v2"]) else { return };
    assert!(matches!(found, BatchCopy::First(_)), "{found:?}");
    let Some((found, _library)) = found_without(&["cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync"]) else { return };
    assert!(found.is_absent(), "{found:?}");
}

#[test]
fn the_first_form_copies_as_well() {
    let Some(mut bed) = Bed::new(|_| {}) else { return };
    let driver = bed.backend.context.driver;
    let library = library().unwrap();
    // SAFETY: the signature is the one that this name was published with.
    let Ok(first) = (unsafe { library.get(b"cuMemcpyBatchAsync") }) else { return };
    let first = BatchCopy::First(*first);
    bed.backend.rows = RowCopies::new(driver, first, 1 << 30);
    let calls = calls_for(&bed, &TWO);
    assert!(calls.is_none_or(|calls| calls == [0, 1, 0, 0, 0]), "{calls:?}");
}

#[test]
fn without_the_call_each_copy_is_one_of_its_own() {
    let Some(mut bed) = Bed::new(|_| {}) else { return };
    bed.backend.rows = RowCopies::new(bed.backend.context.driver, BatchCopy::Absent, 1 << 30);
    let calls = calls_for(&bed, &TWO);
    assert!(calls.is_none_or(|calls| calls == [0, 0, 2, 0, 0]), "{calls:?}");
}
