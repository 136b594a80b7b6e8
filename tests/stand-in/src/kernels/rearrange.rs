//! The kernels of the crate itself, `rearrange.cu`, which says more: elements in another order, of another type, or
//! normalized. Values are in `number.rs`.

use super::number::{Kind, Number};
use super::{Kernel, Launch, Outcome};

const MOST_AXES: usize = 8;
const MOST_CHANNELS: usize = 64;

/// The CPU version of one of the kernels here. In squares or not makes no difference to what comes out.
pub(crate) fn find(name: &str) -> Option<Kernel> {
    let (way, job) = name.split_once('_')?;
    if !matches!(way, "gather" | "tile") {
        return None;
    }
    Some(match job {
        "1" => |launch| ran(copied(launch, 1)),
        "2" => |launch| ran(copied(launch, 2)),
        "4" => |launch| ran(copied(launch, 4)),
        "8" => |launch| ran(copied(launch, 8)),
        "16" => |launch| ran(copied(launch, 16)),
        "cast" => |launch| ran(cast(launch)),
        "normalized" => |launch| ran(normalized(launch)),
        _ => return None,
    })
}

/// As for the other kernels: what was invalid is known to the launch.
fn ran(_: Option<()>) -> Outcome {
    Outcome::done()
}

/// `gather_4(u64 src, u64 dst, Layout layout)`, and of other sizes
fn copied(launch: &Launch<'_>, size: usize) -> Option<()> {
    let layout = Layout::read(launch)?;
    let result = layout.elements(launch, size, size, |_, bytes, result| result.extend_from_slice(bytes))?;
    launch.write(launch.u64_at(1), &result).then_some(())
}

/// `gather_cast(u64 src, u64 dst, Layout layout)`
fn cast(launch: &Launch<'_>) -> Option<()> {
    let layout = Layout::read(launch)?;
    let (stored, wanted) = (Kind::of(layout.stored)?, Kind::of(layout.wanted)?);
    let result = layout.elements(launch, stored.bytes(), wanted.bytes(), |_, bytes, result| {
        result.extend_from_slice(&Number::read(stored, bytes).to(wanted).to_le_bytes()[..wanted.bytes()]);
    })?;
    launch.write(launch.u64_at(1), &result).then_some(())
}

/// `gather_normalized(u64 src, u64 dst, Layout layout, Normalization by)`
fn normalized(launch: &Launch<'_>) -> Option<()> {
    let layout = Layout::read(launch)?;
    let by = launch.bytes_at(3);
    let word = |place: usize| Some(u32::from_le_bytes(by.get(4 * place..4 * place + 4)?.try_into().ok()?));
    let float = |place| word(place).map(f32::from_bits);
    let (scale, axis, wanted) = (float(0)?, usize::try_from(word(1)?).ok()?, Kind::of(word(2)?)?);
    let mut is_complete = true;
    let result = layout.elements(launch, 1, wanted.bytes(), |index, bytes, result| {
        let channel = index.get(axis).copied().unwrap_or(0);
        let (mean, std) = (float(3 + channel), float(3 + MOST_CHANNELS + channel));
        let (Some(mean), Some(std), true) = (mean, std, channel < MOST_CHANNELS) else {
            is_complete = false;
            return;
        };
        let value = (f32::from(bytes[0]) * scale - mean) / std;
        let bits = Number::Real(f64::from(value)).to(wanted);
        result.extend_from_slice(&bits.to_le_bytes()[..wanted.bytes()]);
    })?;
    (is_complete && launch.write(launch.u64_at(1), &result)).then_some(())
}

/// The third argument of each kernel.
struct Layout {
    shape: Vec<usize>,
    strides: Vec<i64>,
    stored: u32,
    wanted: u32,
}

impl Layout {
    fn read(launch: &Launch<'_>) -> Option<Self> {
        let bytes = launch.bytes_at(2);
        let long = |place: usize| Some(i64::from_le_bytes(bytes.get(8 * place..8 * place + 8)?.try_into().ok()?));
        let word = |place: usize| Some(u32::from_le_bytes(bytes.get(4 * place..4 * place + 4)?.try_into().ok()?));
        let axes = usize::try_from(word(2 + 4 * MOST_AXES)?).ok().filter(|axes| *axes <= MOST_AXES)?;
        let shape = (0..axes).map(|axis| usize::try_from(long(1 + axis)?).ok()).collect::<Option<Vec<_>>>()?;
        let strides = (0..axes).map(|axis| long(1 + MOST_AXES + axis)).collect::<Option<_>>()?;
        let count = usize::try_from(long(0)?).ok()?;
        let stored = word(2 + 4 * MOST_AXES + 2)?;
        let layout = Self { shape, strides, stored, wanted: word(2 + 4 * MOST_AXES + 3)? };
        // A launch that is to do nothing says so by its count.
        (count == layout.shape.iter().product()).then_some(layout)
    }

    /// Makes the result's bytes: `put` is told each element's index and bytes, in the result's order.
    fn elements(
        &self,
        launch: &Launch<'_>,
        size: usize,
        result_size: usize,
        mut put: impl FnMut(&[usize], &[u8], &mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let count: usize = self.shape.iter().product();
        if count == 0 {
            return None;
        }
        let (mut low, mut high) = (0, 0);
        for (extent, stride) in self.shape.iter().zip(&self.strides) {
            let far = (i64::try_from(*extent).ok()? - 1).checked_mul(*stride)?;
            if far < 0 { low += far } else { high += far }
        }
        let start = launch.u64_at(0).checked_add_signed(low * i64::try_from(size).ok()?)?;
        let source = launch.read::<u8>(start, usize::try_from(high - low + 1).ok()? * size)?;
        let (mut index, mut result) = (vec![0; self.shape.len()], Vec::with_capacity(count * result_size));
        for _ in 0..count {
            let steps =
                index.iter().zip(&self.strides).map(|(index, stride)| i64::try_from(*index).unwrap_or(0) * stride);
            let place = usize::try_from(steps.sum::<i64>() - low).ok()? * size;
            put(&index, source.get(place..place + size)?, &mut result);
            self.advance(&mut index);
        }
        Some(result)
    }

    /// The next index, the last axis first.
    fn advance(&self, index: &mut [usize]) {
        for (index, extent) in index.iter_mut().zip(&self.shape).rev() {
            *index += 1;
            if *index < *extent {
                return;
            }
            *index = 0;
        }
    }
}
