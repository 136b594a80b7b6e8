//! The kernels of the crate: order, types and normalized images, by hand.
#![expect(unsafe_code, reason = "makes driver calls")]

use inflight_stand_in::*;

use crate::bed::{Bed, cu, ok};

/// `Layout` of the kernels, with two axes.
#[repr(C)]
struct Layout {
    count: u64,
    shape: [u64; 8],
    strides: [i64; 8],
    axes: u32,
    across: u32,
    stored: u32,
    wanted: u32,
}

#[repr(C)]
struct Normalization {
    scale: f32,
    axis: u32,
    wanted: u32,
    mean: [f32; 64],
    std: [f32; 64],
}

const U8: u32 = 1;
const I32: u32 = 7;
const F16: u32 = 9;
const BF16: u32 = 10;
const F32: u32 = 11;
const F64: u32 = 12;

fn layout([rows, columns]: [u64; 2], [down, right]: [i64; 2], (stored, wanted): (u32, u32)) -> Layout {
    let (mut shape, mut strides) = ([0; 8], [0; 8]);
    (shape[0], shape[1], strides[0], strides[1]) = (rows, columns, down, right);
    Layout { count: rows * columns, shape, strides, axes: 2, across: 0, stored, wanted }
}

/// Runs a kernel on those bytes, from the one at `first` on; what comes out.
fn run(name: &str, content: &[u8], first: u64, layout: &Layout, by: Option<&Normalization>, bytes: usize) -> Vec<u8> {
    let bed = Bed::by_hand();
    let (stream, src, dst) = (bed.stream(), bed.device(content.len()), bed.device(bytes));
    ok(cu!(cuMemcpyHtoD_v2(src, content.as_ptr() as usize, content.len())));
    let types = ["u64", "u64", "align 8 .b8 layout[152]", "align 4 .b8 by[524]"];
    let kernel = bed.kernel(name, if by.is_some() { &types } else { &types[..3] });
    let from = src + first;
    let by = by.map_or(std::ptr::null(), |by| std::ptr::from_ref(by).cast());
    let arguments = [(&raw const from).cast(), (&raw const dst).cast(), std::ptr::from_ref(layout).cast(), by];
    ok(cu!(cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, arguments.as_ptr(), std::ptr::null())));
    assert_eq!(bed.content(dst, bytes), vec![0xCD; bytes]);
    assert_eq!(stand_in_advance(1), 1);
    bed.content(dst, bytes)
}

fn bytes<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

#[test]
fn elements_are_taken_where_strides_lead() {
    let content: Vec<u8> = (0..12).collect();
    for kernel in ["gather_1", "tile_1"] {
        let transposed = run(kernel, &content, 0, &layout([4, 3], [1, 4], (U8, U8)), None, 12);
        assert_eq!(transposed, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    }
    let backwards = run("gather_2", &content, 10, &layout([2, 3], [-3, -1], (0, 0)), None, 12);
    assert_eq!(backwards, [10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1]);
    assert_eq!(run("gather_4", &content, 4, &layout([2, 1], [0, 1], (0, 0)), None, 8), [4, 5, 6, 7, 4, 5, 6, 7]);
}

#[test]
fn casts_round_once_and_saturate() {
    let cast = |content: &[u8], types, bytes| {
        let count = 8 * content.len() as u64 / if types == (F64, F16) || types == (F64, I32) { 64 } else { 32 };
        run("tile_cast", content, 0, &layout([1, count], [0, 1], types), None, bytes)
    };
    let doubles = [1.0 + 2_f64.powi(-11), 1.0 + 2_f64.powi(-11) + 2_f64.powi(-40), 65_520.0, -6e-8, f64::NAN];
    let halves = [0x3c00_u16, 0x3c01, 0x7c00, 0x8001, 0x7e00];
    assert_eq!(cast(&bytes(doubles.map(f64::to_ne_bytes)), (F64, F16), 10), bytes(halves.map(u16::to_ne_bytes)));
    let singles = [1.0_f32, 1.0 + 2_f32.powi(-8), 1.0 + 2_f32.powi(-8) + 2_f32.powi(-20), f32::MAX, -0.0];
    let brains = [0x3f80_u16, 0x3f80, 0x3f81, 0x7f80, 0x8000];
    assert_eq!(cast(&bytes(singles.map(f32::to_ne_bytes)), (F32, BF16), 10), bytes(brains.map(u16::to_ne_bytes)));
    let reals = [-1.9_f64, 1e10, -1e10, f64::NAN, f64::INFINITY];
    let wholes = [-1, i32::MAX, i32::MIN, 0, i32::MAX];
    assert_eq!(cast(&bytes(reals.map(f64::to_ne_bytes)), (F64, I32), 20), bytes(wholes.map(i32::to_ne_bytes)));
    assert_eq!(cast(&bytes([-1_i32, 300].map(i32::to_ne_bytes)), (I32, U8), 2), [255, 44]);
    let exact = bytes([-1.0_f64, 16_777_216.0].map(f64::to_ne_bytes));
    assert_eq!(cast(&bytes([-1_i32, 1 << 24].map(i32::to_ne_bytes)), (I32, F64), 16), exact);
}

#[test]
fn images_are_normalized_by_channel() {
    let (mut mean, mut std) = ([0.0; 64], [1.0; 64]);
    (mean[1], std[1]) = (0.5, 0.25);
    let by = Normalization { scale: 0.5, axis: 0, wanted: F32, mean, std };
    let found = run("gather_normalized", &[2, 4, 6, 8], 0, &layout([2, 2], [1, 2], (U8, F32)), Some(&by), 16);
    assert_eq!(found, bytes([1.0_f32, 3.0, 6.0, 14.0].map(f32::to_ne_bytes)));
    let by = Normalization { wanted: F16, ..by };
    let found = run("tile_normalized", &[2, 4], 0, &layout([1, 2], [0, 1], (U8, F16)), Some(&by), 4);
    assert_eq!(found, bytes([0x3c00_u16, 0x4000].map(u16::to_ne_bytes)));
}

#[test]
fn a_source_that_is_not_all_there_is_a_fault() {
    let bed = Bed::by_hand();
    let (stream, src, dst) = (bed.stream(), bed.device(11), bed.device(12));
    let kernel = bed.kernel("gather_1", &["u64", "u64", "align 8 .b8 layout[152]"]);
    let layout = layout([4, 3], [1, 4], (U8, U8));
    let arguments = [(&raw const src).cast(), (&raw const dst).cast(), (&raw const layout).cast()];
    ok(cu!(cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, arguments.as_ptr(), std::ptr::null())));
    assert_eq!(stand_in_advance(1), 1);
    assert_eq!(cu!(cuStreamQuery(stream)), 700);
}
