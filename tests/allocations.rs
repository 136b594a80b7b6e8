//! How many allocations a batch costs in steady state.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![expect(unsafe_code, reason = "counts what the allocator is asked for")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Device};
use ndarray::ArcArray1;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations a batch on the consumer's thread: the array's owner, what it is a view of, the batch on the device, and
/// `buffered`'s own node.
const A_BATCH: f64 = 4.0;

#[test]
fn a_small_batch_costs_four_allocations() {
    let device = Device::host().unwrap();
    let array = ArcArray1::from_elem(4096, 7_u8);
    let run = |batches: usize| {
        block_on(async {
            let source = stream::iter(0..batches).map(|_| ("x", array.clone()));
            let mut transfers = source.to_device(&device).buffered(8);
            while transfers.try_next().await.unwrap().is_some() {}
        });
    };
    run(100);
    let before = COUNT.with(Cell::get);
    run(10_000);
    let a_batch = (COUNT.with(Cell::get) - before) as f64 / 10_000.0;
    assert!(a_batch <= A_BATCH + 0.01, "{a_batch} allocations a batch");
    assert!(a_batch > 1.0, "nothing was counted: {a_batch}");
}
