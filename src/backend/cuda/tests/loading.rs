//! Kernels are loaded when a device is opened, or not at all.

use super::Bed;
use crate::backend::cuda::CudaBackend;
use crate::backend::{Backend, Rearrangement, Rearranges};
use crate::dtype::Dtype;
use crate::error::Error;

const CALLS: [&str; 4] = ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuModuleUnload"];

/// The calls while a device is opened, and what it then says of itself.
fn opened(bed: &Bed) -> (Option<[u64; 4]>, Result<Rearranges, Error>) {
    let before = bed.calls(CALLS);
    let backend = CudaBackend::open(0).map_err(|unavailable| unavailable.error);
    let after = bed.calls(CALLS);
    let calls = before.zip(after).map(|(before, after)| std::array::from_fn(|call| after[call] - before[call]));
    (calls, backend.map(|backend| backend.rearranges()))
}

#[test]
fn each_kernel_has_been_launched_when_a_device_is_open() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let (calls, rearranges) = opened(&bed);
    assert_eq!(rearranges.unwrap(), Rearranges::Fast);
    assert!(calls.is_none_or(|calls| calls == [2, 17, 17, 0]), "{calls:?}");
    // The device above is gone.
    if let Some([unloads]) = bed.calls(["cuModuleUnload"]) {
        assert_eq!(unloads, 2);
    }
}

#[test]
fn a_device_that_is_too_old_for_the_kernels_does_all_else() {
    const MAJOR: i32 = 75;
    let Some(bed) = Bed::new(|stand_in| stand_in.attribute(None, MAJOR, 7)) else { return };
    if bed.stand_in.is_none() {
        return;
    }
    assert_eq!(bed.backend.rearranges(), Rearranges::Not);
    let stream = bed.backend.streams().relayout.clone();
    let rearrangement = Rearrangement {
        src: std::ptr::null(),
        dst: std::ptr::null_mut(),
        stored: Dtype::U8,
        shape: [1].as_slice().into(),
        strides: [1].as_slice().into(),
        change: None,
    };
    // SAFETY: nothing is enqueued.
    let refused = unsafe { bed.backend.rearrange(&stream, rearrangement, &[]) };
    assert_eq!(refused.unwrap_err().code, 801);
}

#[test]
fn a_fault_while_kernels_are_loaded_leaves_a_device_without_them() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let Some(stand_in) = bed.stand_in else { return };
    let (none, fast) = (Rearranges::Not, Rearranges::Fast);
    for (function, kth, code, unloads, left) in [
        (CALLS[0], 1, 222, 0, none),
        (CALLS[1], 14, 500, 1, none),
        (CALLS[2], 9, 701, 1, none),
        (CALLS[2], 1, 1, 1, none),
        // Without those that fetch the others are as good.
        (CALLS[0], 2, 222, 0, fast),
        (CALLS[1], 16, 500, 1, fast),
        (CALLS[2], 16, 701, 1, fast),
    ] {
        stand_in.fail(Some(function), kth, code);
        let (calls, rearranges) = opened(&bed);
        assert_eq!(rearranges.unwrap(), left, "{function} {kth} {code}");
        assert_eq!(calls.unwrap()[3], unloads, "what was loaded is unloaded: {function} {kth}");
    }
    for function in CALLS.into_iter().take(3) {
        stand_in.fail(Some(function), 1, 719);
        assert!(opened(&bed).1.unwrap_err().is_fatal(), "{function}");
    }
}
