//! Bytes of files. The crate has no readers yet: what is tried is what it says to bytes that do not fit, and that arrays
//! of a reader arrive as the reader understood them.

use futures::executor::block_on;
use futures::{StreamExt, stream};
use inflight::{BatchStreamExt, Device, Dtype, Error, HostArray};
use ndarray::{Array2, array};
use ndarray_npy::ReadNpyExt;

use crate::bed::{by_hand, on_each, on_host};

/// A `.npy` file.
pub(crate) fn npy(version: u8, descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

#[test]
fn a_shape_far_beyond_its_bytes_allocates_nothing_b84() {
    let sim = by_hand(1 << 20);
    let before = sim.counters();
    for len in [1_usize << 31, 1 << 40] {
        for found in [0, 16] {
            let error = HostArray::from_bytes(vec![0; found], Dtype::F32, len).unwrap_err();
            assert_eq!(error.to_string(), format!("the shape asks for {} bytes, the data has {found}", 4 * len));
        }
    }
    assert_eq!(sim.counters(), before);
}

#[test]
fn bytes_that_do_not_fit_are_named_and_the_pipeline_goes_on_b86() {
    let device = Device::host().unwrap();
    let whole: Vec<u8> = (0..24).collect();
    let twice = [whole.clone(), whole.clone()].concat();
    let items = [whole.clone(), whole[..23].to_vec(), [&whole[..], &[0]].concat(), Vec::new(), twice, whole];
    let source = stream::iter(items).map(|bytes| HostArray::from_bytes(bytes, Dtype::U32, (2, 3)).map(|x| ("x", x)));
    let got: Vec<_> = block_on(source.to_device(&device).buffered(2).collect());
    let said: Vec<_> =
        got.iter().map(|batch| batch.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned())).collect();
    let text = |found| format!("the shape asks for 24 bytes, the data has {found}");
    assert_eq!(said, ["ok".to_owned(), text(23), text(25), text(0), text(48), "ok".to_owned()]);
    assert!(matches!(got[1], Err(Error::LengthMismatch { expected: 24, found: 23 })));
}

#[test]
fn an_array_in_fortran_order_arrives_in_logical_order_b88() {
    on_each(
        |builder| builder,
        |bed| async move {
            let data = [0_i32, 3, 1, 4, 2, 5].map(i32::to_le_bytes).concat();
            let read = Array2::<i32>::read_npy(&npy(1, "<i4", true, "(2, 3)", &data)[..]).unwrap();
            assert_eq!(read.strides(), [1, 2], "as it lies in the file");
            let batch = bed.device.transfer(("x", read)).await.unwrap().await.unwrap();
            assert_eq!(on_host::<i32>(&batch, "x").await, array![[0, 1, 2], [3, 4, 5]].into_dyn());
            assert_eq!(batch.field("x").unwrap().strides(), [3, 1], "its layout is told");
        },
    );
}

/// A part of a file's bytes.
struct Range(Vec<u8>, std::ops::Range<usize>);

impl AsRef<[u8]> for Range {
    fn as_ref(&self) -> &[u8] {
        self.0.get(self.1.clone()).unwrap_or_default()
    }
}

#[test]
fn ranges_that_are_not_the_shapes_are_refused_and_empty_ones_pass_b89() {
    let file: Vec<u8> = (0..100).collect();
    let part = |range, shape: &[usize]| HostArray::from_bytes(Range(file.clone(), range), Dtype::U16, shape.to_vec());
    assert_eq!(part(10..22, &[2, 3]).unwrap().to_array::<u16>().unwrap()[[0, 1]], u16::from_ne_bytes([12, 13]));
    assert!(part(10..10, &[0, 3]).is_ok() && part(100..100, &[0]).is_ok());
    #[expect(clippy::reversed_empty_ranges, reason = "this is what is tried")]
    let backwards = part(22..10, &[2, 3]);
    for refused in [backwards, part(90..102, &[2, 3]), part(10..21, &[2, 3]), part(10..24, &[2, 3]), part(10..12, &[0])]
    {
        assert!(matches!(refused, Err(Error::LengthMismatch { .. })), "{refused:?}");
    }
}
