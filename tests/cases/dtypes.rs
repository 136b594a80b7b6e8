//! Byte order, bytes that are no `bool`, memory that nobody wrote.

use futures::FutureExt;
use futures::executor::block_on;
use inflight::{Device, Dtype, Error, HostArray, HostBatch};
use ndarray::{Array1, ArrayViewD};
use ndarray_npy::{ReadNpyExt, ViewNpyError, ViewNpyExt};

use crate::arrived;
use crate::bed::{by_hand, elements, host_stream, on_each, on_host};
use crate::files::npy;

#[test]
fn a_big_endian_file_is_swapped_by_its_reader_or_refused_b75() {
    let device = Device::host().unwrap();
    let floats = npy(1, ">f4", false, "(3,)", &[1.0_f32, -2.5, 1e-40].map(f32::to_be_bytes).concat());
    let integers = npy(1, ">i8", false, "(2,)", &[(1_i64 << 40) + 1, -2].map(i64::to_be_bytes).concat());
    let batch = HostBatch::new()
        .with("f", Array1::<f32>::read_npy(&floats[..]).unwrap())
        .with("i", Array1::<i64>::read_npy(&integers[..]).unwrap());
    let batch = block_on(async { device.transfer(batch).await?.await }).unwrap();
    assert_eq!(elements(&batch.field("f").unwrap().as_host::<f32>().unwrap()), [1.0, -2.5, 1e-40]);
    assert_eq!(elements(&batch.field("i").unwrap().as_host::<i64>().unwrap()), [(1 << 40) + 1, -2]);
    assert!(matches!(ArrayViewD::<f32>::view_npy(&floats), Err(ViewNpyError::NonNativeEndian)));
    // Raw bytes are in this machine's order: that is all that can be known of them.
    let raw = HostArray::from_bytes(1.5_f32.to_ne_bytes(), Dtype::F32, 1).unwrap();
    assert_eq!(raw.to_array::<f32>().unwrap()[0], 1.5);
}

#[test]
fn no_byte_but_0_and_1_becomes_a_bool_b78() {
    let sim = by_hand(1 << 20);
    let stream = host_stream(sim.device());
    let batch = arrived(&sim, vec![0, 1, 2]);
    let field = batch.field("x").unwrap();
    assert!(matches!(field.read_back::<bool>(), Err(Error::DtypeMismatch { .. })));
    assert!(matches!(field.as_host::<bool>(), Err(Error::DtypeMismatch { .. })));
    assert!(matches!(batch.on(&stream).unwrap().view::<bool>("x"), Err(Error::DtypeMismatch { .. })));
    let error = HostArray::from_bytes([0_u8, 1, 2], Dtype::Bool, 3).unwrap_err();
    assert!(matches!(error, Error::InvalidBool { index: 2, byte: 2 }), "{error}");
    let cast = HostArray::from([0_u8, 1, 2]).cast::<bool>();
    assert_eq!(elements(&cast.to_array::<bool>().unwrap()), [false, true, true]);
    assert!(Array1::<bool>::read_npy(&npy(1, "|b1", false, "(3,)", &[0, 1, 2])[..]).is_err());
    // Page-locked memory that held other bytes.
    let mut bytes = sim.device().pinned::<u8, _>(1000).now_or_never().unwrap().unwrap();
    bytes.fill(0xFF);
    let place = bytes.as_ptr();
    drop(bytes);
    let truths = sim.device().pinned::<bool, _>(1000).now_or_never().unwrap().unwrap();
    assert_eq!(truths.as_ptr().cast::<u8>(), place, "the same memory");
    assert!(truths.iter().all(|truth| u8::from(*truth) == 0));
}

#[test]
fn memory_that_was_not_written_is_zero_and_none_of_it_beyond_the_end_is_shown_b79() {
    on_each(
        |builder| builder,
        |bed| async move {
            let mut half = bed.device.pinned::<u32, _>(1001).await.unwrap();
            assert!(half.iter().all(|element| *element == 0));
            half.iter_mut().take(500).for_each(|element| *element = 7);
            // Small fields lie in one block with padding between them.
            let batch = HostBatch::new().with("half", half).with("a", [1_u8, 2, 3]).with("b", [4_u8; 5]);
            let batch = bed.device.transfer(batch).await.unwrap().await.unwrap();
            assert_eq!(elements(&on_host::<u32>(&batch, "half").await), [[7; 500].to_vec(), vec![0; 501]].concat());
            let back = batch.read_back().await.unwrap();
            assert_eq!(back.bytes(), 1001 * 4 + 3 + 5);
            assert_eq!(elements(&back.field("a").unwrap().to_array::<u8>().unwrap()), [1, 2, 3]);
            assert_eq!(elements(&back.field("b").unwrap().to_array::<u8>().unwrap()), [4; 5]);
        },
    );
}
