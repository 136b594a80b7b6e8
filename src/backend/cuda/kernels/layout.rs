//! [`Plan`]: which kernel does a rearrangement, and its arguments. The axes are in `axes.rs`.

use super::axes::{Axis, across, simplified, squares, widened};
use crate::backend::{Fault, MOST_AXES, MOST_CHANNELS, Rearrangement};
use crate::batch::{Change, Normalization};
use crate::dtype::Dtype;

/// Threads of a block.
const THREADS: u64 = 256;
/// `Layout` of the kernels.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) count: u64,
    pub(super) shape: [u64; MOST_AXES],
    pub(super) strides: [i64; MOST_AXES],
    pub(super) axes: u32,
    pub(super) across: u32,
    pub(super) stored: u32,
    pub(super) wanted: u32,
}

/// `Normalization` of the kernels.
#[repr(C)]
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Normalizing {
    pub(super) scale: f32,
    pub(super) axis: u32,
    pub(super) wanted: u32,
    pub(super) mean: [f32; MOST_CHANNELS],
    pub(super) std: [f32; MOST_CHANNELS],
}

/// What is done with each element.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// It is copied; so many bytes at once.
    Copy(usize),
    Cast,
    Normalize(Box<Normalizing>),
}

/// A launch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    pub(super) job: Job,
    /// Through squares in shared memory.
    pub(super) tiled: bool,
    /// Blocks of threads that have something to do.
    pub(super) blocks: u64,
}

impl Plan {
    /// The plan; an error where it is more than the kernels do.
    pub(super) fn of(rearrangement: &Rearrangement) -> Result<Self, Fault> {
        let change = rearrangement.change.as_ref().filter(|change| **change != Change::Cast(rearrangement.stored));
        let channel = match change {
            Some(Change::Normalize(by)) if by.mean.len() > 1 => by.axis,
            _ => None,
        };
        let (mut axes, mut size) = (simplified(rearrangement, channel), rearrangement.stored.size());
        if change.is_none() {
            let address = rearrangement.src.addr() | rearrangement.dst.addr();
            size = widened(&mut axes, size, address);
        }
        let job = match change {
            None => Job::Copy(size),
            Some(Change::Cast(_)) => Job::Cast,
            Some(Change::Normalize(by)) => Job::Normalize(Box::new(Normalizing::of(by, &axes)?)),
        };
        let across = across(&axes, size);
        let layout = Layout::of(&axes, across, (rearrangement.stored, rearrangement.dtype()))?;
        let blocks = across.map_or(layout.count.div_ceil(THREADS), |across| squares(&axes, across));
        Ok(Self { layout, job, tiled: across.is_some(), blocks })
    }
}

impl Layout {
    fn of(axes: &[Axis], across: Option<usize>, (stored, wanted): (Dtype, Dtype)) -> Result<Self, Fault> {
        if axes.len() > MOST_AXES {
            return Err(Fault::new(Fault::NOT_SUPPORTED, "a rearrangement of many axes"));
        }
        let mut layout = Self {
            count: axes.iter().map(|axis| axis.extent as u64).product(),
            axes: axes.len() as u32,
            across: across.unwrap_or(0) as u32,
            stored: number_of(stored),
            wanted: number_of(wanted),
            ..Self::default()
        };
        for (number, axis) in axes.iter().enumerate() {
            (layout.shape[number], layout.strides[number]) = (axis.extent as u64, axis.stride as i64);
        }
        Ok(layout)
    }
}

impl Normalizing {
    fn of(by: &Normalization, axes: &[Axis]) -> Result<Self, Fault> {
        if by.mean.len() > MOST_CHANNELS {
            return Err(Fault::new(Fault::NOT_SUPPORTED, "a normalization of many channels"));
        }
        let axis = axes.iter().position(|axis| axis.is_channel).unwrap_or(MOST_AXES) as u32;
        let mut of = Self { scale: by.scale, axis, wanted: number_of(by.dtype), ..Self::default() };
        of.mean.iter_mut().zip(by.mean.iter()).for_each(|(of, by)| *of = *by);
        of.std.iter_mut().zip(by.std.iter()).for_each(|(of, by)| *of = *by);
        Ok(of)
    }
}

/// `Type` of the kernels.
const fn number_of(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Bool => 0,
        Dtype::U8 => 1,
        Dtype::U16 => 2,
        Dtype::U32 => 3,
        Dtype::U64 => 4,
        Dtype::I8 => 5,
        Dtype::I16 => 6,
        Dtype::I32 => 7,
        Dtype::I64 => 8,
        Dtype::F16 => 9,
        Dtype::Bf16 => 10,
        Dtype::F32 => 11,
        Dtype::F64 => 12,
    }
}

impl Default for Normalizing {
    fn default() -> Self {
        let (axis, one) = (MOST_AXES as u32, [1.0; MOST_CHANNELS]);
        Self { scale: 1.0, axis, wanted: number_of(Dtype::F32), mean: one, std: one }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(stored: Dtype, shape: &[usize], strides: &[isize], change: Option<Change>) -> Plan {
        let (src, dst) = (std::ptr::without_provenance(4096), std::ptr::without_provenance_mut(8192));
        Plan::of(&Rearrangement { src, dst, stored, shape: shape.into(), strides: strides.into(), change }).unwrap()
    }

    fn axes(plan: &Plan) -> (Vec<u64>, Vec<i64>) {
        let axes = plan.layout.axes as usize;
        (plan.layout.shape[..axes].to_vec(), plan.layout.strides[..axes].to_vec())
    }

    fn normalized(axis: usize, channels: usize) -> Option<Change> {
        let values: std::sync::Arc<[f32]> = (1..=channels).map(|channel| channel as f32).collect();
        let (mean, std) = (values.clone(), values);
        Some(Change::Normalize(Normalization { scale: 0.5, mean, std, axis: Some(axis), dtype: Dtype::F32 }))
    }

    #[test]
    fn axes_that_go_on_in_the_source_are_one() {
        let plan = plan(Dtype::F64, &[4, 1, 3, 5, 7], &[105, 9, 1, 21, 3], Some(Change::Cast(Dtype::F32)));
        assert_eq!(axes(&plan), (vec![4, 3, 35], vec![105, 1, 3]));
        assert_eq!((plan.job, plan.layout.stored, plan.layout.wanted), (Job::Cast, 12, 11));
        let same = self::plan(Dtype::F64, &[4], &[2], Some(Change::Cast(Dtype::F64)));
        assert_eq!(same.job, Job::Copy(8));
    }

    #[test]
    fn backwards_and_repeated_axes_stay_what_they_are() {
        let reversed = plan(Dtype::F64, &[4, 6], &[-6, -1], None);
        assert_eq!((axes(&reversed), reversed.job), ((vec![24], vec![-1]), Job::Copy(8)));
        let repeated = plan(Dtype::F64, &[4, 6], &[0, 1], None);
        assert_eq!((axes(&repeated), repeated.job), ((vec![4, 3], vec![0, 1]), Job::Copy(16)));
        let one = plan(Dtype::F64, &[4, 6], &[0, 0], None);
        assert_eq!((axes(&one), one.tiled), ((vec![24], vec![0]), false));
    }

    #[test]
    fn neighbours_are_copied_together_as_far_as_alignment_allows() {
        let wide = plan(Dtype::U8, &[10, 20, 48], &[48, 480, 1], None);
        assert_eq!((axes(&wide), wide.job), ((vec![10, 20, 3], vec![3, 30, 1]), Job::Copy(16)));
        let gone = plan(Dtype::U8, &[10, 20, 4], &[4, 40, 1], None);
        assert_eq!((axes(&gone), gone.job), ((vec![10, 20], vec![1, 10]), Job::Copy(4)));
        let odd = plan(Dtype::U8, &[10, 20, 4], &[5, 50, 1], None);
        assert_eq!((axes(&odd), odd.job), ((vec![10, 20, 4], vec![5, 50, 1]), Job::Copy(1)));
        let unaligned = Rearrangement {
            src: std::ptr::without_provenance(4098),
            dst: std::ptr::without_provenance_mut(8192),
            stored: Dtype::U8,
            shape: [10, 20, 4].as_slice().into(),
            strides: [4, 40, 1].as_slice().into(),
            change: None,
        };
        assert_eq!(Plan::of(&unaligned).unwrap().job, Job::Copy(2));
    }

    #[test]
    fn far_neighbours_are_read_in_squares() {
        let transposed = plan(Dtype::F64, &[64, 128, 128, 128], &[1, 8192, 64, 1 << 20], None);
        assert!(transposed.tiled);
        assert_eq!((transposed.layout.across, transposed.blocks), (0, 2 * 4 * 128 * 128));
        assert_eq!(axes(&transposed), (vec![64, 128 * 128, 128], vec![1, 64, 1 << 20]));
        for (shape, strides) in
            [([3, 1000], [1, 3]), ([1000, 3], [1, 1000]), ([100, 100], [0, 100]), ([20, 20], [1, 3])]
        {
            let near = plan(Dtype::F32, &shape, &strides, None);
            assert!(!near.tiled, "{shape:?} {strides:?}");
            assert_eq!(near.blocks, (shape[0] * shape[1]).div_ceil(256) as u64);
        }
    }

    #[test]
    fn the_channels_axis_is_told_apart() {
        let channels = plan(Dtype::U8, &[2, 3, 8, 8], &[192, 64, 8, 1], normalized(1, 3));
        assert_eq!(axes(&channels), (vec![2, 3, 64], vec![192, 64, 1]));
        let Job::Normalize(by) = channels.job else { panic!("{channels:?}") };
        assert_eq!((by.axis, by.mean[2], by.std[1], by.scale), (1, 3.0, 2.0, 0.5));
        let one = plan(Dtype::U8, &[2, 3, 8, 8], &[192, 64, 8, 1], normalized(1, 1));
        let Job::Normalize(by) = &one.job else { panic!("{one:?}") };
        assert_eq!((axes(&one).0, by.axis as usize), (vec![384], MOST_AXES));
    }

    #[test]
    fn what_the_kernels_have_no_room_for_is_refused() {
        let mut many = Rearrangement {
            src: std::ptr::without_provenance(4096),
            dst: std::ptr::without_provenance_mut(8192),
            stored: Dtype::U8,
            shape: [2; 9].as_slice().into(),
            strides: [3; 9].as_slice().into(),
            change: None,
        };
        assert_eq!(Plan::of(&many).unwrap_err().code, 801);
        (many.shape, many.strides) = ([65].as_slice().into(), [1].as_slice().into());
        many.change = normalized(0, 65);
        assert_eq!(Plan::of(&many).unwrap_err().code, 801);
    }

    #[test]
    fn arguments_lie_where_the_kernels_look() {
        use std::mem::offset_of;
        let layout = [offset_of!(Layout, shape), offset_of!(Layout, strides), offset_of!(Layout, axes)];
        assert_eq!((layout, size_of::<Layout>()), ([8, 72, 136], 152));
        assert_eq!((offset_of!(Normalizing, mean), size_of::<Normalizing>()), (12, 524));
    }
}
