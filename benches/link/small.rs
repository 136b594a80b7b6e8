//! Batches of 4 KiB from pageable memory, with the source ahead: what one costs.

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Device, DeviceBatch, HostArray, HostBatch};

use super::check::check;
use super::pool::Pattern;
use super::raw::{Raw, memcpy};
use super::reach::Reach;
use super::rig::{Outcome, Rig, Row, median, processor_time, timed};

const BYTES: usize = 4 << 10;
const DEPTHS: [usize; 2] = [8, 64];
const RUNS: usize = 5;
/// Arrays that are sent in turn.
const ARRAYS: usize = 1024;

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let count = rig.fewer(40_000);
    rig.title(&format!("batches of {BYTES} bytes from pageable memory, {count} a run, against the raw loop"));
    let array = |number: usize| -> HostArray {
        (0..BYTES).map(|place| u8::at(number * BYTES + place)).collect::<Vec<_>>().into()
    };
    let arrays: Vec<HostArray> = (0..ARRAYS).map(array).collect();
    let batch = |number: usize| HostBatch::new().with("x", arrays[number % ARRAYS].clone());
    let last = (count - 1) % ARRAYS * BYTES;
    for depth in DEPTHS {
        let raw = rig.context.as_ref().map(|context| Raw::new(context, BYTES, depth)).transpose()?;
        let (mut ours, mut limit, mut cores) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..=RUNS {
            let alone = match &raw {
                Some(raw) => raw.uploads(count)?,
                None => memcpy(BYTES, count)?,
            };
            let before = processor_time();
            let (seconds, sent) = timed(|| rig.runtime.block_on(send(&rig.device, depth, count, &batch)))?;
            let busy = (processor_time() - before) / seconds;
            if number == 0 {
                check(rig, &sent.ok_or("nothing was sent")?, &[BYTES], |at| u8::at(last + at[0]))?;
                continue;
            }
            limit.push(alone);
            ours.push(seconds);
            cores.push(busy);
        }
        rig.row(&Row {
            job: format!("small depth {depth}"),
            bytes: BYTES * count,
            batches: count,
            note: format!("raw {:.2} µs a batch", median(limit.clone()) * 1e6 / count as f64),
            seconds: median(ours),
            limit_seconds: median(limit),
            cores: Some(median(cores)),
            reaches: &[Reach::Micros(2.5)],
            ..Row::default()
        });
    }
    Ok(())
}

/// Sends `batch(0)`, `batch(1)` and so on; the last of them.
pub(crate) async fn send(
    device: &Device,
    depth: usize,
    count: usize,
    batch: impl Fn(usize) -> HostBatch,
) -> Outcome<Option<DeviceBatch>> {
    let mut batches = stream::iter((0..count).map(batch)).to_device(device).buffered(depth);
    let mut last = None;
    while let Some(batch) = batches.try_next().await? {
        last = Some(batch);
    }
    Ok(last)
}
