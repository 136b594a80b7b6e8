//! Tasks of a host stream, polled and completed by hand.

use std::sync::Arc;
use std::task::Poll;

use tokio_test::{assert_pending, assert_ready, task};

use super::*;
use crate::sim::Simulator;

fn simulated() -> (Simulator, HostStream) {
    let sim = Simulator::new().unwrap();
    let stream = sim.device().compute_stream().unwrap();
    #[allow(irrefutable_let_patterns, reason = "without CUDA there are no others")]
    let ComputeStream::Host(stream) = stream else { panic!("{stream:?}") };
    (sim, stream)
}

#[test]
fn a_task_resolves_when_its_work_is_done() {
    let (sim, stream) = simulated();
    let mut work = task::spawn(stream.run(|| 7));
    assert_pending!(work.poll());
    assert!(!work.is_woken());
    assert!(sim.complete_next());
    assert!(work.is_woken());
    assert_eq!(assert_ready!(work.poll()).unwrap(), 7);
}

#[test]
fn invariant_07_the_latest_waker_of_a_task_is_woken_b49() {
    let (sim, stream) = simulated();
    let mut work = stream.run(|| ());
    let (mut first, mut second) = (task::spawn(()), task::spawn(()));
    assert_pending!(first.enter(|context, _| Pin::new(&mut work).poll(context)));
    assert_pending!(second.enter(|context, _| Pin::new(&mut work).poll(context)));
    assert!(sim.complete_next());
    assert!(second.is_woken());
    assert!(!first.is_woken());
}

#[test]
fn invariant_07_no_wake_is_lost_between_threads_b50() {
    let stream = HostStream::new().unwrap();
    for number in 0..2000 {
        assert_eq!(futures::executor::block_on(stream.run(move || number)).unwrap(), number);
    }
}

#[test]
fn dropping_a_task_drops_no_work() {
    let (sim, stream) = simulated();
    let done = Arc::new(Mutex::new(false));
    let tells = done.clone();
    drop(stream.run(move || *lock(&tells) = true));
    assert!(!*lock(&done));
    assert!(sim.complete_next());
    assert!(*lock(&done));
}

#[test]
fn work_that_is_never_run_is_an_error() {
    let (sim, stream) = simulated();
    let mut work = task::spawn(stream.run(|| ()));
    assert_pending!(work.poll());
    assert!(sim.fail_next(2));
    assert!(work.is_woken());
    assert!(matches!(assert_ready!(work.poll()), Err(Error::Driver { code: 719, .. })));
}

#[test]
fn neither_a_panic_nor_a_result_that_panics_when_dropped_stops_the_stream() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let stream = HostStream::new().unwrap();
    let mut panics = stream.run(|| panic!("no luck"));
    drop(stream.run(|| Bomb));
    let (tell, told) = std::sync::mpsc::channel();
    drop(stream.run(move || tell.send(()).unwrap()));
    told.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    let answer = task::spawn(()).enter(|context, _| Pin::new(&mut panics).poll(context));
    let Poll::Ready(Err(Error::Panicked { message, .. })) = answer else { panic!("{answer:?}") };
    assert_eq!(message, "no luck");
}

#[test]
fn a_stream_belongs_to_the_first_device_that_uses_it() {
    let stream = HostStream::new().unwrap();
    let clone = stream.clone();
    let (one, two) = (Simulator::new().unwrap(), Simulator::new().unwrap());
    one.device().shared().bind(&stream).unwrap();
    one.device().shared().bind(&clone).unwrap();
    let error = two.device().shared().bind(&clone).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
}
