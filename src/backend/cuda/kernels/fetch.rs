//! [`Launch`]: what `fetch.cu` is launched with to read pieces of page-locked memory.

use std::ffi::CStr;

use crate::backend::{MOST_FETCHED, Pitched};

/// Units of a launch at most.
const MOST_UNITS: usize = i32::MAX as usize;

/// `Pieces` of the kernels.
#[repr(C)]
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    pitch: u64,
    plane: u64,
    width: u32,
    rows: u32,
    planes: u32,
    count: u32,
    src: [u64; MOST_FETCHED],
}

/// How a kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Four bytes at once, where such begin.
    Words,
    /// Sixteen, likewise.
    Vectors,
    /// Sixteen, from rows of so many that begin anywhere.
    Anywhere,
}

impl Reads {
    /// Each, with its kernel, in the order of their numbers.
    pub(super) const ALL: [(Self, &CStr); 3] =
        [(Self::Words, c"fetch_4"), (Self::Vectors, c"fetch_16"), (Self::Anywhere, c"fetch_anywhere_16")];

    const fn unit(self) -> usize {
        match self {
            Self::Words => 4,
            Self::Vectors | Self::Anywhere => 16,
        }
    }

    /// Where rows may begin.
    const fn begins(self) -> usize {
        match self {
            Self::Words => 4,
            Self::Vectors => 16,
            Self::Anywhere => 1,
        }
    }
}

/// A launch: of which kernel, from where, and where to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) reads: Reads,
    pub(super) pieces: Box<Pieces>,
    pub(super) dst: u64,
}

impl Launch {
    /// The launch for copies of one shape whose targets lie one behind the other. `None` for what one launch can't do.
    pub(super) fn of(copies: &[Pitched]) -> Option<Self> {
        let first = copies.first()?;
        let plane = first.pitch.checked_mul(first.height)?;
        let from = copies.iter().fold(first.pitch | plane, |all, copy| all | copy.src.addr());
        let suits = |reads: &Reads| {
            (first.dst.addr() | first.width).is_multiple_of(reads.unit()) && from.is_multiple_of(reads.begins())
        };
        let reads = [Reads::Vectors, Reads::Anywhere, Reads::Words].into_iter().find(suits)?;
        let unit = reads.unit();
        let count = first.bytes().checked_mul(copies.len())? / unit;
        let lies = |(number, copy): (usize, &Pitched)| {
            copy.dst.addr() == first.dst.addr() + number * first.bytes()
                && Pitched { src: first.src, dst: first.dst, ..*copy } == *first
        };
        if copies.len() > MOST_FETCHED || count > MOST_UNITS || !copies.iter().enumerate().all(lies) {
            return None;
        }
        let number = |value: usize| u32::try_from(value).ok();
        let mut pieces = Box::new(Pieces {
            pitch: first.pitch as u64,
            plane: plane as u64,
            width: number(first.width / unit)?,
            rows: number(first.rows)?,
            planes: number(first.planes)?,
            count: number(count)?,
            src: [0; MOST_FETCHED],
        });
        pieces.src.iter_mut().zip(copies).for_each(|(src, copy)| *src = copy.src.expose_provenance() as u64);
        Some(Self { reads, pieces, dst: first.dst.addr() as u64 })
    }

    /// One that does nothing.
    pub(super) fn idle(reads: Reads) -> Self {
        let pieces = Pieces { pitch: 0, plane: 0, width: 1, rows: 1, planes: 1, count: 0, src: [0; MOST_FETCHED] };
        Self { reads, pieces: Box::new(pieces), dst: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use ndarray::{Array, s};
    use proptest::prelude::*;

    use super::*;
    use crate::HostArray;
    use crate::plan::{Fetches, Rows};

    fn copies(places: &[(usize, usize)]) -> Vec<Pitched> {
        let shape = |(src, dst)| Pitched {
            src: std::ptr::without_provenance(src),
            dst: std::ptr::without_provenance_mut(dst),
            width: 64,
            rows: 3,
            pitch: 128,
            planes: 2,
            height: 5,
        };
        places.iter().copied().map(shape).collect()
    }

    #[test]
    fn pieces_lie_where_the_kernel_looks() {
        let places = [offset_of!(Pieces, plane), offset_of!(Pieces, width), offset_of!(Pieces, count)];
        assert_eq!((places, offset_of!(Pieces, src)), ([8, 16, 28], 32));
        assert!(size_of::<Pieces>() + 8 <= 4096, "a launch's arguments");
    }

    #[test]
    fn each_way_has_its_place() {
        assert!(Reads::ALL.iter().enumerate().all(|(place, (reads, _))| *reads as usize == place));
    }

    #[test]
    fn a_launch_reads_as_much_at_once_as_all_places_allow() {
        let launch = Launch::of(&copies(&[(4096, 1024), (512, 1024 + 384)])).unwrap();
        assert_eq!((launch.reads, launch.dst), (Reads::Vectors, 1024));
        let Pieces { pitch, plane, width, rows, planes, count, src } = *launch.pieces;
        assert_eq!((pitch, plane, width, rows, planes, count), (128, 640, 4, 3, 2, 48));
        assert_eq!(src[..3], [4096, 512, 0]);
        for odd in [1, 2, 4, 8] {
            let launch = Launch::of(&copies(&[(4096, 1024), (512 + odd, 1024 + 384)])).unwrap();
            assert_eq!((launch.reads, launch.pieces.width), (Reads::Anywhere, 4), "whole units from anywhere");
        }
        let narrow = |odd: usize| {
            let narrow = |(nth, copy)| Pitched {
                width: 60,
                dst: std::ptr::without_provenance_mut(1024 + 360 * nth),
                src: std::ptr::without_provenance(4096 + odd),
                ..copy
            };
            Launch::of(&copies(&[(0, 0), (0, 0)]).into_iter().enumerate().map(narrow).collect::<Vec<_>>())
        };
        let launch = narrow(4).unwrap();
        assert_eq!((launch.reads, launch.pieces.width), (Reads::Words, 15));
        assert_eq!(narrow(2), None, "two bytes at once are too few");
    }

    #[test]
    fn what_differs_in_shape_or_lies_apart_is_no_launch() {
        assert_eq!(Launch::of(&[]), None);
        assert_eq!(Launch::of(&copies(&[(4096, 1024), (512, 2048)])), None);
        let mut differ = copies(&[(4096, 1024), (512, 1024 + 384)]);
        differ[1].height = 6;
        assert_eq!(Launch::of(&differ), None);
        let many: Vec<_> = (0..=MOST_FETCHED).map(|piece| (4096, 1024 + 384 * piece)).collect();
        assert_eq!(Launch::of(&copies(&many)), None);
        assert!(Launch::of(&copies(&many[1..])).is_some());
    }

    proptest! {
        #[test]
        fn whatever_a_plan_has_fetched_is_a_launch(
            start in 0_usize..40,
            width in prop_oneof![1_usize..600, (1_usize..150).prop_map(|words| 4 * words)],
            pitch in 600_usize..680,
            picked in proptest::option::of(proptest::collection::vec(0_usize..90, 60..90)),
            every in 1_isize..4,
        ) {
            let volume = HostArray::from(Array::<u8, _>::zeros((90, 60, pitch + 40)));
            let part = volume.slice(s![..;every, 1.., start..start + width]).unwrap();
            let len = part.shape()[0];
            let part = match picked {
                Some(rows) => part.select_rows(rows.iter().map(|row| row % len).collect::<Vec<_>>()).unwrap(),
                None => part,
            };
            let rows = Rows::of(&part);
            if rows.pay_a_kernel(Fetches::AllRows) {
                let dst = std::ptr::without_provenance_mut(1 << 20);
                let copies = rows.copies(0, rows.launch_bytes().min(part.bytes()), dst);
                prop_assert!(Launch::of(&copies).is_some());
            }
        }
    }
}
