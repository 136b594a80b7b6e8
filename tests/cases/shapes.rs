//! Shapes that no memory holds.

use futures::FutureExt;
use inflight::{Error, HostArray};

use crate::bed::{by_hand, host_stream};

#[test]
fn a_shape_whose_product_wraps_allocates_nothing_anywhere_b72() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let before = sim.counters();
    for shape in [
        vec![3, 7, 29, 36_760_123, 823_996_703],
        vec![usize::MAX / 2, 4],
        vec![isize::MAX as usize / 8 + 1],
        vec![0, usize::MAX, 2],
    ] {
        let pinned = sim.device().pinned::<f64, _>(shape.clone()).now_or_never().unwrap();
        assert!(matches!(pinned, Err(Error::ShapeOverflow { .. })), "{shape:?}");
        assert!(matches!(stream.alloc::<f64, _>(shape.clone()), Err(Error::ShapeOverflow { .. })), "{shape:?}");
        assert!(matches!(HostArray::zeros::<f64>(shape.clone()), Err(Error::ShapeOverflow { .. })), "{shape:?}");
    }
    // Each shape is one that memory might hold, and only its type on the device makes it too large.
    let grown = HostArray::zeros::<u8>(isize::MAX as usize).unwrap().cast::<f64>();
    let error = sim.device().try_transfer(("x", grown)).unwrap_err();
    assert!(matches!(error, Error::ShapeOverflow { .. }), "{error}");
    // Fields that fit one by one, and not together.
    let half = HostArray::zeros::<u8>(isize::MAX as usize).unwrap();
    let error = sim.device().try_transfer((("a", half.clone()), ("b", half.clone()), ("c", half))).unwrap_err();
    assert!(matches!(error, Error::ShapeOverflow { .. } | Error::BatchTooLarge { .. }), "{error}");
    assert_eq!(sim.counters(), before);
}
