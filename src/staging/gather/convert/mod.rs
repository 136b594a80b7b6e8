//! [`Converter`]: changes the type of elements that lie one behind the other. `cast.rs` says what becomes of one,
//! `normal.rs` of one of an image.
#![expect(unsafe_code, reason = "elements of a type known at run time are read and written by address")]

mod cast;
mod half;
mod normal;
mod whole;

use ::half::{bf16, f16};
use smallvec::SmallVec;

use self::cast::CastTo;
use self::normal::Normal;
use super::ahead::blocks;
use super::wide::wide;
use crate::HostArray;
use crate::batch::Change;
use crate::dtype::Dtype;

/// Elements that go through a buffer at once, from one conversion to the next.
const HELD: usize = 512;

/// Converts so many elements.
type Convert = unsafe fn(*const u8, *mut u8, usize);

/// One of the changes.
enum Step {
    Convert(Convert),
    Normalize(Normal),
}

/// The changes of an array's elements, one after the other.
pub(super) struct Converter {
    stored: usize,
    out: usize,
    steps: SmallVec<[Step; 1]>,
    /// Where which element of the logical order goes: from that the others' numbers are known.
    begin: *const u8,
    first: usize,
}

impl Converter {
    /// One that does all of an array's changes, if there are any. Element `first` goes to `begin`.
    pub(super) fn new(array: &HostArray, first: usize, begin: *const u8) -> Option<Self> {
        let mut from = array.stored();
        let step = |change: &Change| match change {
            Change::Cast(to) => Step::Convert(between(std::mem::replace(&mut from, *to), *to)),
            Change::Normalize(normalization) => {
                from = normalization.dtype;
                Step::Normalize(Normal::new(normalization, array.shape()))
            }
        };
        let steps: SmallVec<[Step; 1]> = array.changes().iter().map(step).collect();
        let (stored, out) = (array.stored().size(), array.dtype().size());
        (!steps.is_empty()).then_some(Self { stored, out, steps, begin, first })
    }

    /// The size of an element as it is stored.
    pub(super) const fn stored(&self) -> usize {
        self.stored
    }

    /// The size of what becomes of it.
    pub(super) const fn out(&self) -> usize {
        self.out
    }

    /// Converts `count` elements of an array, which is asked for ahead.
    ///
    /// # Safety
    ///
    /// As for `run`.
    pub(super) unsafe fn run_ahead(&self, src: *const u8, dst: *mut u8, count: usize) {
        blocks(src, self.stored.cast_signed(), count, |start, count| {
            let (src, dst) = (src.wrapping_add(start * self.stored), dst.wrapping_add(start * self.out));
            // SAFETY: the caller's contract, for some of the elements.
            unsafe { self.run(src, dst, count) };
        });
    }

    /// Converts `count` elements, which follow each other in the logical order.
    ///
    /// # Safety
    ///
    /// So many elements of the stored type are readable at `src`, `dst` is their place and has room for what becomes of
    /// them, and the two don't overlap.
    pub(super) unsafe fn run(&self, src: *const u8, dst: *mut u8, count: usize) {
        let number = self.first + (dst.addr() - self.begin.addr()) / self.out;
        let Some((last, others)) = self.steps.split_last() else { return };
        let Some((first, between)) = others.split_first() else {
            // SAFETY: the caller's contract.
            return unsafe { last.run(number, src, dst, count) };
        };
        // Two buffers that take turns, with room for the largest elements.
        let (mut from, mut to) = (&mut [0_u64; HELD], &mut [0_u64; HELD]);
        for start in (0..count).step_by(HELD) {
            let (number, count) = (number + start, HELD.min(count - start));
            let src = src.wrapping_add(start * self.stored);
            // SAFETY: the caller's contract, for some of the elements.
            unsafe { first.run(number, src, from.as_mut_ptr().cast(), count) };
            for step in between {
                // SAFETY: `from` holds what the step before has written.
                unsafe { step.run(number, from.as_ptr().cast(), to.as_mut_ptr().cast(), count) };
                std::mem::swap(&mut from, &mut to);
            }
            // SAFETY: as above, and `dst` has room for them.
            unsafe { last.run(number, from.as_ptr().cast(), dst.wrapping_add(start * self.out), count) };
        }
    }
}

impl Step {
    /// Changes `count` elements, the first of which is element `number` of the array.
    ///
    /// # Safety
    ///
    /// They are readable at `src`, of the type that the step is from, and `dst` has room for as many of that it is to.
    unsafe fn run(&self, number: usize, src: *const u8, dst: *mut u8, count: usize) {
        match self {
            // SAFETY: the caller's contract.
            Self::Convert(convert) => unsafe { convert(src, dst, count) },
            // SAFETY: as above.
            Self::Normalize(normal) => unsafe { normal.run(number, src, dst, count) },
        }
    }
}

/// What converts between two types.
fn between(from: Dtype, to: Dtype) -> Convert {
    macro_rules! to_each {
        ($source:ty) => {
            match to {
                Dtype::Bool => each::<$source, bool>,
                Dtype::U8 => each::<$source, u8>,
                Dtype::U16 => each::<$source, u16>,
                Dtype::U32 => each::<$source, u32>,
                Dtype::U64 => each::<$source, u64>,
                Dtype::I8 => each::<$source, i8>,
                Dtype::I16 => each::<$source, i16>,
                Dtype::I32 => each::<$source, i32>,
                Dtype::I64 => each::<$source, i64>,
                Dtype::F16 => each::<$source, f16>,
                Dtype::Bf16 => each::<$source, bf16>,
                Dtype::F32 => each::<$source, f32>,
                Dtype::F64 => each::<$source, f64>,
            }
        };
    }
    match from {
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

wide! {
    [From: CastTo<To>, To: Copy] [From, To]
    /// Converts `count` elements.
    ///
    /// # Safety
    ///
    /// So many are readable at `src`, and `dst` has room for as many.
    unsafe fn each(src: *const u8, dst: *mut u8, count: usize) {
        let (src, dst) = (src.cast::<From>(), dst.cast::<To>());
        for index in 0..count {
            // SAFETY: one of the elements, by the caller's contract; it may lie unaligned.
            let element = unsafe { src.wrapping_add(index).read_unaligned() };
            // SAFETY: there is room for it, by the caller's contract.
            unsafe { dst.wrapping_add(index).write_unaligned(element.cast()) };
        }
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
