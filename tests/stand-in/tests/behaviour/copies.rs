//! Copies read and write when they complete.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::thread;

use inflight_stand_in::*;

use crate::bed::{Bed, counter, cu, ok, violations};

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Plane(Side, Side, usize, usize);
#[repr(C)]
struct Side(usize, usize, i32, usize, u64, usize, usize);

#[test]
fn a_source_that_is_refilled_too_early_shows() {
    let bed = Bed::by_hand();
    let (stream, memory, source) = (bed.stream(), bed.device(4), bed.host(&[1; 4]));
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, source.address, 4, stream)));
    source.fill(&[2; 4]);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(bed.content(memory, 4), [2; 4]);
}

#[test]
fn a_target_is_written_on_completion() {
    let bed = Bed::by_hand();
    let (stream, memory, target) = (bed.stream(), bed.device(4), bed.host(&[0; 4]));
    ok(cu!(cuMemcpyDtoHAsync_v2(target.address, memory, 4, stream)));
    assert_eq!(target.content(), [0; 4]);
    ok(cu!(cuMemsetD8_v2(memory, 9, 4)));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(target.content(), [9; 4]);
}

#[test]
fn memory_that_is_not_page_locked_is_read_at_the_call() {
    let bed = Bed::by_hand();
    let (stream, memory, mut source) = (bed.stream(), bed.device(4), vec![1_u8; 4]);
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, source.as_ptr() as usize, 4, stream)));
    source.fill(2);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(bed.content(memory, 4), [1; 4]);
    assert_eq!(counter("pageable_copies"), 2);
}

#[test]
fn a_copy_to_memory_that_is_not_page_locked_blocks() {
    let bed = Bed::by_hand();
    let (stream, memory, context) = (bed.stream(), bed.device(4), bed.context);
    ok(cu!(cuMemsetD8_v2(memory, 3, 4)));
    let reader = thread::spawn(move || {
        ok(cu!(cuCtxSetCurrent(context)));
        let mut target = vec![0_u8; 4];
        ok(cu!(cuMemcpyDtoHAsync_v2(target.as_mut_ptr() as usize, memory, 4, stream)));
        target
    });
    while counter("pending") == 0 {
        thread::yield_now();
    }
    assert!(!reader.is_finished());
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(reader.join().unwrap(), [3; 4]);
}

#[test]
fn registered_memory_is_page_locked_while_it_is_registered() {
    let bed = Bed::by_hand();
    let (stream, memory, mut source) = (bed.stream(), bed.device(4), vec![1_u8; 4]);
    let address = source.as_ptr() as usize;
    ok(cu!(cuMemHostRegister_v2(address, 4, 0)));
    assert_eq!((counter("host_bytes"), counter("host_blocks")), (4, 1));
    ok(cu!(cuMemcpyHtoDAsync_v2(memory, address, 4, stream)));
    source.fill(2);
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(bed.content(memory, 4), [2; 4]);
    assert_eq!(cu!(cuMemHostRegister_v2(address, 1, 0)), 712);
    ok(cu!(cuMemHostUnregister(address)));
    assert_eq!(counter("violations"), 0);
    assert_eq!(cu!(cuMemHostUnregister(address)), 713);
    assert_eq!(counter("violations"), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn memory_that_can_not_be_written_to_is_registered_if_shared_and_as_read_only() {
    static TEXT: &str = "a constant";
    let _bed = Bed::by_hand();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    // SAFETY: nobody writes to a program that runs.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    let address = map.as_ptr() as usize;
    assert_eq!(cu!(cuMemHostRegister_v2(address, 4096, 1)), 1);
    ok(cu!(cuMemHostRegister_v2(address, 4096, 9)));
    ok(cu!(cuMemHostUnregister(address)));
    assert_eq!(counter("violations"), 0);
    assert_eq!(cu!(cuMemHostRegister_v2(TEXT.as_ptr() as usize, TEXT.len(), 8)), 1);
    assert_eq!(counter("violations"), 1);
    assert_eq!(cu!(cuMemHostRegister_v2(address, 4096, 16)), 1);
    assert_eq!(counter("violations"), 2);
}

#[test]
fn copies_past_an_end_are_refused() {
    let bed = Bed::by_hand();
    let (stream, memory, host) = (bed.stream(), bed.device(64), bed.host(&[1; 128]));
    for (to, bytes) in [(memory, 65), (memory + 1, 64), (memory + 64, 1), (memory - 1, 2), (0, 1)] {
        assert_eq!(cu!(cuMemcpyHtoDAsync_v2(to, host.address, bytes, stream)), 1);
        assert_eq!(cu!(cuMemsetD8Async(to, 0, bytes, stream)), 1);
    }
    assert_eq!(cu!(cuMemcpyHtoDAsync_v2(memory, host.address + 100, 64, stream)), 1);
    assert_eq!(cu!(cuMemcpyDtoDAsync_v2(memory, host.address as u64, 4, stream)), 1);
    assert_eq!((counter("violations"), counter("pending")), (12, 0), "{}", violations());
}

#[test]
fn an_address_says_where_memory_is() {
    let bed = Bed::by_hand();
    let (stream, memory, source, target) = (bed.stream(), bed.device(4), bed.host(&[5; 4]), bed.host(&[0; 4]));
    ok(cu!(cuMemcpyAsync(memory, source.address as u64, 4, stream)));
    ok(cu!(cuMemcpyAsync(target.address as u64, memory, 4, stream)));
    assert_eq!(stand_in_advance(2), 2);
    assert_eq!(target.content(), [5; 4]);
    let (mut kind, mut start) = (0_u32, 0_u64);
    ok(cu!(cuPointerGetAttribute((&raw mut kind).cast(), 2, memory + 1)));
    ok(cu!(cuPointerGetAttribute((&raw mut start).cast(), 11, memory + 1)));
    assert_eq!((kind, start), (2, memory));
}

#[test]
fn a_batch_of_copies_is_one_operation_in_both_its_forms() {
    let bed = Bed::by_hand();
    let (stream, memory, source) = (bed.stream(), bed.device(4), bed.host(&[1, 2, 3, 4]));
    let from = [source.address as u64 + 3, source.address as u64];
    let (to, bytes, attributes, start) = ([memory, memory + 1], [1_usize, 3], [1_i32, 0, 0, 0, 0, 0], [0_usize]);
    let attributes = attributes.as_ptr().cast();
    let (to, from, bytes, start) = (to.as_ptr(), from.as_ptr(), bytes.as_ptr(), start.as_ptr());
    let first = |stream| {
        let mut failed = 0;
        (cu!(cuMemcpyBatchAsync(to, from, bytes, 2, attributes, start, 1, &raw mut failed, stream)), failed)
    };
    let second = |stream| cu!(cuMemcpyBatchAsync_v2(to, from, bytes, 2, attributes, start, 1, stream));
    assert_eq!(first(stream), (0, 0));
    assert_eq!(bed.content(memory, 4), [0xCD; 4]);
    assert_eq!(stand_in_advance(5), 1);
    assert_eq!(bed.content(memory, 4), [4, 1, 2, 3]);
    source.fill(&[5, 6, 7, 8]);
    ok(second(stream));
    assert_eq!(stand_in_advance(5), 1);
    assert_eq!(bed.content(memory, 4), [8, 5, 6, 7]);
    assert_eq!(counter("violations"), 0);
    assert_eq!((first(0), second(0), second(1)), ((1, usize::MAX), 1, 1), "the default stream is refused");
    assert_eq!(counter("violations"), 3);
}

#[test]
fn rows_further_apart_than_the_device_takes_are_refused() {
    let bed = Bed::by_hand();
    let (stream, memory, source) = (bed.stream(), bed.device(4), bed.host(&[1; 12]));
    let plane = |pitch| Plane(Side(0, 0, 1, source.address, 0, 0, pitch), Side(0, 0, 2, 0, memory, 0, 2), 2, 2);
    stand_in_attribute(-1, 11, 8);
    let (near, far) = (plane(8), plane(9));
    ok(cu!(cuMemcpy2DAsync_v2((&raw const near).cast(), stream)));
    assert_eq!(cu!(cuMemcpy2DAsync_v2((&raw const far).cast(), stream)), 1);
    assert!(violations().contains("pitch"), "{}", violations());
}

#[test]
fn a_box_is_copied_plane_by_plane() {
    #[repr(C)]
    struct Side3(usize, usize, usize, usize, i32, usize, u64, usize, usize, usize, usize);
    #[repr(C)]
    struct Planes(Side3, Side3, usize, usize, usize);
    let bed = Bed::by_hand();
    let source = bed.host(&(0..24).collect::<Vec<u8>>());
    let (stream, memory) = (bed.stream(), bed.device(8));
    // Columns 1 and 2 of rows 0 and 1, of two planes of 3 rows of 4.
    let from = Side3(1, 0, 0, 0, 1, source.address, 0, 0, 0, 4, 3);
    let planes = Planes(from, Side3(0, 0, 0, 0, 2, 0, memory, 0, 0, 2, 2), 2, 2, 2);
    ok(cu!(cuMemcpy3DAsync_v2((&raw const planes).cast(), stream)));
    assert_eq!(stand_in_advance(5), 1);
    assert_eq!(bed.content(memory, 8), [1, 2, 5, 6, 13, 14, 17, 18]);
}

#[test]
fn a_plane_is_copied_row_by_row() {
    let bed = Bed::by_hand();
    let source = bed.host(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let (stream, memory) = (bed.stream(), bed.device(4));
    // Columns 1 and 2 of rows 1 and 2, of rows of 4.
    let plane = Plane(Side(1, 1, 1, source.address, 0, 0, 4), Side(0, 0, 2, 0, memory, 0, 2), 2, 2);
    ok(cu!(cuMemcpy2DAsync_v2((&raw const plane).cast(), stream)));
    assert_eq!(stand_in_advance(5), 1);
    assert_eq!(bed.content(memory, 4), [5, 6, 9, 10]);
}
