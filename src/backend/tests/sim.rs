//! Queues driven by hand, through the seam.
#![expect(unsafe_code, reason = "enqueues copies through the seam")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{copy, queue};
use crate::backend::sim::SimBackend;
use crate::backend::{Answer, Backend, Direction, Event, Space, StreamHandle};
use crate::sim::{FaultPoint, PendingStream};

/// A copy between arrays of a test, behind all that is on the copy stream.
fn enqueue(sim: &SimBackend, src: &[u8], dst: &mut [u8]) {
    // SAFETY: the tests keep both arrays until the copy is done, or is not to be done any more (invariant 1).
    unsafe { sim.copy(&sim.streams().copy, copy(src, dst), &["raw".into()]) }.unwrap();
}

fn recorded(sim: &SimBackend, stream: &StreamHandle) -> Event {
    let event = sim.create_event().unwrap();
    sim.record(stream, &event).unwrap();
    event
}

fn asked(sim: &SimBackend, event: &Event) -> Result<bool, i32> {
    match sim.query(event) {
        Ok(Answer::NotYet) => Ok(false),
        Ok(Answer::Fired) => Ok(true),
        Ok(Answer::Failed(fault)) | Err(fault) => Err(fault.code),
    }
}

fn ids(sim: &SimBackend) -> Vec<u64> {
    sim.pending().iter().map(|pending| pending.id).collect()
}

#[test]
fn bytes_move_at_completion_and_the_record_behind_needs_no_hand() {
    let sim = SimBackend::new().unwrap();
    let (src, mut dst) = ([7; 8], [0; 8]);
    enqueue(&sim, &src, &mut dst);
    let event = recorded(&sim, &sim.streams().copy);
    let pending = sim.pending();
    assert_eq!((pending.len(), pending[0].bytes, pending[0].stream), (1, 8, PendingStream::Copy));
    assert_eq!(pending[0].fields, ["raw"]);
    assert_eq!(asked(&sim, &event), Ok(false));
    assert_eq!(dst, [0; 8]);

    assert!(sim.complete(pending[0].id, 0));
    assert_eq!(dst, src);
    assert_eq!(asked(&sim, &event), Ok(true));
    assert!(!sim.complete(pending[0].id, 0), "it is done");
    assert_eq!((sim.counters().copies_done, sim.counters().bytes_to_device), (1, 8));
}

#[test]
fn a_record_on_an_empty_stream_fires_at_once() {
    let sim = SimBackend::new().unwrap();
    let event = recorded(&sim, &sim.streams().copy);
    assert_eq!(asked(&sim, &event), Ok(true));
    assert_eq!(sim.counters().unrecorded_queries, 0);
}

#[test]
fn only_the_head_of_a_stream_completes_and_streams_in_any_order() {
    let sim = SimBackend::new().unwrap();
    let compute = sim.compute_stream().unwrap();
    let tasks = compute.host().unwrap();
    let mut dst = [[0; 4]; 2];
    for dst in &mut dst {
        enqueue(&sim, &[1; 4], dst);
    }
    tasks.launch(Box::new(|| ()), "work", 0);
    let [first, second, task] = ids(&sim)[..] else { panic!("three are pending") };
    assert!(!sim.complete(second, 0));
    assert!(sim.complete(task, 0));
    assert!(sim.complete(first, 0));
    assert!(sim.complete(second, 0));
}

#[test]
fn a_stream_that_waits_goes_on_when_the_other_is_done() {
    let sim = SimBackend::new().unwrap();
    let compute = sim.compute_stream().unwrap();
    let tasks = compute.host().unwrap();
    let (ran, mut dst) = (Arc::new(AtomicBool::new(false)), [0; 4]);
    enqueue(&sim, &[1; 4], &mut dst);
    let arrived = recorded(&sim, &sim.streams().copy);
    sim.wait(&compute, &arrived).unwrap();
    let sees = ran.clone();
    tasks.launch(Box::new(move || sees.store(true, Ordering::Release)), "work", 0);
    let end = recorded(&sim, &compute);

    let [copied, task] = ids(&sim)[..] else { panic!("two are pending") };
    assert!(!sim.complete(task, 0), "it is behind the wait");
    assert!(!sim.pending()[1].runnable);
    assert!(sim.complete(copied, 0));
    assert!(sim.pending()[0].runnable);
    assert!(sim.complete(task, 0));
    assert!(ran.load(Ordering::Acquire));
    assert_eq!(asked(&sim, &end), Ok(true));
}

#[test]
fn a_failed_copy_moves_nothing_and_only_its_own_record_tells() {
    let sim = SimBackend::new().unwrap();
    let (src, mut dst) = ([7; 8], [[0; 8]; 3]);
    let events = dst.each_mut().map(|dst| {
        enqueue(&sim, &src, dst);
        recorded(&sim, &sim.streams().copy)
    });
    let [first, second, third] = ids(&sim)[..] else { panic!("three are pending") };
    assert!(sim.complete(first, 0));
    assert!(sim.complete(second, 2));
    assert!(sim.complete(third, 0));
    assert_eq!(events.each_ref().map(|event| asked(&sim, event)), [Ok(true), Err(2), Ok(true)]);
    assert_eq!(dst, [src, [0; 8], src]);
}

#[test]
fn invariant_06_after_a_fatal_code_every_call_answers_it() {
    let sim = SimBackend::new().unwrap();
    let before = recorded(&sim, &sim.streams().copy);
    let mut dst = [[0; 4]; 2];
    for dst in &mut dst {
        enqueue(&sim, &[1; 4], dst);
    }
    let [first, second] = ids(&sim)[..] else { panic!("two are pending") };
    assert!(sim.complete(first, 700));
    assert_eq!(asked(&sim, &before), Err(700));
    assert_eq!(sim.alloc(Space::Device, 64).map_err(|fault| fault.code).map(drop), Err(700));
    assert!(sim.complete(second, 0), "it ends, and fails");
    assert_eq!(dst, [[0; 4]; 2]);
}

#[test]
fn failed_work_is_dropped_and_not_run() {
    struct Owned(Arc<AtomicBool>);
    impl Drop for Owned {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let sim = SimBackend::new().unwrap();
    let compute = sim.compute_stream().unwrap();
    let tasks = compute.host().unwrap();
    let dropped = Arc::new(AtomicBool::new(false));
    let owned = Owned(dropped.clone());
    let work = move || {
        let _owned = owned;
        unreachable!("failed work does not run");
    };
    tasks.launch(Box::new(work), "work", 0);
    assert!(!dropped.load(Ordering::Acquire));
    assert!(sim.complete(ids(&sim)[0], 719));
    assert!(dropped.load(Ordering::Acquire));
}

#[test]
fn the_nth_call_fails_and_several_faults_take_turns() {
    let sim = SimBackend::new().unwrap();
    sim.inject(FaultPoint::Record, 2, 2);
    sim.inject(FaultPoint::Record, 2, 3);
    let event = sim.create_event().unwrap();
    let answers = [(); 4].map(|()| sim.record(&sim.streams().copy, &event).map_err(|fault| fault.code));
    assert_eq!(answers, [Ok(()), Err(2), Err(3), Ok(())]);
}

#[test]
fn nothing_behind_work_that_runs_goes_ahead_of_it() {
    let sim = Arc::new(SimBackend::new().unwrap());
    let compute = sim.compute_stream().unwrap();
    let tasks = compute.host().unwrap();
    let event = sim.create_event().unwrap();
    let (within, asks, stream) = (sim.clone(), event.clone(), compute.clone());
    let early = Arc::new(AtomicBool::new(false));
    let told = early.clone();
    let work = move || {
        within.record(&stream, &asks).unwrap();
        told.store(asked(&within, &asks) == Ok(true), Ordering::Release);
    };
    tasks.launch(Box::new(work), "work", 0);
    assert!(sim.complete(ids(&sim)[0], 0));
    assert!(!early.load(Ordering::Acquire), "the record is behind the work that made it");
    assert_eq!(asked(&sim, &event), Ok(true));
}

#[test]
fn a_stream_that_is_dropped_keeps_what_is_queued() {
    let sim = SimBackend::new().unwrap();
    let compute = sim.compute_stream().unwrap();
    compute.host().unwrap().launch(Box::new(|| ()), "work", 0);
    let event = recorded(&sim, &compute);
    drop(compute);
    assert!(sim.complete(ids(&sim)[0], 0));
    assert_eq!(asked(&sim, &event), Ok(true));
}

#[test]
fn a_wait_for_a_stream_with_a_thread_is_fulfilled_when_that_is_done() {
    let sim = SimBackend::new().unwrap();
    let own = StreamHandle::Host(queue(super::THREAD));
    let compute = sim.compute_stream().unwrap();
    let (threaded, tasks) = (own.host().unwrap(), compute.host().unwrap());
    let (open, opened) = std::sync::mpsc::channel::<()>();
    threaded.launch(Box::new(move || opened.recv().unwrap()), "gate", 0);
    let event = recorded(&sim, &own);
    sim.wait(&compute, &event).unwrap();
    tasks.launch(Box::new(|| ()), "work", 0);
    assert!(!sim.pending()[0].runnable);
    open.send(()).unwrap();
    let fires = event.host().unwrap();
    fires.block_until(1);
    sim.settle();
    assert!(sim.pending()[0].runnable);
}

#[test]
fn released_memory_is_poisoned_and_what_lives_is_counted() {
    let sim = SimBackend::new().unwrap();
    sim.poison(true);
    let memory = sim.alloc(Space::Device, 64).unwrap();
    let pinned = sim.alloc(Space::Pinned, 5000).unwrap();
    assert_eq!(pinned.ptr.addr() % 4096, 0);
    assert_eq!((sim.counters().live_device_bytes, sim.counters().live_pinned_bytes), (64, 5000));
    sim.released(&memory);
    // SAFETY: the block is 64 bytes long and initialised.
    assert_eq!(unsafe { std::slice::from_raw_parts(memory.ptr, 64) }, [0xDD; 64]);
    // SAFETY: it came from this backend and nothing is pending.
    unsafe { sim.free(Space::Device, memory) }.unwrap();
    // SAFETY: as above.
    unsafe { sim.free(Space::Pinned, pinned) }.unwrap();
    let counters = sim.counters();
    assert_eq!((counters.allocations, counters.frees), (2, 2));
    assert_eq!((counters.live_device_bytes, counters.live_pinned_bytes), (0, 0));
}

#[test]
fn events_are_counted_and_one_never_recorded_is_noticed() {
    let sim = SimBackend::new().unwrap();
    let event = sim.create_event().unwrap();
    assert_eq!(sim.counters().live_events, 1);
    let _ = sim.query(&event);
    assert_eq!(sim.counters().unrecorded_queries, 1);
    drop(event);
    assert_eq!(sim.counters().live_events, 0);
}

#[test]
fn copies_are_counted_by_direction() {
    let sim = SimBackend::new().unwrap();
    let (src, mut dst) = ([1; 3], [0; 3]);
    let read = crate::backend::Copy { direction: Direction::DeviceToHost, ..copy(&src, &mut dst) };
    // SAFETY: both arrays outlive the test (invariant 1).
    unsafe { sim.copy(&sim.streams().read, read, &[]) }.unwrap();
    assert_eq!(sim.pending()[0].stream, PendingStream::Read);
    assert!(sim.complete(ids(&sim)[0], 0));
    assert_eq!((sim.counters().bytes_from_device, sim.counters().bytes_to_device), (3, 0));
}
