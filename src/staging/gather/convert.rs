//! Changes the type of elements: Rust's `as`, the `half` crate's rounding, and 0 or not for `bool`.
#![expect(unsafe_code, reason = "buffers are read as elements of a type known at run time")]

use std::cmp::Ordering;

use half::{bf16, f16};

use crate::dtype::Dtype;

/// A value that becomes one of another type.
trait CastTo<To> {
    fn cast(self) -> To;
}

macro_rules! between_primitives {
    ($from:ty => $($to:ty),*) => {$(
        impl CastTo<$to> for $from {
            #[allow(clippy::cast_lossless, clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "`as` is what is asked for")]
            #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, trivial_numeric_casts, reason = "`as` is what is asked for")]
            fn cast(self) -> $to {
                self as $to
            }
        }
    )*};
}

macro_rules! primitives {
    ($($from:ty),*) => {$(
        between_primitives!($from => u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

        impl CastTo<bool> for $from {
            #[allow(clippy::float_cmp, reason = "0 is exact")]
            fn cast(self) -> bool {
                self != 0 as $from
            }
        }

        impl CastTo<$from> for bool {
            fn cast(self) -> $from {
                CastTo::<$from>::cast(u8::from(self))
            }
        }

        halves!($from: f16, bf16);
    )*};
}

macro_rules! halves {
    ($from:ty: $($half:ident),*) => {$(
        impl CastTo<$half> for $from {
            fn cast(self) -> $half {
                $half::from_f32(to_odd(CastTo::<f64>::cast(self)))
            }
        }

        impl CastTo<$from> for $half {
            fn cast(self) -> $from {
                CastTo::<$from>::cast(self.to_f64())
            }
        }
    )*};
}

/// The neighbouring `f32` with an odd last bit, where none is exact: rounding that once more to fewer bits gives what
/// rounding the `f64` would. `from_f64` of `half` 2.7 does not: it cuts the last 32 bits off before it rounds
/// (<https://docs.rs/half/2.7.1/src/half/bfloat/convert.rs.html>), and a tie is then no longer told from more than one.
fn to_odd(value: f64) -> f32 {
    #[allow(clippy::cast_possible_truncation, reason = "the rounding is what follows")]
    let nearest = value as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    // NaN has no order, so it stays as it is.
    match back.abs().partial_cmp(&value.abs()) {
        Some(Ordering::Greater) if bits & 1 == 0 => f32::from_bits(bits - 1),
        Some(Ordering::Less) if bits & 1 == 0 => f32::from_bits(bits + 1),
        _ => nearest,
    }
}

primitives!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

impl CastTo<Self> for bool {
    fn cast(self) -> Self {
        self
    }
}

macro_rules! half_and_bool {
    ($($half:ident to $($other:ident),*;)*) => {$(
        impl CastTo<bool> for $half {
            fn cast(self) -> bool {
                self.to_f32() != 0.0
            }
        }

        impl CastTo<$half> for bool {
            fn cast(self) -> $half {
                $half::from_f32(f32::from(u8::from(self)))
            }
        }

        $(impl CastTo<$other> for $half {
            fn cast(self) -> $other {
                $other::from_f32(self.to_f32())
            }
        })*
    )*};
}

half_and_bool! {
    f16 to f16, bf16;
    bf16 to f16, bf16;
}

/// Converts the first `count` elements of `from`.
pub(super) fn convert(stored: Dtype, wanted: Dtype, from: &[u64], to: &mut [u64], count: usize) {
    macro_rules! to_each {
        ($source:ty) => {
            match wanted {
                Dtype::Bool => each::<$source, bool>(from, to, count),
                Dtype::U8 => each::<$source, u8>(from, to, count),
                Dtype::U16 => each::<$source, u16>(from, to, count),
                Dtype::U32 => each::<$source, u32>(from, to, count),
                Dtype::U64 => each::<$source, u64>(from, to, count),
                Dtype::I8 => each::<$source, i8>(from, to, count),
                Dtype::I16 => each::<$source, i16>(from, to, count),
                Dtype::I32 => each::<$source, i32>(from, to, count),
                Dtype::I64 => each::<$source, i64>(from, to, count),
                Dtype::F16 => each::<$source, f16>(from, to, count),
                Dtype::Bf16 => each::<$source, bf16>(from, to, count),
                Dtype::F32 => each::<$source, f32>(from, to, count),
                Dtype::F64 => each::<$source, f64>(from, to, count),
            }
        };
    }
    match stored {
        Dtype::Bool => to_each!(bool),
        Dtype::U8 => to_each!(u8),
        Dtype::U16 => to_each!(u16),
        Dtype::U32 => to_each!(u32),
        Dtype::U64 => to_each!(u64),
        Dtype::I8 => to_each!(i8),
        Dtype::I16 => to_each!(i16),
        Dtype::I32 => to_each!(i32),
        Dtype::I64 => to_each!(i64),
        Dtype::F16 => to_each!(f16),
        Dtype::Bf16 => to_each!(bf16),
        Dtype::F32 => to_each!(f32),
        Dtype::F64 => to_each!(f64),
    }
}

fn each<From: CastTo<To> + Copy, To: Copy>(from: &[u64], to: &mut [u64], count: usize) {
    let count = count.min(size_of_val(from) / size_of::<From>()).min(size_of_val(to) / size_of::<To>());
    // SAFETY: the buffer holds `count` elements of `From`, written as such by the gather or an earlier conversion, and is
    // aligned for the largest of them.
    let from = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<From>(), count) };
    // SAFETY: the buffer has room for `count` elements of `To`, is aligned for them, and is initialised; every `To` but
    // `bool` has any bytes as a value, and a `bool` is only written.
    let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<std::mem::MaybeUninit<To>>(), count) };
    for (to, from) in to.iter_mut().zip(from) {
        to.write(from.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn narrowed<T: CastTo<f16> + CastTo<bf16> + Copy>(value: T) -> (u16, u16) {
        (CastTo::<f16>::cast(value).to_bits(), CastTo::<bf16>::cast(value).to_bits())
    }

    #[test]
    fn f32_is_rounded_as_half_rounds_it() {
        // B77: plain values, ties and what lies just beside them, both ends of the range, NaN with its payload last.
        let ties =
            [0x3f80_8000, 0x3f81_8000, 0x3f80_1000, 0x3f80_3000, 0x477f_f000, 0x7f7f_8000, 0x3300_0000, 0x0000_8000];
        let beside = ties.iter().flat_map(|tie: &u32| [tie - 1, *tie, tie + 1]);
        let plain = [314.0_f32 / 100.0, 1e-8, 0.0, -0.0, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE].map(f32::to_bits);
        for value in beside.chain(plain).flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)]) {
            let expected = (f16::from_f32(value).to_bits(), bf16::from_f32(value).to_bits());
            assert_eq!(narrowed(value), expected, "{value:e}");
            assert_eq!(narrowed(f64::from(value)), expected, "{value:e}");
        }
        let nan = f32::from_bits(0x7f80_0001);
        assert!(CastTo::<f16>::cast(nan).is_nan() && CastTo::<bf16>::cast(nan).is_nan());
    }

    #[test]
    fn f64_is_rounded_once() {
        let above = f64::from_bits(1.0_f64.to_bits() + 1) - 1.0;
        // The tie is even downwards; with the least bit set it is no tie any more.
        assert_eq!(narrowed(1.0 + 2_f64.powi(-11)).0, f16::ONE.to_bits());
        assert_eq!(narrowed(1.0 + 2_f64.powi(-11) + above).0, f16::ONE.to_bits() + 1);
        assert_eq!(narrowed(1.0 + 2_f64.powi(-8)).1, bf16::ONE.to_bits());
        assert_eq!(narrowed(1.0 + 2_f64.powi(-8) + above).1, bf16::ONE.to_bits() + 1);
        assert_eq!(narrowed(1e300), (f16::INFINITY.to_bits(), bf16::INFINITY.to_bits()));
        assert_eq!(narrowed(-1e-300), (f16::NEG_ZERO.to_bits(), bf16::NEG_ZERO.to_bits()));
    }

    proptest! {
        #[test]
        fn no_value_of_the_narrower_type_is_nearer(value in -65_504.0_f64..65_504.0, cut in 0_u32..53) {
            // Cutting low bits off makes ties likely.
            let value = f64::from_bits(value.to_bits() >> cut << cut);
            let (half, brain) = narrowed(value);
            let distance = |bits: u16| (f16::from_bits(bits).to_f64() - value).abs();
            for other in [half.wrapping_sub(1), half + 1].into_iter().filter(|bits| f16::from_bits(*bits).is_finite()) {
                prop_assert!(distance(half) < distance(other) || distance(half) == distance(other) && half & 1 == 0);
            }
            let distance = |bits: u16| (bf16::from_bits(bits).to_f64() - value).abs();
            for other in [brain.wrapping_sub(1), brain + 1].into_iter().filter(|bits| bf16::from_bits(*bits).is_finite()) {
                prop_assert!(distance(brain) < distance(other) || distance(brain) == distance(other) && brain & 1 == 0);
            }
        }
    }
}
