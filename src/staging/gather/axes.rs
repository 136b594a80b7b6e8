//! The axes of an array as memory has them, and the slabs of which any part of its logical order is made.

use std::ops::Range;

use smallvec::SmallVec;

use crate::HostArray;
use crate::batch::Step;

/// How to get from an axis' first index to another, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hop<'a> {
    /// So many bytes further for each index.
    Even(isize),
    /// So many elements, of so many bytes, from the first index for each.
    Picked(&'a [isize], isize),
}

/// An axis, or several that lie in memory as if they were one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a> {
    pub(crate) len: usize,
    pub(crate) hop: Hop<'a>,
    /// Elements of the logical order from one index to the next.
    pub(super) pitch: usize,
}

pub(crate) type Axes<'a> = SmallVec<[Axis<'a>; 4]>;

/// A part of the logical order that is a box: all indices of all of its axes.
pub(super) struct Slab<'a> {
    /// The address of its first element.
    pub(super) src: *const u8,
    /// Where it begins in the part that was asked for, in elements.
    pub(super) first: usize,
    /// Its elements.
    pub(super) len: usize,
    /// Its axes of two indices or more.
    pub(super) axes: Axes<'a>,
}

impl<'a> Axis<'a> {
    /// Bytes from the first index to another.
    pub(crate) fn at(&self, index: usize) -> isize {
        match self.hop {
            Hop::Even(stride) => stride.wrapping_mul(index.cast_signed()),
            Hop::Picked(table, size) => table[index] * size,
        }
    }

    /// Indices `range` of it, and how far the first of them is away.
    pub(super) fn part(&self, range: Range<usize>) -> (isize, Self) {
        let (len, pitch) = (range.len(), self.pitch);
        match self.hop {
            Hop::Even(_) => (self.at(range.start), Self { len, ..*self }),
            Hop::Picked(table, size) => (0, Self { len, hop: Hop::Picked(&table[range], size), pitch }),
        }
    }
}

/// The array's axes without those of length 1, neighbours joined where one stride walks both.
pub(crate) fn axes(array: &HostArray) -> Axes<'_> {
    let size = array.stored().size().cast_signed();
    let mut joined: Axes<'_> = SmallVec::new();
    for (len, step) in array.shape().iter().zip(array.steps()).filter(|(len, _)| **len != 1) {
        let hop = match step {
            Step::Strided(stride) => Hop::Even(stride.wrapping_mul(size)),
            Step::Indexed(table) => Hop::Picked(table, size),
        };
        if let (Some(outer), Hop::Even(inner)) = (joined.last_mut(), hop)
            && let Hop::Even(stride) = outer.hop
            && inner.checked_mul(len.cast_signed()) == Some(stride)
        {
            outer.len *= len;
            outer.hop = hop;
            continue;
        }
        joined.push(Axis { len: *len, hop, pitch: 1 });
    }
    let mut pitch = 1;
    for axis in joined.iter_mut().rev() {
        axis.pitch = pitch;
        pitch *= axis.len;
    }
    joined
}

/// Cuts elements `range` of the logical order of `axes`, which begin at `src`, into slabs: at most two for each axis.
pub(super) fn slabs<'a>(axes: &[Axis<'a>], src: *const u8, range: Range<usize>, mut visit: impl FnMut(&Slab<'a>)) {
    let mut at = range.start;
    while at < range.end {
        // The outermost axis of which a whole index begins here and fits.
        let outermost = |axis: &Axis<'_>| at.is_multiple_of(axis.pitch) && range.end - at >= axis.pitch;
        let Some(cut) = axes.iter().position(outermost) else {
            // Without axes there is one element.
            return visit(&Slab { src, first: 0, len: 1, axes: SmallVec::new() });
        };
        let index = |axis: &Axis<'_>| at / axis.pitch % axis.len;
        let fixed: isize = axes[..cut].iter().map(|axis| axis.at(index(axis))).sum();
        let (axis, begin) = (&axes[cut], index(&axes[cut]));
        let count = ((range.end - at) / axis.pitch).min(axis.len - begin);
        let (moved, part) = axis.part(begin..begin + count);
        let mut slab = Slab {
            src: src.wrapping_offset(fixed + moved),
            first: at - range.start,
            len: count * axis.pitch,
            axes: SmallVec::new(),
        };
        if count == 1 {
            slab.src = slab.src.wrapping_offset(part.at(0));
        } else {
            slab.axes.push(part);
        }
        slab.axes.extend_from_slice(&axes[cut + 1..]);
        visit(&slab);
        at += slab.len;
    }
}

/// Calls `visit` with the source and destination of each index of all `axes`, the last of them fastest.
///
/// `size` is that of the destination's elements.
#[inline]
pub(super) fn each(
    axes: &[Axis<'_>],
    src: *const u8,
    dst: *mut u8,
    size: usize,
    visit: &mut impl FnMut(*const u8, *mut u8),
) {
    let Some((axis, rest)) = axes.split_first() else { return visit(src, dst) };
    let pitch = axis.pitch.wrapping_mul(size);
    if !rest.is_empty() {
        for index in 0..axis.len {
            each(rest, src.wrapping_offset(axis.at(index)), dst.wrapping_add(index * pitch), size, visit);
        }
        return;
    }
    let (mut src, mut dst) = (src, dst);
    match axis.hop {
        Hop::Even(stride) => {
            for _ in 0..axis.len {
                visit(src, dst);
                src = src.wrapping_offset(stride);
                dst = dst.wrapping_add(pitch);
            }
        }
        Hop::Picked(table, bytes) => {
            for far in table {
                visit(src.wrapping_offset(far * bytes), dst);
                dst = dst.wrapping_add(pitch);
            }
        }
    }
}
