//! Queues and events without hardware, seen from within: by threads in `host.rs`, by hand in `sim.rs`.

mod host;
mod sim;

use std::sync::Arc;

use super::queue::Driver;
use super::{Answer, Copy, Direction, HostEvent, HostQueue};

const THREAD: Driver = Driver::Thread { link: None, eager: false };
const EAGER: Driver = Driver::Thread { link: None, eager: true };

fn queue(driver: Driver) -> Arc<HostQueue> {
    HostQueue::new("inflight-test", driver).unwrap()
}

fn copy(src: &[u8], dst: &mut [u8]) -> Copy {
    assert_eq!(src.len(), dst.len());
    Copy { dst: dst.as_mut_ptr(), src: src.as_ptr(), bytes: src.len(), direction: Direction::HostToDevice }
}

/// Blocks until all that is queued is done.
fn finish(queue: &HostQueue) {
    let event = Arc::new(HostEvent::default());
    queue.record(&event);
    event.block_until(event.latest());
}

#[test]
fn an_event_answers_for_its_latest_record_only() {
    let event = HostEvent::default();
    let first = event.record();
    assert_eq!(event.query(), Answer::NotYet);
    event.fire(first, 0);
    assert_eq!(event.query(), Answer::Fired);

    let second = event.record();
    assert_eq!(event.query(), Answer::NotYet, "recorded anew, it has not fired");
    assert!(event.has_fired(first), "who waits for the earlier record goes on");
    event.fire(second, 0);
    assert_eq!(event.query(), Answer::Fired);
}

#[test]
fn an_event_recorded_anew_forgets_the_failure_before() {
    let event = HostEvent::default();
    event.fire(event.record(), 2);
    assert!(matches!(event.query(), Answer::Failed(fault) if fault.code == 2));
    let number = event.record();
    assert_eq!(event.query(), Answer::NotYet);
    event.fire(number, 0);
    assert_eq!(event.query(), Answer::Fired);
}

#[test]
fn a_late_failure_of_an_earlier_record_is_not_the_latest_ones() {
    let event = HostEvent::default();
    let (first, second) = (event.record(), event.record());
    event.fire(first, 2);
    assert_eq!(event.query(), Answer::NotYet);
    event.fire(second, 0);
    assert_eq!(event.query(), Answer::Fired);
}
