//! Contexts: counted, current by thread, and gone with all that is theirs.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::thread;

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, ok};

fn current() -> usize {
    let mut context = usize::MAX;
    ok(cu!(cuCtxGetCurrent(&raw mut context)));
    context
}

#[test]
fn a_primary_context_ends_with_its_last_release() {
    let bed = Bed::by_hand();
    let (mut first, mut second, mut stream) = (0, 0, 0);
    ok(cu!(cuDevicePrimaryCtxRetain(&raw mut first, 1)));
    ok(cu!(cuDevicePrimaryCtxRetain(&raw mut second, 1)));
    assert_eq!(first, second);
    assert_eq!(counter("contexts"), 2);
    ok(cu!(cuDevicePrimaryCtxRelease_v2(1)));
    ok(cu!(cuCtxPushCurrent_v2(first)));
    ok(cu!(cuStreamCreate(&raw mut stream, 1)));
    ok(cu!(cuDevicePrimaryCtxRelease_v2(1)));
    assert_eq!((counter("contexts"), counter("streams")), (1, 0));
    assert_eq!(cu!(cuStreamCreate(&raw mut stream, 1)), 709);
    assert_eq!(cu!(cuCtxSetCurrent(first)), 709);
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(1)), 201);
    assert_eq!(counter("violations"), 3);
    ok(cu!(cuCtxPopCurrent_v2(std::ptr::null_mut())));
    assert_eq!(current(), bed.context);
}

#[test]
fn what_is_current_is_each_threads_own() {
    let bed = Bed::by_hand();
    let context = bed.context;
    thread::spawn(move || {
        assert_eq!(current(), 0);
        let mut event = 0;
        assert_eq!(cu!(cuEventCreate(&raw mut event, 2)), 201);
        assert_eq!(cu!(cuCtxPopCurrent_v2(std::ptr::null_mut())), 201);
        ok(cu!(cuCtxPushCurrent_v2(context)));
        ok(cu!(cuEventCreate(&raw mut event, 2)));
        let mut popped = 0;
        ok(cu!(cuCtxPopCurrent_v2(&raw mut popped)));
        assert_eq!((popped, current()), (context, 0));
    })
    .join()
    .unwrap();
    assert_eq!(counter("violations"), 2);
}

#[test]
fn all_of_a_context_goes_with_it() {
    let bed = Bed::by_hand();
    let mut other = 0;
    ok(cu!(cuCtxCreate_v4(&raw mut other, std::ptr::null_mut(), 0, 0)));
    let (stream, memory, host) = (bed.stream(), bed.device(8), bed.host(&[1; 8]));
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, host.address, 8, stream)));
    let _event = bed.recorded(stream);
    let _kernel = bed.kernel("spin", &["u64"]);
    let live = ["streams", "events", "modules", "device_blocks", "host_blocks", "pending"];
    assert_eq!(live.map(counter), [1, 1, 1, 1, 1, 2]);
    ok(cu!(cuCtxDestroy_v2(other)));
    assert_eq!(live.map(counter), [0; 6]);
    assert_eq!(current(), bed.context);
    assert_eq!(cu!(cuStreamQuery(stream)), 400);
}
