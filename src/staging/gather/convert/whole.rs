//! Floats as whole numbers, with the results of `as`: cut towards zero, saturated, NaN as 0. Where a processor converts
//! several at once, this does; what the compiler makes of `as` looks at one after the other.
#![expect(unsafe_code, reason = "converts floats that are in range without asking again")]

/// A float that becomes a whole number.
pub(super) trait Whole<To> {
    fn whole(self) -> To;
}

macro_rules! small {
    ($($from:ident => $($to:ident),*;)*) => {$($(
        impl Whole<$to> for $from {
            #[inline(always)]
            #[allow(clippy::cast_lossless, clippy::cast_possible_truncation, reason = "the bounds are small")]
            #[allow(clippy::cast_sign_loss, trivial_numeric_casts, reason = "the bounds are small")]
            fn whole(self) -> $to {
                let (least, most) = ($to::MIN as $from, $to::MAX as $from);
                // Compared such that the processor's own minimum and maximum do it.
                let bounded = if self > least { self } else { least };
                let bounded = if bounded < most { bounded } else { most };
                let number = if self.is_nan() { 0.0 } else { bounded };
                // SAFETY: it is between two that `i32` has.
                unsafe { number.to_int_unchecked::<i32>() as $to }
            }
        }
    )*)*};
}

small! {
    f32 => u8, i8, u16, i16;
    f64 => u8, i8, u16, i16, i32;
}

impl Whole<i32> for f32 {
    #[inline(always)]
    fn whole(self) -> i32 {
        // The first that an `i32` does not hold, and the last before it.
        const BEYOND: f32 = 2_147_483_648.0;
        const MOST: f32 = 2_147_483_520.0;
        let bounded = if self > -BEYOND { self } else { -BEYOND };
        let bounded = if bounded < MOST { bounded } else { MOST };
        let number = if self.is_nan() { 0.0 } else { bounded };
        // SAFETY: it is between two that `i32` has.
        let number = unsafe { number.to_int_unchecked::<i32>() };
        if self >= BEYOND { i32::MAX } else { number }
    }
}

macro_rules! large {
    ($($from:ident => $($to:ident),*;)*) => {$($(
        impl Whole<$to> for $from {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` is what is asked for")]
            fn whole(self) -> $to {
                self as $to
            }
        }
    )*)*};
}

large! {
    f32 => u32, u64, i64;
    f64 => u32, u64, i64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    macro_rules! agree {
        ($value:expr => $($to:ident)*) => {$(
            prop_assert_eq!(Whole::<$to>::whole($value), $value as $to, "{:e} as {}", $value, stringify!($to));
        )*};
    }

    proptest! {
        #[test]
        fn whole_numbers_are_those_of_as(bits in any::<u64>(), small in -70_000.0_f64..70_000.0, edge in -300_i64..300, of in 0..4) {
            let edges = [f64::from(i32::MAX), f64::from(i32::MIN), f64::from(u32::MAX), f64::NAN, f64::INFINITY];
            let value = match of {
                0 => f64::from_bits(bits),
                1 => small,
                2 => f64::from(f32::from_bits(bits as u32)),
                _ => edges[(bits % 5) as usize] + edge as f64 / 2.0,
            };
            agree!(value => u8 i8 u16 i16 u32 i32 u64 i64);
            let value = value as f32;
            agree!(value => u8 i8 u16 i16 u32 i32 u64 i64);
        }
    }
}
