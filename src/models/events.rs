//! Events: the pool gives none to two, and a stream that sleeps until one fires is woken (invariant 5, B25).

use std::sync::Arc;

use super::bed::{check_with, thread};
use crate::backend::sim::SimBackend;
use crate::backend::{Backend, Event, HostEvent};
use crate::reactor::EventPool;
use crate::sync::{Mutex, lock};

#[test]
fn no_event_of_the_pool_is_in_two_hands() {
    check_with(3, || {
        let backend: Arc<dyn Backend> = Arc::new(SimBackend::new().unwrap());
        let (pool, held) = (Arc::new(EventPool::default()), Arc::new(Mutex::new(Vec::<Event>::new())));
        let work = |pool: &EventPool, held: &Mutex<Vec<Event>>, backend: &dyn Backend| {
            let event = pool.take(backend).unwrap();
            {
                let mut held = lock(held);
                assert!(!held.iter().any(|other| other.is(&event)), "somebody else records it");
                held.push(event.clone());
            }
            lock(held).retain(|other| !other.is(&event));
            pool.put(event);
        };
        let (same, also, driver) = (pool.clone(), held.clone(), backend.clone());
        let working = thread::spawn(move || {
            work(&same, &also, driver.as_ref());
            work(&same, &also, driver.as_ref());
        });
        work(&pool, &held, backend.as_ref());
        working.join().unwrap();
        assert!(pool.made() <= 2, "what came back is used again");
    });
}

#[test]
fn a_stream_that_sleeps_until_an_event_fires_is_woken() {
    check_with(3, || {
        let event = Arc::new(HostEvent::default());
        let number = event.record();
        let other = event.clone();
        let firing = thread::spawn(move || other.fire(number, 0));
        event.block_until(number);
        firing.join().unwrap();
        assert_eq!(event.query(), crate::backend::Answer::Fired);
    });
}
