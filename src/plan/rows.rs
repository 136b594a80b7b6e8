//! [`Rows`]: which copies bring an array that is not contiguous from page-locked memory to the device, without staging.

use std::time::Duration;

use super::Fetches;
use crate::HostArray;
use crate::backend::{MOST_FETCHED, Pitched};
use crate::staging::gather::{Axes, Axis, Hop, axes};

/// Contiguous pieces of so many bytes or more are worth a copy each where a driver takes many at once: on an H200 they run
/// at 0.9 of the link, half as large ones at 0.5.
const WORTH_A_COPY: usize = 32 << 10;
/// Pitched pieces of so many bytes or more are: each takes 4 to 5 µs beside the time of its bytes.
const WORTH_A_PITCHED_COPY: usize = 64 << 10;
/// Rows of so many bytes or more run at three quarters of the link or better.
const WORTH_A_ROW: usize = 64;
/// Arrays of so many bytes or more are worth a launch.
const WORTH_A_LAUNCH: usize = 256 << 10;
/// Rows up to so many bytes, at even distances, are read faster by a kernel: on an H200 crops of 16³, 32³ and 64³ of f32 at
/// 26, 35 and 42 GB/s, of which copies bring 4, 18 and 38; of 128³ at 43 and 49.
const LONGEST_FETCHED: usize = 256;
/// The same where it reads words: so it brought crops of 64³ at 37 GB/s.
const LONGEST_FETCHED_BY_WORDS: usize = 192;
/// Bytes that a launch fetches at most: what waits behind it waits for one to three milliseconds.
const FETCHED_AT_ONCE: usize = 64 << 20;
/// A kernel reads rows of so many bytes, and of multiples, wherever they begin.
const FETCHED_ANYWHERE: usize = 16;
/// Others it reads by so many bytes at once, and only where such begin.
const FETCHED_WORD: usize = 4;
/// What the copy engine takes for two rows at even distances, and the driver meanwhile for a piece of such: on an H200 crops
/// of 64³ and 32³ of f32 took 430 and 930 µs for 16.8 MB, of 16³ 4 µs each.
const TWO_ROWS_TAKE: Duration = Duration::from_nanos(13);
const PIECE_TAKES: Duration = Duration::from_micros(4);
/// Bytes a microsecond of a link whose rate is not known yet: PCIe 5.
const USUAL_RATE: u64 = 50_000;
/// Copies that are enqueued with one event at most. A driver blocks who has about a thousand pending (invariant 9).
const PITCHED_AT_ONCE: usize = 64;
/// The same for contiguous ones, of which a driver takes many as one.
const CONTIGUOUS_AT_ONCE: usize = 256;

/// An array as pieces of rows of contiguous bytes, at even distances within a piece.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    /// One piece at the first place.
    first: Pitched,
    /// From piece to piece, outermost first.
    outer: Axes<'a>,
    pub(crate) pieces: usize,
}

impl<'a> Rows<'a> {
    /// The pieces of an array without conversions.
    pub(crate) fn of(array: &'a HostArray) -> Self {
        let size = array.stored().size();
        let mut outer = axes(array);
        let inner = even(&outer).filter(|(_, distance)| *distance == size).map(|(len, _)| len);
        if inner.is_some() {
            outer.pop();
        }
        let width = inner.unwrap_or(1) * size;
        let (mut rows, mut pitch, mut planes, mut height) = (1, width, 1, 1);
        if let Some((len, distance)) = even(&outer).filter(|(_, distance)| *distance >= width) {
            outer.pop();
            (rows, pitch, height) = (len, distance, len);
            let fits = |distance: &usize| distance.is_multiple_of(pitch) && distance / pitch >= rows;
            if let Some((len, distance)) = even(&outer).filter(|(_, distance)| fits(distance)) {
                outer.pop();
                (planes, height) = (len, distance / pitch);
            }
        }
        let first = Pitched { dst: std::ptr::null_mut(), src: array.as_ptr(), width, rows, pitch, planes, height };
        let pieces = outer.iter().map(|axis| axis.len).product();
        Self { first, outer, pieces }
    }

    /// Whether copies of them are faster than staging.
    pub(crate) const fn pay(&self) -> bool {
        if self.first.is_contiguous() {
            self.first.width >= WORTH_A_COPY
        } else {
            self.first.width >= WORTH_A_ROW && self.first.bytes() >= WORTH_A_PITCHED_COPY
        }
    }

    /// Whether a kernel is to read them, where it `fetches` such. For long picked rows copies are faster: on an H200 they bring
    /// those of 150 KB at 0.98 of the link, kernels at 0.92.
    pub(crate) fn pay_a_kernel(&self, fetches: Fetches) -> bool {
        let Pitched { src, width, pitch, height, .. } = self.first;
        let bytes = self.first.bytes();
        let is_anywhere = width.is_multiple_of(FETCHED_ANYWHERE);
        let is_word = |value: usize| value.is_multiple_of(FETCHED_WORD);
        let hops_words = |axis: &Axis<'_>| match axis.hop {
            Hop::Even(stride) => is_word(stride.unsigned_abs()),
            Hop::Picked(table, size) => table.iter().all(|at| is_word((at * size).unsigned_abs())),
        };
        let longest = match fetches {
            Fetches::Nothing => 0,
            Fetches::ShortRows if self.first.is_contiguous() => WORTH_A_COPY - 1,
            Fetches::ShortRows if is_anywhere => LONGEST_FETCHED,
            Fetches::ShortRows => LONGEST_FETCHED_BY_WORDS,
            Fetches::AllRows => usize::MAX,
        };
        (WORTH_A_ROW..=longest).contains(&width)
            && bytes <= FETCHED_AT_ONCE
            && bytes.saturating_mul(self.pieces) >= WORTH_A_LAUNCH
            && pitch.checked_mul(height).is_some()
            && (is_anywhere || [src.addr(), width, pitch].into_iter().all(is_word) && self.outer.iter().all(hops_words))
    }

    /// Bytes of so many pieces as one launch fetches.
    pub(crate) fn launch_bytes(&self) -> usize {
        let bytes = self.first.bytes();
        bytes * (FETCHED_AT_ONCE / bytes).clamp(1, MOST_FETCHED)
    }

    /// How long copies of so many bytes of them would take, about, on a link of that rate in bytes a microsecond; 0 if it is
    /// not known.
    pub(crate) fn time_of_copies(&self, bytes: usize, rate: u64) -> Duration {
        let count = |of: usize| u32::try_from(bytes / of).unwrap_or(u32::MAX);
        let rate = if rate == 0 { USUAL_RATE } else { rate };
        let on_link = Duration::from_nanos(bytes as u64 * 1000 / rate);
        if self.first.is_contiguous() {
            return on_link;
        }
        let (by_engine, by_driver) =
            (TWO_ROWS_TAKE * count(self.first.width) / 2, PIECE_TAKES * count(self.first.bytes()));
        on_link.max(by_engine).max(by_driver)
    }

    /// Contiguous bytes of a row.
    pub(crate) const fn width(&self) -> usize {
        self.first.width
    }

    /// Bytes of so many pieces as are enqueued with one event.
    pub(crate) const fn chunk_bytes(&self) -> usize {
        let most = if self.first.is_contiguous() { CONTIGUOUS_AT_ONCE } else { PITCHED_AT_ONCE };
        self.first.bytes().saturating_mul(most)
    }

    /// The copies of bytes `start..end`, which are those of whole pieces, to `dst` and on.
    pub(crate) fn copies(&self, start: usize, end: usize, dst: *mut u8) -> Vec<Pitched> {
        let bytes = self.first.bytes();
        let copy = |number: usize| Pitched {
            src: self.first.src.wrapping_offset(self.offset(number)),
            dst: dst.wrapping_add(number * bytes - start),
            ..self.first
        };
        (start / bytes..end / bytes).map(copy).collect()
    }

    /// Bytes from the first piece to another.
    fn offset(&self, mut number: usize) -> isize {
        let mut offset = 0;
        for axis in self.outer.iter().rev() {
            offset += axis.at(number % axis.len);
            number /= axis.len;
        }
        offset
    }
}

/// What counts against the bound of pending operations for so many copies, where the backend `takes_many` of contiguous bytes
/// in one call.
pub(crate) fn operations(copies: &[Pitched], takes_many: bool) -> usize {
    // On an H200, 93 calls for 256 copies each were pending when the next one blocked, and 1 020 for one each.
    const IN_ONE: usize = 16;
    if takes_many && copies.iter().all(Pitched::is_contiguous) { copies.len().div_ceil(IN_ONE) } else { copies.len() }
}

/// The innermost of the axes, if it has an even stride forward: its length and stride in bytes.
fn even(axes: &Axes<'_>) -> Option<(usize, usize)> {
    let axis = axes.last()?;
    match axis.hop {
        Hop::Even(stride) => Some((axis.len, usize::try_from(stride).ok()?)),
        Hop::Picked(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array, s};
    use proptest::prelude::*;

    /// Does what a device would, in so many goes.
    fn copied(array: &HostArray) -> Vec<u8> {
        let rows = Rows::of(array);
        let mut bytes = vec![0_u8; array.bytes()];
        let (dst, step) = (bytes.as_mut_ptr(), rows.chunk_bytes());
        for start in (0..array.bytes()).step_by(step) {
            let end = array.bytes().min(start + step);
            let mut next = dst.wrapping_add(start);
            for copy in rows.copies(start, end, next) {
                assert_eq!(copy.dst, next, "pieces lie one behind the other");
                assert!(copy.pitch >= copy.width && copy.height >= copy.rows);
                next = next.wrapping_add(copy.bytes());
                for row in 0..copy.rows * copy.planes {
                    let place = row / copy.rows * copy.height + row % copy.rows;
                    let (from, to) =
                        (copy.src.wrapping_add(place * copy.pitch), copy.dst.wrapping_add(row * copy.width));
                    #[expect(unsafe_code, reason = "copies as a device would")]
                    // SAFETY: rows of the array, and as many bytes of the vector.
                    unsafe {
                        std::ptr::copy_nonoverlapping(from, to, copy.width);
                    }
                }
            }
        }
        bytes
    }

    #[test]
    fn a_box_of_a_volume_is_one_copy_and_picked_rows_are_one_each() {
        let volume = HostArray::from(Array::from_shape_fn((40, 50, 60), |(z, y, x)| (z * 3000 + y * 60 + x) as u32));
        let part = volume.slice(s![3..20, 7..40, 5..45]).unwrap();
        let rows = Rows::of(&part);
        assert_eq!((rows.pieces, rows.first.width, rows.first.rows, rows.first.planes), (1, 160, 33, 17));
        assert_eq!((rows.first.pitch, rows.first.height), (240, 50));
        let picked = volume.select_rows([7, 1, 1, 30]).unwrap();
        let rows = Rows::of(&picked);
        assert_eq!((rows.pieces, rows.first.width, rows.first.is_contiguous()), (4, 12_000, true));
        assert!(!rows.pay(), "rows of 12 KB are too short");
    }

    #[test]
    fn pitched_copies_count_each_and_contiguous_ones_sixteen_at_a_time() {
        let one = Pitched {
            dst: std::ptr::null_mut(),
            src: std::ptr::null(),
            width: 8,
            rows: 1,
            pitch: 8,
            planes: 1,
            height: 1,
        };
        assert_eq!(operations(&[one; 33], true), 3);
        assert_eq!(operations(&[one; 33], false), 33);
        assert_eq!(operations(&[Pitched { rows: 2, height: 2, ..one }; 33], true), 33);
    }

    /// Whether kernels fetch columns of bytes, so many from `first` on, where they fetch short rows.
    fn is_fetched(volume: &HostArray, first: usize, bytes: usize) -> bool {
        let part = volume.slice(s![.., 1..300, first..first + bytes]).unwrap();
        Rows::of(&part).pay_a_kernel(Fetches::ShortRows)
    }

    #[test]
    fn a_kernel_reads_short_rows_of_whole_vectors_anywhere_and_others_where_words_begin() {
        let volume = HostArray::from(Array::from_shape_fn((40, 301, 512), |(z, y, x)| (z * 3 + y + x) as u8));
        for (bytes, anywhere, at_words) in
            [(48, false, false), (64, true, true), (68, false, true), (66, false, false), (192, true, true)]
        {
            assert_eq!([is_fetched(&volume, 1, bytes), is_fetched(&volume, 4, bytes)], [anywhere, at_words], "{bytes}");
        }
        let longest = |bytes: usize| [1, 4].map(|first| is_fetched(&volume, first, bytes));
        assert_eq!(
            [longest(196), longest(256), longest(260), longest(272)],
            [[false; 2], [true; 2], [false; 2], [false; 2]]
        );
    }

    #[test]
    fn copies_take_as_long_as_the_slowest_of_link_engine_and_driver() {
        let volume = HostArray::from(Array::from_elem((128, 128, 128), 1_f32));
        let time = |count: usize, edge: usize| {
            let crops = volume.crops(vec![[0; 3]; count], [edge; 3]).unwrap();
            Rows::of(&crops).time_of_copies(crops.bytes(), 55_000).as_micros()
        };
        assert_eq!([time(2, 96), time(16, 64), time(128, 32), time(1024, 16)], [128, 425, 851, 4096]);
    }

    proptest! {
        #[test]
        fn copies_of_rows_bring_the_array_in_order(
            shape in [1_usize..6, 1_usize..7, 1_usize..5, 1_usize..9],
            order in Just([0_usize, 1, 2, 3]).prop_shuffle(),
            steps in [prop_oneof![3 => Just(1_isize), 1 => Just(-1), 1 => Just(2)], prop_oneof![3 => Just(1_isize), 1 => Just(-1), 1 => Just(2)]],
            cut in [0_usize..3, 0_usize..3],
            picked in proptest::option::of(proptest::collection::vec(0_usize..100, 1..9)),
        ) {
            let array = HostArray::from(Array::from_shape_fn(shape, |(a, b, c, d)| (a * 1000 + b * 100 + c * 10 + d) as u16));
            let [a, b] = [cut[0].min(shape[1] - 1) as isize, cut[1].min(shape[3] - 1) as isize];
            let view = array.slice(s![..;steps[0], a.., .., b..;steps[1]]).unwrap();
            let view = view.permuted_axes(order).unwrap();
            let len = view.shape()[0];
            let view = picked.map_or(view.clone(), |rows| view.select_rows(rows.iter().map(|row| row % len).collect::<Vec<_>>()).unwrap());
            let expected: Vec<u8> = view.to_array::<u16>().unwrap().iter().flat_map(|value| value.to_ne_bytes()).collect();
            prop_assert_eq!(copied(&view), expected);
        }
    }
}
