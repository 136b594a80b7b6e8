//! Batches that are page-locked already, against the raw loop of copy, record and query.

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, DeviceBatch, HostArray};

use super::raw::{Raw, memcpy};
use super::reach::Reach;
use super::rig::{Outcome, Rig, Row, median, processor_time, sha256, timed};

/// Bytes of a batch of 256 images.
const BYTES: usize = 38_535_168;
/// Bytes of a batch, and how many are sent.
const SIZES: [(usize, usize); 4] = [(4 << 10, 40_000), (64 << 10, 20_000), (1 << 20, 2_000), (BYTES, 100)];
const DEPTHS: [usize; 3] = [2, 4, 8];
const RUNS: usize = 5;
/// Arrays that are sent in turn.
const ARRAYS: usize = 4;

/// What is done with each batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It is dropped as it comes.
    None,
    /// A lease with a view, as users have.
    Lease,
}

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    for (bytes, count) in SIZES {
        let count = rig.fewer(count);
        rig.title(&format!(
            "page-locked batches of {bytes} bytes, {count} a run, medians of {RUNS}, against the raw loop"
        ));
        let arrays = rig.pinned_arrays(&rig.device, ARRAYS, bytes)?;
        let compute = rig.compute_stream()?;
        for depth in DEPTHS {
            measure(rig, &compute, &arrays, depth, count)?;
        }
    }
    Ok(())
}

fn measure(rig: &Rig, compute: &ComputeStream, arrays: &[HostArray], depth: usize, count: usize) -> Outcome<()> {
    let bytes = arrays.first().map_or(0, HostArray::bytes);
    let raw = rig.context.as_ref().map(|context| Raw::new(context, bytes, depth)).transpose()?;
    let send = |used| send(&rig.device, compute, arrays, depth, count, used);
    let (mut limit, mut blocking, mut plain, mut leased, mut cpu) = (vec![], vec![], vec![], vec![], vec![]);
    let mut last = None;
    for _ in 0..RUNS {
        limit.push(match &raw {
            Some(raw) => raw.uploads(count)?,
            None => memcpy(bytes, count)?,
        });
        blocking.push(timed(|| futures::executor::block_on(send(Use::None)))?.0);
        let before = processor_time();
        let (seconds, batch) = timed(|| rig.runtime.block_on(send(Use::None)))?;
        cpu.push((processor_time() - before) / count as f64 * 1e6);
        plain.push(seconds);
        last = batch;
        leased.push(timed(|| rig.runtime.block_on(send(Use::Lease)))?.0);
    }
    let arrived = arrived(rig, last)?;
    let reaches: &[Reach] = if bytes == BYTES { &[Reach::OfLimit(0.99)] } else { &[] };
    let (limit, each) = (median(limit), |seconds: f64| seconds / count as f64 * 1e6);
    let note = format!("raw {:.2} µs a batch", each(limit));
    for (job, seconds, cpu) in [
        ("tokio", median(plain), format!(", {:.2} µs of processor time", median(cpu))),
        ("block_on", median(blocking), String::new()),
        ("tokio, each in a lease", median(leased), String::new()),
    ] {
        rig.row(&Row {
            job: format!("pinned {bytes} depth {depth} {job}"),
            bytes: bytes * count,
            seconds,
            limit_seconds: limit,
            sha256: &arrived,
            note: format!("{note}{cpu}"),
            batches: count,
            reaches,
            ..Row::default()
        });
    }
    Ok(())
}

async fn send(
    device: &Device,
    compute: &ComputeStream,
    arrays: &[HostArray],
    depth: usize,
    count: usize,
    used: Use,
) -> Outcome<Option<DeviceBatch>> {
    let source = stream::iter((0..count).map(|number| ("x", arrays[number % arrays.len()].clone())));
    let mut batches = source.to_device(device).buffered(depth);
    let mut last = None;
    while let Some(batch) = batches.try_next().await? {
        if used == Use::Lease {
            let lease = batch.on(compute)?;
            lease.view::<u8>("x")?;
            lease.end()?;
        }
        last = Some(batch);
    }
    Ok(last)
}

/// The SHA-256 of a batch's bytes as they lie on the device.
fn arrived(rig: &Rig, batch: Option<DeviceBatch>) -> Outcome<String> {
    let batch = batch.ok_or("nothing was sent")?;
    let back = rig.runtime.block_on(batch.field("x")?.read_back::<u8>()?)?;
    Ok(sha256(back.as_slice().ok_or("not contiguous")?))
}
