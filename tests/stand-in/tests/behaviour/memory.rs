//! Device memory: its limit, its pools, and what happens to what is freed too early.
#![expect(unsafe_code, reason = "makes driver calls")]

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, fail, ok, violations};

fn pool() -> usize {
    let (mut pool, properties) = (0, [1_i32, 0, 1, 0, 0, 0, 0, 0]);
    ok(cu!(cuMemPoolCreate(&raw mut pool, properties.as_ptr().cast())));
    pool
}

fn free_memory() -> usize {
    let (mut free, mut total) = (0, 0);
    ok(cu!(cuMemGetInfo_v2(&raw mut free, &raw mut total)));
    free
}

#[test]
fn memory_ends() {
    let bed = Bed::by_hand();
    stand_in_memory(1000);
    let (first, mut second) = (bed.device(600), 0);
    assert_eq!(free_memory(), 400);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut second, 500)), 2);
    assert_eq!((counter("device_bytes"), counter("device_blocks")), (600, 1));
    ok(cu!(cuMemFree_v2(first)));
    ok(cu!(cuMemAlloc_v2(&raw mut second, 500)));
    assert_eq!(counter("violations"), 0);
}

#[test]
fn what_is_freed_is_unknown() {
    let bed = Bed::by_hand();
    let memory = bed.device(8);
    assert_eq!(memory % 256, 0);
    ok(cu!(cuMemFree_v2(memory)));
    assert_eq!(cu!(cuMemFree_v2(memory)), 1);
    assert_eq!(cu!(cuMemsetD8_v2(memory, 0, 8)), 1);
    assert_eq!(counter("violations"), 2);
}

#[test]
fn frees_in_use_are_found() {
    let bed = Bed::by_hand();
    let (stream, other) = (bed.stream(), bed.stream());
    let (memory, host, mut vector) = (bed.device(4), bed.host(&[1; 4]), vec![1_u8; 4]);
    ok(cu!(cuMemHostRegister_v2(vector.as_mut_ptr() as usize, 4, 0)));
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, host.address, 4, stream)));
    ok(cu!(cuMemcpyDtoHAsync_v2(vector.as_mut_ptr() as usize, memory, 4, stream)));
    ok(cu!(cuMemFreeHost(host.address)));
    assert_eq!(counter("violations"), 1);
    ok(cu!(cuMemHostUnregister(vector.as_ptr() as usize)));
    assert_eq!(counter("violations"), 2);
    ok(cu!(cuMemFreeAsync(memory, other)));
    assert_eq!(counter("violations"), 3);
    assert!(violations().lines().all(|line| line.contains("freed while in use")), "{}", violations());
    assert_eq!(stand_in_advance(5), 2);
    assert_eq!(vector, [1; 4]);
}

#[test]
fn a_source_that_was_freed_in_use_poisons_its_target() {
    let bed = Bed::by_hand();
    let (stream, memory, host) = (bed.stream(), bed.device(4), bed.host(&[1; 4]));
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, host.address, 4, stream)));
    ok(cu!(cuMemFreeHost(host.address)));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(bed.content(memory, 4), [0xDD; 4]);
}

#[test]
fn a_free_behind_its_users_is_none_in_use() {
    let bed = Bed::by_hand();
    let (first, second, host, mut memory) = (bed.stream(), bed.stream(), bed.host(&[1; 4]), 0);
    ok(cu!(cuMemAllocAsync(&raw mut memory, 4, first)));
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, host.address, 4, first)));
    let event = bed.recorded(first);
    ok(cu!(cuStreamWaitEvent(second, event, 0)));
    ok(cu!(cuMemFreeAsync(memory, second)));
    assert_eq!(counter("violations"), 0, "{}", violations());
    assert_eq!(counter("device_bytes"), 0);
    // Freed in its stream's order, it is not for new work.
    assert_eq!(cu!(cuMemsetD8Async(memory, 0, 4, first)), 1);
    assert_eq!(stand_in_advance(9), 4);
}

#[test]
fn a_free_on_an_idle_stream_is_done_at_once() {
    let bed = Bed::by_hand();
    let (stream, pool, mut memory) = (bed.stream(), pool(), 0);
    ok(cu!(cuMemAllocFromPoolAsync(&raw mut memory, 100, pool, stream)));
    assert_eq!(memory % 512, 0);
    ok(cu!(cuMemFreeAsync(memory, stream)));
    ok(cu!(cuStreamSynchronize(stream)));
    assert_eq!(counter("pending"), 0);
}

#[test]
fn a_pool_keeps_what_its_threshold_says() {
    let bed = Bed::by_hand();
    stand_in_memory(1000);
    let (stream, pool, mut memory) = (bed.stream(), pool(), 0);
    let (mut keep, mut reserved) = (150_u64, 0_u64);
    ok(cu!(cuMemPoolSetAttribute(pool, 4, (&raw mut keep).cast())));
    ok(cu!(cuMemAllocFromPoolAsync(&raw mut memory, 400, pool, stream)));
    ok(cu!(cuMemFreeAsync(memory, stream)));
    assert_eq!(free_memory(), 600);
    ok(cu!(cuStreamSynchronize(stream)));
    assert_eq!(free_memory(), 850);
    ok(cu!(cuMemPoolGetAttribute(pool, 5, (&raw mut reserved).cast())));
    assert_eq!(reserved, 150);
    // What a pool holds for nothing is given up before memory ends.
    let other = bed.device(1000);
    ok(cu!(cuMemFree_v2(other)));
    ok(cu!(cuMemPoolDestroy(pool)));
    assert_eq!(cu!(cuMemAllocFromPoolAsync(&raw mut memory, 1, pool, stream)), 400);
}

#[test]
fn a_call_that_fails_by_order_allocates_nothing() {
    let bed = Bed::by_hand();
    fail("cuMemAlloc_v2", 2, 2, 0);
    let (_first, mut second) = (bed.device(8), 0);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut second, 8)), 2);
    assert_eq!((second, counter("device_blocks")), (0, 1));
    assert_eq!(stand_in_faults_left(), 0);
}
