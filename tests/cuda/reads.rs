//! `device.read` and `device.write` on the user's own CUDA memory.

use std::time::Duration;

use futures::executor::block_on;
use inflight::{Error, HostArray};
use ndarray::Array2;

use crate::rig::{Rig, SIZES, fetched, pattern};

#[test]
fn a_read_sees_what_the_stream_had_done_and_nothing_later_b14_b24() {
    let Some(rig) = Rig::new() else { return };
    for bytes in SIZES {
        let mut slice = rig.stream.clone_htod(&vec![0_u8; bytes]).unwrap();
        rig.spin(&rig.stream, Duration::from_millis(5));
        rig.fill(&rig.stream, &mut slice, 1);
        let read = block_on(rig.device.read_wait(&slice, &rig.stream)).unwrap();
        rig.fill(&rig.stream, &mut slice, 2);
        drop(slice);
        let other = rig.stream.clone_htod(&vec![3_u8; bytes]).unwrap();
        let shown = block_on(read).unwrap();
        assert!(shown.len() == bytes && shown.iter().all(|byte| *byte == 1), "{bytes} bytes");
        drop(other);
    }
    rig.finish();
}

#[test]
fn a_read_synchronises_no_stream() {
    let Some(rig) = Rig::new() else { return };
    let slice = rig.stream.clone_htod(&[1_f32; 16]).unwrap();
    rig.stream.synchronize().unwrap();
    rig.spin(&rig.stream, Duration::from_millis(300));
    let begun = std::time::Instant::now();
    let read = rig.device.read(&slice, &rig.stream).unwrap();
    // Not a measure of speed: far less than the kernel in front of it.
    assert!(begun.elapsed() < Duration::from_millis(150), "{:?}", begun.elapsed());
    assert_eq!(block_on(read).unwrap().as_slice().unwrap().to_vec(), vec![1.0; 16]);
    rig.finish();
}

#[test]
fn slices_of_other_streams_and_views_can_be_read() {
    let Some(rig) = Rig::new() else { return };
    let other = rig.context().new_stream().unwrap();
    for bytes in SIZES {
        let mut slice = other.alloc_zeros::<u8>(bytes).unwrap();
        rig.spin(&other, Duration::from_millis(5));
        rig.fill(&other, &mut slice, 9);
        // cudarc knows of the write through the slice's events: the read waits for it on the device.
        let read = block_on(rig.device.read_wait(&slice, &rig.stream)).unwrap();
        assert!(block_on(read).unwrap().iter().all(|byte| *byte == 9), "{bytes} bytes");
        let part = slice.slice(..bytes / 2);
        assert_eq!(block_on(block_on(rig.device.read_wait(&part, &rig.stream)).unwrap()).unwrap().len(), bytes / 2);
        let batch = rig.batch(1, bytes);
        let lease = batch.on(&rig.stream).unwrap();
        let view = lease.view::<u8>("x").unwrap();
        let read = block_on(rig.device.read_wait(&view, &rig.stream)).unwrap();
        assert!(block_on(read).unwrap().iter().copied().eq(pattern(1, bytes)));
    }
    rig.finish();
}

#[test]
fn a_write_takes_its_turn_on_the_stream() {
    let Some(rig) = Rig::new() else { return };
    let array = Array2::from_shape_fn((200, 300), |(i, j)| (i * 300 + j) as f64);
    let view = HostArray::from(array.clone()).permuted_axes([1, 0]).unwrap();
    let mut slice = rig.stream.alloc_zeros::<f64>(60_000).unwrap();
    rig.spin(&rig.stream, Duration::from_millis(10));
    block_on(rig.device.write(view, &mut slice, &rig.stream)).unwrap();
    assert_eq!(rig.stream.clone_dtoh(&slice).unwrap(), array.t().iter().copied().collect::<Vec<_>>());
    for bytes in SIZES {
        let mut slice = rig.stream.alloc_zeros::<u8>(bytes).unwrap();
        block_on(rig.device.write(pattern(5, bytes), &mut slice, &rig.stream)).unwrap();
        assert_eq!(fetched(&rig.stream, &slice), pattern(5, bytes));
    }
    rig.finish();
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let Some(rig) = Rig::new() else { return };
    let mut slice = rig.stream.clone_htod(&[7_u8; 10]).unwrap();
    let wrong = block_on(rig.device.write(vec![1_u8; 11], &mut slice, &rig.stream)).unwrap_err();
    assert_eq!(wrong.to_string(), "the data has shape [11], not [10]");
    let wrong = block_on(rig.device.write(vec![1_i8; 10], &mut slice, &rig.stream)).unwrap_err();
    assert!(matches!(wrong, Error::DtypeMismatch { .. }), "{wrong}");
    let host = inflight::HostStream::new().unwrap();
    let wrong = block_on(rig.device.write(vec![1_u8; 10], &mut slice, &host)).unwrap_err();
    assert!(matches!(wrong, Error::WrongDevice { .. }), "{wrong}");
    let foreign = host.alloc::<u8, _>(10).unwrap();
    let wrong = rig.device.read(&foreign, &rig.stream).unwrap_err();
    assert!(matches!(wrong, Error::WrongDevice { .. }), "{wrong}");
    assert_eq!(wrong.to_string(), "the slice belongs to the host, not to cuda:0");
    let batch = rig.batch(1, 100);
    let view = batch.field("x").unwrap().as_host::<u8>().map(drop).unwrap_err();
    assert_eq!(view.to_string(), "cuda:0 has no memory that the host can read");
    drop(batch);
    assert!(matches!(
        block_on(rig.device.write(vec![1_u8; 10], &foreign, &rig.stream)),
        Err(Error::WrongDevice { .. })
    ));
    assert_eq!(fetched(&rig.stream, &slice), [7; 10]);
    rig.finish();
}
