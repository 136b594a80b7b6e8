//! Admission against hand-made pipelines: floors, turns, deadlines (invariants 9 and 10).

use futures::task::noop_waker;
use tokio_test::task;

use super::*;

const NOW: Duration = Duration::ZERO;

fn grant(admission: &Admission, pipeline: &Pipeline, bytes: usize) -> Option<Block> {
    match admission.admit(pipeline, bytes, &mut Ticket::default(), None, NOW) {
        Decision::Granted(grant) => {
            admission.operation_done();
            let memory = grant.block.unwrap_or_else(|| {
                admission.fulfilled(bytes);
                Memory { ptr: std::ptr::null_mut(), bytes }
            });
            Some(Block { memory, pipeline: pipeline.id() })
        }
        Decision::Wait => None,
        Decision::Refused(error) => panic!("refused: {error}"),
    }
}

#[test]
fn invariant_10_a_lone_pipeline_leaves_room_for_one_that_may_come() {
    let admission = Admission::new(4000, None);
    let train = admission.open();
    let held: Vec<_> = std::iter::from_fn(|| grant(&admission, &train, 1000)).collect();
    assert_eq!(held.len(), 3, "one batch of four is kept");
    let evaluate = admission.open();
    assert!(grant(&admission, &evaluate, 1000).is_some(), "an evaluation loop inside the training loop goes on");
}

#[test]
fn invariant_10_a_pipeline_not_yet_polled_keeps_a_share() {
    let admission = Admission::new(8000, None);
    let (left, right) = (admission.open(), admission.open());
    let held: Vec<_> = std::iter::from_fn(|| grant(&admission, &left, 1000)).collect();
    assert_eq!(held.len(), 4, "half is kept for the pipeline whose batches nobody has seen");
    assert!(grant(&admission, &right, 4000).is_some());
}

#[test]
fn invariant_10_a_known_floor_is_kept_however_much_the_others_want() {
    let admission = Admission::new(10_000, None);
    let (small, large) = (admission.open(), admission.open());
    let first = grant(&admission, &large, 4000).unwrap();
    admission.release(first);
    let held: Vec<_> = std::iter::from_fn(|| grant(&admission, &small, 1000)).collect();
    assert!(held.len() <= 6);
    assert!(grant(&admission, &large, 4000).is_some());
}

#[test]
fn a_floor_that_does_not_fit_is_an_error_at_once() {
    let admission = Admission::new(10_000, None);
    let (one, two) = (admission.open(), admission.open());
    two.name("second".into());
    assert!(grant(&admission, &one, 6000).is_some());
    let refused = admission.admit(&two, 6000, &mut Ticket::default(), None, NOW);
    let Decision::Refused(error @ Error::FloorTooLarge { .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "pipeline \"second\" needs 6000 bytes for one batch, beside 6000 kept for one batch of each other pipeline: more \
         than the limit of 10000"
    );
    admission.close(one.id());
    assert!(matches!(
        admission.admit(&two, 10_001, &mut Ticket::default(), None, NOW),
        Decision::Refused(Error::BatchTooLarge { .. })
    ));
}

#[test]
fn a_dropped_waiter_passes_its_wake_on() {
    let admission = Admission::new(1000, None);
    let pipeline = admission.open();
    let block = grant(&admission, &pipeline, 1000).unwrap();
    let mut first = task::spawn(());
    let mut second = task::spawn(());
    let (mut one, mut two) = (Ticket::default(), Ticket::default());
    first.enter(|context, _| admission.admit(&pipeline, 1000, &mut one, Some(context.waker()), NOW));
    second.enter(|context, _| admission.admit(&pipeline, 1000, &mut two, Some(context.waker()), NOW));
    admission.release(block);
    assert!(first.is_woken() && !second.is_woken(), "the line is woken at its head");
    admission.leave(pipeline.id(), &mut one);
    assert!(second.is_woken());
    let decision = second.enter(|context, _| admission.admit(&pipeline, 1000, &mut two, Some(context.waker()), NOW));
    assert!(matches!(decision, Decision::Granted(_)));
}

#[test]
fn nobody_overtakes_in_the_line_of_a_pipeline() {
    let admission = Admission::new(1000, None);
    let pipeline = admission.open();
    let held = grant(&admission, &pipeline, 600).unwrap();
    let mut first = Ticket::default();
    let waker = noop_waker();
    assert!(matches!(admission.admit(&pipeline, 600, &mut first, Some(&waker), NOW), Decision::Wait));
    assert!(grant(&admission, &pipeline, 100).is_none(), "a small batch waits behind a large one");
    admission.release(held);
    assert!(matches!(admission.admit(&pipeline, 600, &mut first, Some(&waker), NOW), Decision::Granted(_)));
}

#[test]
fn idle_blocks_are_given_up_before_anyone_waits() {
    let admission = Admission::new(4000, None);
    let pipeline = admission.open();
    for bytes in [1000, 2000] {
        let block = grant(&admission, &pipeline, bytes).unwrap();
        admission.release(block);
    }
    let Decision::Granted(grant) = admission.admit(&pipeline, 3000, &mut Ticket::default(), None, NOW) else {
        panic!("idle memory is in the way");
    };
    assert!(grant.evicts);
    assert_eq!(admission.blocks(), 2000, "memory comes back when they are freed");
    assert_eq!(admission.take_condemned().iter().map(|memory| memory.bytes).collect::<Vec<_>>(), [2000]);
    assert_eq!((admission.bytes().used, admission.bytes().idle), (3000, 1000));
}

#[test]
fn a_quarantined_block_makes_the_budget_smaller() {
    let admission = Admission::new(4000, None);
    let pipeline = admission.open();
    let block = grant(&admission, &pipeline, 1000).unwrap();
    admission.quarantine(block);
    assert_eq!((admission.bytes().limit, admission.bytes().used), (3000, 0));
}

#[test]
fn a_wait_is_said_after_five_seconds_and_ended_by_the_timeout() {
    let admission = Admission::new(1000, Some(Duration::from_secs(8)));
    let pipeline = admission.open();
    pipeline.name("train".into());
    let _held = grant(&admission, &pipeline, 1000).unwrap();
    let mut waiter = task::spawn(());
    let mut ticket = Ticket::default();
    waiter.enter(|context, _| admission.admit(&pipeline, 1000, &mut ticket, Some(context.waker()), NOW));
    assert_eq!(admission.next_deadline(), Some(Duration::from_secs(5)));
    assert!(admission.overdue(Duration::from_secs(4)).is_empty());
    let said = admission.overdue(Duration::from_secs(5));
    assert_eq!((said.len(), said[0].holders.as_str()), (1, "\"train\" 1000 bytes"));
    assert!(admission.overdue(Duration::from_secs(6)).is_empty(), "it is said once");
    admission.overdue(Duration::from_secs(8));
    assert!(waiter.is_woken());
    let end = Duration::from_secs(8);
    let decision = admission.admit(&pipeline, 1000, &mut ticket, None, end);
    let Decision::Refused(error) = decision else { panic!("{decision:?}") };
    assert_eq!(
        error.to_string(),
        "pipeline \"train\" waited 8s for 1000 bytes of device memory; held: \"train\" 1000 bytes"
    );
}

#[test]
fn no_more_operations_are_under_way_than_a_stream_takes() {
    let admission = Admission::new(1 << 30, None);
    let pipeline = admission.open();
    let mut granted = 0;
    while let Decision::Granted(_) = admission.admit(&pipeline, 0, &mut Ticket::default(), None, NOW) {
        granted += 1;
    }
    assert_eq!(granted, MOST_OPERATIONS);
    admission.operation_done();
    assert!(matches!(admission.admit(&pipeline, 0, &mut Ticket::default(), None, NOW), Decision::Granted(_)));
}
