//! Casts against NumPy's `astype`: the values of `casts.txt`, which `casts.py` writes, one by one and many at once.

use half::{bf16, f16};
use inflight::{Dtype, Element, HostArray};

const DTYPES: [Dtype; 13] = [
    Dtype::Bool,
    Dtype::U8,
    Dtype::U16,
    Dtype::U32,
    Dtype::U64,
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::Bf16,
    Dtype::F32,
    Dtype::F64,
];

fn dtype(name: &str) -> Dtype {
    DTYPES.into_iter().find(|dtype| dtype.name() == name).unwrap()
}

/// The elements of those bits.
fn array(dtype: Dtype, bits: &[u64]) -> HostArray {
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()[..dtype.size()].to_vec()).collect();
    let native = if cfg!(target_endian = "big") {
        bytes.chunks(dtype.size()).flat_map(|element| element.iter().rev().copied().collect::<Vec<_>>()).collect()
    } else {
        bytes
    };
    HostArray::from_bytes(native, dtype, bits.len()).unwrap()
}

/// The bits of all elements as another type.
fn cast(array: &HostArray, to: Dtype) -> Vec<u64> {
    fn to_bits<T: Element>(array: &HostArray, bits: fn(&T) -> u64) -> Vec<u64> {
        array.cast::<T>().to_array::<T>().unwrap().iter().map(bits).collect()
    }
    match to {
        Dtype::Bool => to_bits::<bool>(array, |value| u64::from(*value)),
        Dtype::U8 => to_bits::<u8>(array, |value| u64::from(*value)),
        Dtype::U16 => to_bits::<u16>(array, |value| u64::from(*value)),
        Dtype::U32 => to_bits::<u32>(array, |value| u64::from(*value)),
        Dtype::U64 => to_bits::<u64>(array, |value| *value),
        Dtype::I8 => to_bits::<i8>(array, |value| u64::from(value.cast_unsigned())),
        Dtype::I16 => to_bits::<i16>(array, |value| u64::from(value.cast_unsigned())),
        Dtype::I32 => to_bits::<i32>(array, |value| u64::from(value.cast_unsigned())),
        Dtype::I64 => to_bits::<i64>(array, |value| value.cast_unsigned()),
        Dtype::F16 => to_bits::<f16>(array, |value| u64::from(value.to_bits())),
        Dtype::Bf16 => to_bits::<bf16>(array, |value| u64::from(value.to_bits())),
        Dtype::F32 => to_bits::<f32>(array, |value| u64::from(value.to_bits())),
        _ => to_bits::<f64>(array, |value| value.to_bits()),
    }
}

fn is_nan(dtype: Dtype, bits: u64) -> bool {
    match dtype {
        Dtype::F16 => f16::from_bits(bits as u16).is_nan(),
        Dtype::Bf16 => bf16::from_bits(bits as u16).is_nan(),
        Dtype::F32 => f32::from_bits(bits as u32).is_nan(),
        Dtype::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}

/// Whether `bits` are what a word of the table says.
fn agrees(dtype: Dtype, bits: u64, said: &str) -> bool {
    match said {
        "?" => true,
        "nan" => is_nan(dtype, bits),
        said => u64::from_str_radix(said, 16).unwrap() == bits,
    }
}

#[test]
fn casts_are_those_of_numpy() {
    let mut lines = include_str!("casts.txt").lines().peekable();
    let mut pairs = 0;
    while let Some(line) = lines.next() {
        let (from, values) = line.split_once(' ').unwrap();
        let from = dtype(from);
        let bits: Vec<_> = values.split(' ').map(|bits| u64::from_str_radix(bits, 16).unwrap()).collect();
        // So many that most of them are converted several at once, wherever they lie.
        let many: Vec<_> = bits.iter().cycle().take(40 * bits.len() + 3).copied().collect();
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            let (to, said) = line.trim_start().split_once(' ').unwrap();
            let (to, said): (_, Vec<_>) = (dtype(to), said.split(' ').collect());
            assert_eq!(said.len(), bits.len());
            for (nth, became) in cast(&array(from, &many), to).into_iter().enumerate() {
                let place = nth % bits.len();
                let (value, said) = (bits[place], said[place]);
                assert!(agrees(to, became, said), "{from} {value:x} to {to}: {became:x}, NumPy's is {said}");
                let one = cast(&array(from, &[value]), to)[0];
                assert_eq!(one, became, "{from} {value:x} to {to}, alone");
            }
            pairs += 1;
        }
    }
    assert_eq!(pairs, 13 * 12);
}

#[test]
fn floats_out_of_range_saturate_in_integers_and_nan_becomes_0() {
    // C leaves it open, and NumPy's results with it.
    let values = HostArray::from([f64::NAN, f64::INFINITY, -1.0, 1e300, f64::NEG_INFINITY, 2_147_483_648.0]);
    let to = |dtype| cast(&values, dtype);
    assert_eq!(to(Dtype::U8), [0, 255, 0, 255, 0, 255]);
    assert_eq!(to(Dtype::U32), [0, u64::from(u32::MAX), 0, u64::from(u32::MAX), 0, 1 << 31]);
    assert_eq!(to(Dtype::I32), [0, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff, 0x8000_0000, 0x7fff_ffff]);
    assert_eq!(to(Dtype::I64)[..2], [0, i64::MAX.cast_unsigned()]);
}

#[test]
fn every_half_becomes_itself_again() {
    let all: Vec<u64> = (0..1 << 16).collect();
    for half in [Dtype::F16, Dtype::Bf16] {
        for wide in [Dtype::F32, Dtype::F64] {
            let halves = array(half, &all);
            let wider = cast(&halves, wide);
            for (bits, back) in all.iter().zip(cast(&array(wide, &wider), half)) {
                assert!(back == *bits || is_nan(half, *bits) && is_nan(half, back), "{half} {bits:x} by way of {wide}");
            }
            let value = |bits: u64| match half {
                Dtype::F16 => f16::from_bits(bits as u16).to_f64(),
                _ => bf16::from_bits(bits as u16).to_f64(),
            };
            for (bits, wider) in all.iter().zip(&wider) {
                let expected = if wide == Dtype::F64 {
                    value(*bits).to_bits()
                } else {
                    u64::from((value(*bits) as f32).to_bits())
                };
                assert!(*wider == expected || is_nan(half, *bits) && is_nan(wide, *wider), "{half} {bits:x} as {wide}");
            }
        }
    }
}
