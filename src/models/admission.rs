//! Who waits for device memory against who gives it back (invariant 10).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::bed::{block_on, check, thread};
use crate::admission::{Admission, Block, Decision, Grant, Pipeline, Ticket};
use crate::backend::Memory;

const BATCH: usize = 4096;

async fn admitted(admission: &Admission, pipeline: &Pipeline) -> Grant {
    let mut ticket = Ticket::default();
    poll_fn(|context| match admission.admit(pipeline, BATCH, &mut ticket, Some(context.waker()), Duration::ZERO) {
        Decision::Granted(grant) => {
            // Its block is what these models are about.
            admission.operation_done();
            Poll::Ready(grant)
        }
        Decision::Wait => Poll::Pending,
        Decision::Refused(error) => panic!("{error}"),
    })
    .await
}

fn block(grant: &Grant) -> Block {
    Block { memory: Memory { ptr: std::ptr::null_mut(), bytes: grant.bytes }, pipeline: grant.pipeline }
}

/// Room for one batch, which is taken.
fn full() -> (Arc<Admission>, Arc<Pipeline>, Grant) {
    let admission = Arc::new(Admission::new(BATCH, None));
    let pipeline = admission.open();
    let grant = block_on(admitted(&admission, &pipeline));
    (admission, pipeline, grant)
}

#[test]
fn who_waits_is_woken_by_a_release() {
    check(|| {
        let (admission, pipeline, grant) = full();
        let other = admission.clone();
        let releasing = thread::spawn(move || other.release(block(&grant)));
        let grant = block_on(admitted(&admission, &pipeline));
        assert!(grant.block.is_some(), "it is the block that came back");
        releasing.join().unwrap();
        assert_eq!(admission.bytes().used, BATCH);
    });
}

#[test]
fn a_waiter_that_is_dropped_passes_its_turn_on() {
    check(|| {
        let (admission, pipeline, grant) = full();
        let mut first = Ticket::default();
        let asked = admission.admit(&pipeline, BATCH, &mut first, Some(Waker::noop()), Duration::ZERO);
        assert!(matches!(asked, Decision::Wait));
        let (other, same) = (admission.clone(), pipeline.clone());
        let leaving = thread::spawn(move || other.leave(same.id(), &mut first));
        let other = admission.clone();
        let releasing = thread::spawn(move || other.release(block(&grant)));
        block_on(admitted(&admission, &pipeline));
        leaving.join().unwrap();
        releasing.join().unwrap();
    });
}

#[test]
fn a_pipeline_that_ends_gives_its_floor_up() {
    check(|| {
        let admission = Arc::new(Admission::new(2 * BATCH, None));
        let (ending, pipeline) = (admission.open(), admission.open());
        let kept = block_on(admitted(&admission, &ending));
        admission.release(block(&kept));
        // The room for the other's batch is kept for it until it ends.
        let first = block_on(admitted(&admission, &pipeline));
        let other = admission.clone();
        let closing = thread::spawn(move || other.close(ending.id()));
        let other = admission.clone();
        let releasing = thread::spawn(move || other.release(block(&first)));
        let second = block_on(admitted(&admission, &pipeline));
        closing.join().unwrap();
        releasing.join().unwrap();
        admission.release(block(&second));
        assert_eq!(admission.bytes().used, 0);
    });
}

#[test]
fn two_pipelines_never_take_more_than_there_is_and_both_go_on() {
    check(|| {
        let admission = Arc::new(Admission::new(2 * BATCH, None));
        let pipelines = [admission.open(), admission.open()];
        let work = |admission: Arc<Admission>, pipeline: Arc<Pipeline>| {
            for _ in 0..2 {
                let grant = block_on(admitted(&admission, &pipeline));
                assert!(admission.bytes().used <= 2 * BATCH);
                admission.release(block(&grant));
            }
        };
        let [one, two] = pipelines;
        let other = admission.clone();
        let working = thread::spawn(move || work(other, one));
        work(admission.clone(), two);
        working.join().unwrap();
        assert!(admission.bytes().peak <= 2 * BATCH);
        assert_eq!(admission.bytes().used, 0);
    });
}
