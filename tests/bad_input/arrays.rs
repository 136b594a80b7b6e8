//! Arrays on the host: lengths, shapes and types that do not fit, and more memory than there is.

use inflight::{Dtype, Error, HostArray, HostStream};
use ndarray::s;

use crate::bed::refused;

/// More than any machine has, and less than an address space.
const TOO_MUCH: usize = 1 << 60;

#[test]
fn lengths_that_do_not_fit_are_told_in_bytes() {
    let text = "the shape asks for 0 bytes, the data has 4";
    refused!(HostArray::from_owner([1_u32], 0), Error::LengthMismatch { .. }, text);
    let text = "the shape asks for 4 bytes, the data has 0";
    refused!(HostArray::from_owner(Vec::<u32>::new(), ()), Error::LengthMismatch { .. }, text);
    for odd in [1_usize, 7, 15, 17] {
        let text = format!("the shape asks for 16 bytes, the data has {odd}");
        refused!(HostArray::from_bytes(vec![0_u8; odd], Dtype::F64, 2), Error::LengthMismatch { .. }, text);
    }
}

#[test]
fn a_wrong_length_is_told_before_a_wrong_byte() {
    let text = "the shape asks for 2 bytes, the data has 3";
    refused!(HostArray::from_bytes([0_u8, 9, 1], Dtype::Bool, 2), Error::LengthMismatch { .. }, text);
    let text = "element 1 is byte 255, a bool is 0 or 1";
    refused!(HostArray::from_bytes([0_u8, 255, 9], Dtype::Bool, 3), Error::InvalidBool { .. }, text);
    assert!(HostArray::from_bytes([0_u8, 255, 9], Dtype::U8, 3).is_ok(), "all bytes are numbers");
}

#[test]
fn an_array_asked_for_as_another_type_says_both() {
    let array = HostArray::from([1_u8, 2]);
    refused!(array.to_array::<f32>(), Error::DtypeMismatch { .. }, "the array is uint8, not float32");
    let cast = array.cast::<half::bf16>();
    refused!(cast.to_array::<half::f16>(), Error::DtypeMismatch { .. }, "the array is bfloat16, not float16");
}

#[test]
fn an_array_of_more_than_there_is_is_no_abort() {
    let array = HostArray::zeros::<u8>(TOO_MUCH).unwrap();
    let text = "out of memory on the host: 1152921504606846976 bytes were asked for";
    refused!(array.to_array::<u8>(), Error::OutOfMemory { .. }, text);
    let text = "out of memory on the host: 9223372036854775800 bytes were asked for";
    let wide = HostArray::zeros::<bool>(isize::MAX as usize / 8).unwrap().cast::<f64>();
    refused!(wide.to_array::<f64>(), Error::OutOfMemory { .. }, text);
}

#[test]
fn a_slice_of_more_than_there_is_is_no_abort() {
    let stream = HostStream::new().unwrap();
    let text = "out of memory on the host: 1152921504606846976 bytes were asked for";
    refused!(stream.alloc::<u8, _>(TOO_MUCH), Error::OutOfMemory { .. }, text);
    let text = "shape [18446744073709551615] of int16 has more bytes than an address space holds";
    refused!(stream.alloc::<i16, _>(usize::MAX), Error::ShapeOverflow { .. }, text);
    assert_eq!(stream.alloc::<f32, _>((0, 7)).unwrap().bytes(), 0);
}

#[test]
fn a_range_that_ends_before_it_begins_has_no_elements() {
    let array = HostArray::from([1_u8, 2, 3]);
    let backwards = ndarray::SliceInfoElem::Slice { start: 2, end: Some(1), step: 1 };
    assert_eq!(array.slice([backwards]).unwrap().shape(), [0]);
    let text = "index 3 is out of range for axis 0 of length 3";
    refused!(array.slice(s![3]), Error::IndexOutOfRange { .. }, text);
}
