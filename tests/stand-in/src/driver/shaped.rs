//! Copies of boxes: rows of a plane, planes of a volume.
#![expect(unsafe_code, reason = "exports C functions")]

use super::copy::copy;
use crate::call::{Call, Needs, call};
use crate::code::Code;
use crate::copy::End;
use crate::refusal::Refusal;

/// The attribute that says how far rows may lie apart.
const MOST_PITCH: i32 = 11;

/// One side of a copy of a plane.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Side2 {
    x: usize,
    y: usize,
    memory: i32,
    host: usize,
    device: u64,
    array: usize,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2 {
    from: Side2,
    to: Side2,
    width: usize,
    height: usize,
}

/// One side of a copy of a volume.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Side3 {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory: i32,
    host: usize,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy3 {
    from: Side3,
    to: Side3,
    width: usize,
    height: usize,
    depth: usize,
}

/// One side, of a plane or a volume.
struct Side {
    start: End,
    origin: [usize; 3],
    pitch: usize,
    rows: usize,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(what: *const Copy2, stream: usize) -> i32 {
    call("cuMemcpy2DAsync_v2", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        if what.is_null() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "there is no description of the copy"));
        }
        // SAFETY: the driver's contract.
        let Copy2 { from, to, width, height } = unsafe { what.read() };
        call.result(format_args!("width={width} height={height}"));
        let side = |side: Side2| {
            let start = end(side.memory, side.host, side.device)?;
            Ok::<_, Refusal>(Side { start, origin: [side.x, side.y, 0], pitch: side.pitch, rows: 0 })
        };
        let parts = parts(call, &side(to)?, &side(from)?, [width, height, 1])?;
        // SAFETY: the driver's contract.
        unsafe { copy(call, stream, &parts) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3DAsync_v2(what: *const Copy3, stream: usize) -> i32 {
    call("cuMemcpy3DAsync_v2", Needs::Context, format_args!("stream={stream:#x}"), |call| {
        if what.is_null() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "there is no description of the copy"));
        }
        // SAFETY: the driver's contract.
        let Copy3 { from, to, width, height, depth } = unsafe { what.read() };
        call.result(format_args!("width={width} height={height} depth={depth}"));
        let side = |side: Side3| {
            let start = end(side.memory, side.host, side.device)?;
            Ok::<_, Refusal>(Side { start, origin: [side.x, side.y, side.z], pitch: side.pitch, rows: side.height })
        };
        let parts = parts(call, &side(to)?, &side(from)?, [width, height, depth])?;
        // SAFETY: the driver's contract.
        unsafe { copy(call, stream, &parts) }
    })
}

fn end(memory: i32, host: usize, device: u64) -> Result<End, Refusal> {
    match memory {
        1 => Ok(End::Host(host)),
        2 => Ok(End::Device(device)),
        4 => Ok(End::Either(device)),
        _ => Err(Code::NOT_SUPPORTED.into()),
    }
}

/// The rows of a box, each a part.
fn parts(
    call: &Call,
    to: &Side,
    from: &Side,
    [width, height, depth]: [usize; 3],
) -> Result<Vec<(End, End, usize)>, Refusal> {
    let most_pitch = call.settings.attribute(call.device_of(call.context), MOST_PITCH);
    for side in [to, from] {
        if usize::try_from(most_pitch).is_ok_and(|most| side.pitch > most) {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "the pitch is larger than the device takes"));
        }
        let has_rows = depth <= 1 || side.rows >= height + side.origin[1];
        if (height > 1 && side.pitch < width + side.origin[0]) || !has_rows {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "the box is larger than what it is in"));
        }
    }
    let at = |side: &Side, row: usize, plane: usize| {
        let [x, y, z] = side.origin;
        side.start.at(((z + plane) * side.rows + y + row) * side.pitch + x)
    };
    let rows = (0..depth).flat_map(|plane| (0..height).map(move |row| (row, plane)));
    Ok(rows.map(|(row, plane)| (at(to, row, plane), at(from, row, plane), width)).collect())
}
