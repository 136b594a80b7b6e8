//! [`CastTo`]: one value as another type. Rust's `as`, 0 or not for `bool`, one rounding for `f16` and `bf16`.

use half::{bf16, f16};

use super::half::{Near, bf16_bits, bf16_value, f16_bits, f16_value};
use super::whole::Whole;

/// A value that becomes one of another type.
pub(super) trait CastTo<To>: Copy {
    fn cast(self) -> To;
}

macro_rules! between_primitives {
    ($from:ty => ($($to:ty),*)) => {$(
        impl CastTo<$to> for $from {
            #[allow(clippy::cast_lossless, clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "`as` is what is asked for")]
            #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, trivial_numeric_casts, reason = "`as` is what is asked for")]
            #[inline(always)]
            fn cast(self) -> $to {
                self as $to
            }
        }
    )*};
}

macro_rules! primitives {
    ($($from:ty),*) => {$(
        impl CastTo<bool> for $from {
            #[allow(clippy::float_cmp, reason = "0 is exact")]
            #[inline(always)]
            fn cast(self) -> bool {
                self != 0 as $from
            }
        }

        impl CastTo<$from> for bool {
            #[inline(always)]
            fn cast(self) -> $from {
                CastTo::<$from>::cast(u8::from(self))
            }
        }

        halves!($from: f16 f16_bits f16_value 10 -24, bf16 bf16_bits bf16_value 7 -133);
    )*};
}

macro_rules! halves {
    ($from:ty: $($half:ident $bits:ident $value:ident $fraction:literal $least:literal),*) => {$(
        impl CastTo<$half> for $from {
            #[inline(always)]
            fn cast(self) -> $half {
                $half::from_bits($bits(self.near::<$fraction, $least>()))
            }
        }

        impl CastTo<$from> for $half {
            #[inline(always)]
            fn cast(self) -> $from {
                CastTo::<$from>::cast($value(self.to_bits()))
            }
        }
    )*};
}

primitives!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

macro_rules! as_it_is {
    ($($from:ty),* => $to:tt) => {$(
        between_primitives!($from => $to);
    )*};
}

as_it_is!(u8, u16, u32, u64, i8, i16, i32, i64 => (u8, u16, u32, u64, i8, i16, i32, i64, f32, f64));
as_it_is!(f32, f64 => (f32, f64));

macro_rules! to_whole {
    ($from:ty => $($to:ty),*) => {$(
        impl CastTo<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to {
                self.whole()
            }
        }
    )*};
}

to_whole!(f32 => u8, u16, u32, u64, i8, i16, i32, i64);
to_whole!(f64 => u8, u16, u32, u64, i8, i16, i32, i64);

impl CastTo<Self> for bool {
    #[inline(always)]
    fn cast(self) -> Self {
        self
    }
}

macro_rules! half_and_bool {
    ($($half:ident $value:ident to $($other:ident $bits:ident),*;)*) => {$(
        impl CastTo<bool> for $half {
            #[inline(always)]
            fn cast(self) -> bool {
                $value(self.to_bits()) != 0.0
            }
        }

        impl CastTo<$half> for bool {
            #[inline(always)]
            fn cast(self) -> $half {
                CastTo::<$half>::cast(u8::from(self))
            }
        }

        $(impl CastTo<$other> for $half {
            #[inline(always)]
            fn cast(self) -> $other {
                $other::from_bits($bits($value(self.to_bits())))
            }
        })*
    )*};
}

half_and_bool! {
    f16 f16_value to f16 f16_bits, bf16 bf16_bits;
    bf16 bf16_value to f16 f16_bits, bf16 bf16_bits;
}
