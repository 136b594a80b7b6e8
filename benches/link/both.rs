//! Both directions at once, as in `examples/predict.rs`: batches go out and results come back.

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Device, HostArray, HostBatch};

use super::raw::{Raw, memcpy};
use super::rig::{Outcome, Rig, Row, median, sha256, timed};

const BYTES: usize = 38_535_168;
const RUNS: usize = 5;

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let count = rig.fewer(200);
    rig.title(&format!("{count} batches of {BYTES} bytes out and back, both directions at once, medians of {RUNS}"));
    let arrays = rig.pinned_arrays(&rig.device, 4, BYTES)?;
    let raw = rig.context.as_ref().map(|context| Raw::new(context, BYTES, 2)).transpose()?;
    let (mut ours, mut limit, mut back) = (Vec::new(), Vec::new(), None);
    for _ in 0..RUNS {
        limit.push(match &raw {
            Some(raw) => raw.both_ways(count)?,
            None => memcpy(BYTES, 2 * count)?,
        });
        let (seconds, last) = timed(|| rig.runtime.block_on(out_and_back(&rig.device, &arrays, count)))?;
        ours.push(seconds);
        back = last;
    }
    let back = back.ok_or("nothing came back")?.field("x")?.to_array::<u8>()?;
    let sent = arrays[(count - 1) % arrays.len()].to_array::<u8>()?;
    if back != sent {
        return Err("what came back is not what was sent".into());
    }
    rig.row(&Row {
        job: "both directions, sum".to_owned(),
        bytes: 2 * BYTES * count,
        seconds: median(ours),
        limit_seconds: median(limit),
        sha256: &sha256(back.as_slice().ok_or("not contiguous")?),
        ..Row::default()
    });
    Ok(())
}

async fn out_and_back(device: &Device, arrays: &[HostArray], count: usize) -> Outcome<Option<HostBatch>> {
    let source = stream::iter((0..count).map(|number| ("x", arrays[number % arrays.len()].clone())));
    let mut results = source.to_device(device).buffered(4).read_back().buffered(4);
    let mut last = None;
    while let Some(result) = results.try_next().await? {
        last = Some(result);
    }
    Ok(last)
}
