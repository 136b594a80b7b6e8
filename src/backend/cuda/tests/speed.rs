//! How fast the kernels are beside the link that feeds them.

use std::time::{Duration, Instant};

use super::Bed;
use super::rearrange::{Order, rearrangement};
use crate::backend::{Backend, Copy, Direction, Rearrangement, Space};
use crate::batch::{Change, Normalization};
use crate::dtype::Dtype;

const TIMES: u32 = 20;

/// The mean time of what `enqueue` does on a stream of ours, after a first time.
fn timed(bed: &Bed, enqueue: impl Fn()) -> Duration {
    let stream = bed.backend.streams().relayout.clone();
    enqueue();
    bed.finish(&stream);
    let begun = Instant::now();
    (0..TIMES).for_each(|_| enqueue());
    bed.finish(&stream);
    begun.elapsed() / TIMES
}

#[test]
#[ignore = "needs a GPU"]
fn kernels_take_less_than_half_of_the_time_on_the_link() {
    let Some(bed) = Bed::new(|_| {}) else { panic!("no GPU") };
    assert!(bed.stand_in.is_none(), "no GPU");
    let (mean, std) = ([0.485, 0.456, 0.406].into(), [0.229, 0.224, 0.225].into());
    let image = Normalization { scale: 1.0 / 255.0, mean, std, axis: Some(1), dtype: Dtype::F32 };
    let cases: [(&str, Order, Dtype, Option<Change>); 9] = [
        ("f64, axes 3 1 2 0", (&[64, 128, 128, 128], &[3, 1, 2, 0], &[]), Dtype::F64, None),
        ("f32 to channels first", (&[256, 3, 224, 224], &[0, 3, 1, 2], &[]), Dtype::F32, None),
        ("u8 to channels first", (&[256, 3, 224, 224], &[0, 3, 1, 2], &[]), Dtype::U8, None),
        ("u8 to channels last", (&[256, 224, 224, 3], &[0, 2, 3, 1], &[]), Dtype::U8, None),
        ("images normalized", (&[256, 3, 224, 224], &[0, 3, 1, 2], &[]), Dtype::U8, Some(Change::Normalize(image))),
        ("u8 transposed", (&[8192, 8192], &[1, 0], &[]), Dtype::U8, None),
        ("u8 backwards", (&[64 << 20], &[0], &[0]), Dtype::U8, None),
        ("f32 to f16", (&[64 << 20], &[0], &[]), Dtype::F32, Some(Change::Cast(Dtype::F16))),
        ("f64 transposed to f32", (&[4096, 4096], &[1, 0], &[]), Dtype::F64, Some(Change::Cast(Dtype::F32))),
    ];
    let stream = bed.backend.streams().relayout.clone();
    let mut slow = Vec::new();
    for (name, order, stored, change) in cases {
        let (plan, first) = rearrangement(order, stored, change);
        let bytes = plan.bytes() / plan.dtype().size() * stored.size();
        let (src, dst) = (bed.alloc(Space::Device, bytes), bed.alloc(Space::Device, plan.bytes()));
        let host = bed.alloc(Space::Pinned, bytes);
        let link = timed(&bed, || {
            let copy = Copy { dst: src, src: host, bytes, direction: Direction::HostToDevice };
            // SAFETY: both ends live as long as the bed.
            unsafe { bed.backend.copy(&stream, copy, &[]) }.unwrap();
        });
        let start = src.wrapping_offset(first * stored.size().cast_signed()).cast_const();
        let kernel = timed(&bed, || {
            // SAFETY: as above.
            unsafe { bed.backend.rearrange(&stream, Rearrangement { src: start, dst, ..plan.clone() }, &[]) }.unwrap();
        });
        let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
        println!("{name}: {:.0} GB/s of the source by the kernel, {:.1} over the link", rate(kernel), rate(link));
        if kernel > link / 2 {
            slow.push(name);
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}
