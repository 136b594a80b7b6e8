//! Changes the type of elements: Rust's `as`, the `half` crate's rounding, and 0 or not for `bool`.
#![expect(unsafe_code, reason = "buffers are read as elements of a type known at run time")]

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
                $half::from_f64(CastTo::<f64>::cast(self))
            }
        }

        impl CastTo<$from> for $half {
            fn cast(self) -> $from {
                CastTo::<$from>::cast(self.to_f64())
            }
        }
    )*};
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
