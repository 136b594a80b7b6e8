//! Registrations: whoever asks for memory that others register and forget shares it, or waits, and is never refused.

use super::bed::{at_once_with_driver, block_on, check_with, thread};
use crate::HostArray;

#[test]
fn memory_that_others_register_and_forget_is_never_refused_b12() {
    check_with(1, || {
        let (device, driver) = at_once_with_driver(2);
        let array = HostArray::from(vec![1_u8; 64]);
        let (same, also) = (device.clone(), array.clone());
        let registering = thread::spawn(move || {
            assert!(block_on(same.register(also)).unwrap().is_direct(), "refused");
        });
        let kept = block_on(device.register(array)).unwrap();
        assert!(kept.is_direct(), "refused");
        registering.join().unwrap();
        assert_eq!(driver.known(), 1, "it is known once, while it is in use");
        drop(kept);
    });
}
