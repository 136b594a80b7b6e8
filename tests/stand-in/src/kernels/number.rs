//! [`Number`]: an element's value, and what it is as an element of another type.

/// A type of elements, by the number that kernels know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    /// With or without a sign, so many bytes.
    Whole(bool, usize),
    /// Bytes, bits of the fraction.
    Real(usize, u32),
}

/// A value. No integer of 64 bits is lost in one of 128.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Whole(i128),
    Real(f64),
}

impl Kind {
    pub(super) fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Bool,
            1..=4 => Self::Whole(false, 1 << (number - 1)),
            5..=8 => Self::Whole(true, 1 << (number - 5)),
            9 => Self::Real(2, 10),
            10 => Self::Real(2, 7),
            11 => Self::Real(4, 23),
            12 => Self::Real(8, 52),
            _ => return None,
        })
    }

    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Whole(_, bytes) | Self::Real(bytes, _) => bytes,
        }
    }
}

impl Number {
    /// The value of an element's bytes.
    pub(super) fn read(kind: Kind, bytes: &[u8]) -> Self {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        match kind {
            Kind::Bool => Self::Whole(i128::from(bits != 0)),
            Kind::Whole(false, _) => Self::Whole(i128::from(bits)),
            Kind::Whole(true, bytes) => {
                let unused = 64 - 8 * bytes as u32;
                Self::Whole(i128::from((bits << unused).cast_signed() >> unused))
            }
            Kind::Real(8, _) => Self::Real(f64::from_bits(bits)),
            Kind::Real(bytes, fraction) => Self::Real(expanded(bits, 8 * bytes as u32, fraction)),
        }
    }

    /// Its bits as an element of a type.
    pub(super) fn to(self, kind: Kind) -> u64 {
        match (kind, self) {
            (Kind::Bool, Self::Whole(value)) => u64::from(value != 0),
            (Kind::Bool, Self::Real(value)) => u64::from(value != 0.0),
            (Kind::Whole(..), Self::Whole(value)) => value as u64,
            (Kind::Whole(is_signed, bytes), Self::Real(value)) => {
                let bits = 8 * bytes as u32 - u32::from(is_signed);
                let (least, most) = (if is_signed { -(1_i128 << bits) } else { 0 }, (1_i128 << bits) - 1);
                (value as i128).clamp(least, most) as u64
            }
            (Kind::Real(8, _), _) => self.real().to_bits(),
            (Kind::Real(4, _), Self::Whole(value)) => u64::from((value as f32).to_bits()),
            (Kind::Real(4, _), Self::Real(value)) => u64::from((value as f32).to_bits()),
            (Kind::Real(bytes, fraction), Self::Whole(value)) => rounded(odd(value), 8 * bytes as u32, fraction),
            (Kind::Real(bytes, fraction), Self::Real(value)) => rounded(value, 8 * bytes as u32, fraction),
        }
    }

    fn real(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

/// A neighbour of the value with an odd last bit, or the value: rounded to few bits it is as if rounded once.
fn odd(value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    let dropped = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let inexact = magnitude & ((1 << dropped) - 1) != 0;
    let kept = (magnitude >> dropped | u128::from(inexact)) as f64 * power(dropped.cast_signed());
    if value < 0 { -kept } else { kept }
}

/// The value of a float of so many bits.
fn expanded(bits: u64, width: u32, fraction: u32) -> f64 {
    let (ones, bias) = ((1_u64 << (width - 1 - fraction)) - 1, bias(width, fraction));
    let (exponent, rest) = (bits >> fraction & ones, bits & ((1 << fraction) - 1));
    let magnitude = match exponent {
        0 => rest as f64 * power(1 - bias - fraction.cast_signed()),
        _ if exponent == ones => {
            if rest == 0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ => (rest | 1 << fraction) as f64 * power(exponent as i32 - bias - fraction.cast_signed()),
    };
    if bits >> (width - 1) & 1 == 1 { -magnitude } else { magnitude }
}

/// The nearest float of so many bits, ties to even.
fn rounded(value: f64, width: u32, fraction: u32) -> u64 {
    let (ones, bias) = ((1_u64 << (width - 1 - fraction)) - 1, bias(width, fraction));
    let (infinite, sign) = (ones << fraction, u64::from(value.is_sign_negative()) << (width - 1));
    if value.is_nan() {
        return sign | infinite | 1 << (fraction - 1);
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - bias);
    let steps = (value.abs() / power(exponent - fraction.cast_signed())).round_ties_even();
    // One step more than the largest of an exponent is the least of the next one.
    let bits = if exponent > bias { infinite } else { (((exponent + bias - 1) as u64) << fraction) + steps as u64 };
    sign | bits.min(infinite)
}

const fn bias(width: u32, fraction: u32) -> i32 {
    (1 << (width - 2 - fraction)) - 1
}

fn power(of_two: i32) -> f64 {
    f64::from(of_two).exp2()
}
