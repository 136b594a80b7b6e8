//! `f16` and `bf16` from `f32` and back, in steps that a processor does for several elements at once, and all
//! other numbers to an `f32` that is rounded as they would be.

/// Bits of an `f32` below those that a `bf16` has, and what is infinite in both.
const BRAIN: u32 = 16;
const INFINITE: u32 = 0x7f80_0000;
/// Bits of an `f32`'s fraction below those that an `f16` has.
const CUT: u32 = 13;
/// The difference of the exponents' biases, in place.
const BIAS: u32 = (127 - 15) << 23;
/// The first `f32` that is an `f16` of a normal exponent, and the first that is beyond them all.
const NORMAL: u32 = (127 - 14) << 23;
const BEYOND: u32 = (127 + 16) << 23;

/// The bits of the nearest `f16`, of two the even one; NaN stays NaN, with the upper bits of its payload.
#[inline(always)]
pub(super) fn f16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let size = bits & 0x7fff_ffff;
    // Rounds by carrying into what is kept.
    let normal = size.wrapping_sub(BIAS).wrapping_add(0xfff + (size >> CUT & 1)) >> CUT;
    // One half has its last bit where the least `f16` has its own: the sum is rounded there.
    let least = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let payload = 0x7e00 | (size >> CUT & 0x3ff);
    let large = if size > INFINITE { payload } else { 0x7c00 };
    let rounded = if size < NORMAL { least } else { normal };
    let rounded = if size >= BEYOND { large } else { rounded };
    low(rounded | (bits >> 16 & 0x8000))
}

/// The value of an `f16`, which an `f32` holds exactly. NaN is made quiet.
#[inline(always)]
pub(super) fn f16_value(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let size = (bits & 0x7fff) << CUT;
    let normal = size + BIAS;
    // A fraction without its leading one: set it, and take it away.
    let least = (f32::from_bits(size + NORMAL) - f32::from_bits(NORMAL)).to_bits();
    let large = normal + BIAS;
    let large = if large > INFINITE { large | 1 << 22 } else { large };
    let value = if size < 1 << 23 { least } else { normal };
    let value = if size >= 0x1f << 23 { large } else { value };
    f32::from_bits(value | (bits & 0x8000) << 16)
}

/// The bits of the nearest `bf16`, of two the even one; NaN stays NaN, with the upper bits of its payload.
#[inline(always)]
pub(super) fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> BRAIN & 1)) >> BRAIN;
    let payload = bits >> BRAIN | 0x40;
    low(if bits & 0x7fff_ffff > INFINITE { payload } else { rounded })
}

/// The value of a `bf16`, which is an `f32` cut off.
#[inline(always)]
pub(super) fn bf16_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << BRAIN)
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the upper bits are 0")]
const fn low(bits: u32) -> u16 {
    bits as u16
}

/// An `f32` that has the same nearest value as this one, among those with `FRACTION` bits behind the point and none below
/// `2^LEAST`.
pub(super) trait Near {
    fn near<const FRACTION: u32, const LEAST: i32>(self) -> f32;
}

macro_rules! exact {
    ($($type:ty)*) => {$(
        impl Near for $type {
            #[inline(always)]
            fn near<const FRACTION: u32, const LEAST: i32>(self) -> f32 {
                f32::from(self)
            }
        }
    )*};
}

exact!(u8 u16 i8 i16 f32);

impl Near for f64 {
    /// Rounds it there: by way of the nearest `f32` it would be rounded twice, and a tie not be told from more than one.
    #[inline(always)]
    fn near<const FRACTION: u32, const LEAST: i32>(self) -> f32 {
        let size = self.abs();
        let cut = 52 - FRACTION;
        let bits = size.to_bits();
        // Rounds by carrying into what is kept.
        let carried = bits.wrapping_add((1 << (cut - 1)) - 1 + (bits >> cut & 1)) >> cut << cut;
        let normal = Self::from_bits(carried);
        // Where the exponent is the least, the sum with a value whose last place is `2^LEAST` is rounded to it.
        let ruler = power(LEAST + 52);
        let least = (size + ruler) - ruler;
        let rounded = if size < power(LEAST + FRACTION.cast_signed()) { least } else { normal };
        let rounded = if size.is_nan() { size } else { rounded };
        #[allow(clippy::cast_possible_truncation, reason = "an `f32` has more bits")]
        let exact = rounded.copysign(self) as f32;
        exact
    }
}

/// A power of two.
const fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023).cast_unsigned() as u64) << 52)
}

macro_rules! by_way_of_f64 {
    ($($type:ty, $value:ident => $exact:expr;)*) => {$(
        impl Near for $type {
            #[inline(always)]
            fn near<const FRACTION: u32, const LEAST: i32>(self) -> f32 {
                let $value = self;
                $exact.near::<FRACTION, LEAST>()
            }
        }
    )*};
}

by_way_of_f64! {
    u32, value => f64::from(value);
    i32, value => f64::from(value);
    u64, value => fits_f64(value);
    i64, value => fits_f64(value.unsigned_abs()).copysign(if value < 0 { -1.0 } else { 1.0 });
}

/// The value, its lowest bits all in one where an `f64` does not hold them.
#[inline(always)]
fn fits_f64(value: u64) -> f64 {
    let low = value & 0x7ff;
    let kept = if value >> 53 == 0 { value } else { (value - low) | (u64::from(low != 0) << 11) };
    #[allow(clippy::cast_precision_loss, reason = "53 bits are left of it")]
    let exact = kept as f64;
    exact
}
