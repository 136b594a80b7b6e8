//! [`Normal`]: images normalized, several elements at once. Every operation rounds as it does for one.
#![expect(unsafe_code, reason = "elements are read and written by address")]

use half::{bf16, f16};

use super::super::wide::wide;
use super::cast::CastTo;
use crate::batch::Normalization;
use crate::dtype::Dtype;

/// Elements of a channel that follow each other, from which on each channel is done for itself.
const RUN: usize = 8;
/// Elements at least that are done at once where channels take turns.
const LEAST: usize = 64;

/// Elements of one channel: source, destination, count, scale, mean, deviation.
type OfOne = unsafe fn(*const u8, *mut u8, usize, f32, f32, f32);
/// Elements of several: source, destination, scale, the mean and the deviation of each element.
type OfSeveral = unsafe fn(*const u8, *mut u8, f32, &[f32], &[f32]);

/// How the elements of an array are normalized.
pub(super) struct Normal {
    scale: f32,
    /// Of each channel, or, where channels take turns, of each element until they begin anew.
    mean: Vec<f32>,
    std: Vec<f32>,
    /// Elements from one index of the channels' axis to the next.
    inner: usize,
    takes_turns: bool,
    size: usize,
    of_one: OfOne,
    of_several: OfSeveral,
}

impl Normal {
    /// For an array of that shape, which has elements.
    pub(super) fn new(normalization: &Normalization, shape: &[usize]) -> Self {
        let Normalization { scale, mean, std, axis, dtype } = normalization;
        let (of_one, of_several): (OfOne, OfSeveral) = match dtype {
            Dtype::F16 => (of_one::<f16>, of_several::<f16>),
            Dtype::Bf16 => (of_one::<bf16>, of_several::<bf16>),
            _ => (of_one::<f32>, of_several::<f32>),
        };
        let inner = axis.map_or(usize::MAX, |axis| shape[axis + 1..].iter().product());
        let takes_turns = inner < RUN && mean.len() > 1;
        let each = |values: &[f32]| {
            if !takes_turns {
                return values.to_vec();
            }
            let once = values.iter().flat_map(|value| std::iter::repeat_n(*value, inner));
            let times = LEAST.div_ceil(values.len() * inner);
            once.cycle().take(values.len() * inner * times).collect()
        };
        let (mean, std) = (each(mean), each(std));
        Self { scale: *scale, mean, std, inner, takes_turns, size: dtype.size(), of_one, of_several }
    }

    /// Normalizes `count` elements, the first of which is element `number` of the array.
    ///
    /// # Safety
    ///
    /// So many bytes are readable at `src`, and `dst` has room for what becomes of them.
    pub(super) unsafe fn run(&self, number: usize, src: *const u8, dst: *mut u8, count: usize) {
        let (mut done, channels) = (0, self.mean.len());
        while done < count {
            let (number, left) = (number + done, count - done);
            let (src, dst) = (src.wrapping_add(done), dst.wrapping_add(done * self.size));
            if self.takes_turns {
                let place = number % channels;
                let end = channels.min(place + left);
                // SAFETY: the caller's contract, for as many elements as there are means.
                unsafe { (self.of_several)(src, dst, self.scale, &self.mean[place..end], &self.std[place..end]) };
                done += end - place;
            } else {
                let channel = number / self.inner % channels;
                let some = left.min(self.inner - number % self.inner);
                // SAFETY: the caller's contract, for some of the elements.
                unsafe { (self.of_one)(src, dst, some, self.scale, self.mean[channel], self.std[channel]) };
                done += some;
            }
        }
    }
}

wide! {
    [To] [To]
    /// Normalizes elements of one channel.
    ///
    /// # Safety
    ///
    /// `count` bytes are readable at `src`, and `dst` has room for as many elements.
    unsafe fn of_one(src: *const u8, dst: *mut u8, count: usize, scale: f32, mean: f32, std: f32)
    where (f32: CastTo<To>)
    {
        for index in 0..count {
            // SAFETY: one of the elements, by the caller's contract.
            let value = f32::from(unsafe { src.wrapping_add(index).read() });
            let normal = ((value * scale - mean) / std).cast();
            // SAFETY: there is room for it, by the caller's contract.
            unsafe { dst.cast::<To>().wrapping_add(index).write_unaligned(normal) };
        }
    }
}

wide! {
    [To] [To]
    /// Normalizes elements of several channels, as many as there are means and deviations.
    ///
    /// # Safety
    ///
    /// So many bytes are readable at `src`, and `dst` has room for as many elements.
    unsafe fn of_several(src: *const u8, dst: *mut u8, scale: f32, mean: &[f32], std: &[f32])
    where (f32: CastTo<To>)
    {
        for (index, (mean, std)) in mean.iter().zip(std).enumerate() {
            // SAFETY: one of the elements, by the caller's contract.
            let value = f32::from(unsafe { src.wrapping_add(index).read() });
            let normal = ((value * scale - mean) / std).cast();
            // SAFETY: there is room for it, by the caller's contract.
            unsafe { dst.cast::<To>().wrapping_add(index).write_unaligned(normal) };
        }
    }
}
