//! When work on `raw` can begin while labels ten times as large follow, against `raw` sent alone.

use std::sync::Arc;

use inflight::cudarc::driver::CudaStream;
use inflight::{ComputeStream, HostArray, HostBatch, HostStream};

use super::raw::spin_until_done;
use super::rig::{Outcome, Rig, Row, median, sha256, timed};

const RAW: usize = 16 << 20;
const LABELS: usize = 10 * RAW;
const RUNS: usize = 15;

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let compute = rig.compute_stream()?;
    let (few, many) = if rig.is_host() { (RAW / 16, LABELS / 16) } else { (RAW, LABELS) };
    rig.title(&format!("work on {few} bytes begins while {many} bytes of labels follow, medians of {RUNS}"));
    let pinned = (rig.pinned_arrays(&rig.device, 1, few)?, rig.pinned_arrays(&rig.device, 1, many)?);
    let pageable = |bytes: usize| HostArray::from((0..bytes).map(|place| (place / 7) as u8).collect::<Vec<u8>>());
    for (kind, raw, labels) in
        [("page-locked", pinned.0[0].clone(), pinned.1[0].clone()), ("pageable", pageable(few), pageable(many))]
    {
        let alone = || HostBatch::new().with("raw", raw.clone());
        let (mut begun, mut own, mut arrived) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..RUNS {
            own.push(begin(rig, alone(), &compute)?.0);
            let (seconds, sha) = begin(rig, alone().with("labels", labels.clone()), &compute)?;
            begun.push(seconds);
            arrived = sha;
        }
        rig.row(&Row {
            job: format!("early, {kind}"),
            bytes: few,
            seconds: median(begun.clone()),
            limit_seconds: median(own.clone()),
            sha256: &arrived,
            note: format!("begins after {:.3} × raw's own time", median(begun) / median(own)),
            ..Row::default()
        });
    }
    Ok(())
}

/// Seconds until work on `raw` is reached by the compute stream, and what it finds there.
fn begin(rig: &Rig, batch: HostBatch, compute: &ComputeStream) -> Outcome<(f64, String)> {
    rig.runtime.block_on(rig.device.drain())?;
    match compute {
        ComputeStream::Cuda(stream) => begin_on_gpu(rig, batch, stream),
        ComputeStream::Host(stream) => begin_on_host(rig, batch, stream),
        other => Err(format!("{other:?} is not known here").into()),
    }
}

fn begin_on_host(rig: &Rig, batch: HostBatch, stream: &HostStream) -> Outcome<(f64, String)> {
    let (seconds, lease) = timed(|| {
        let begun = rig.runtime.block_on(async {
            let batch = rig.device.transfer(batch).await?.early().await?;
            let lease = batch.on(stream)?;
            lease.queued("raw").await?;
            lease.run_on(&["raw"], |_| Ok(())).await?;
            Ok::<_, inflight::Error>(lease)
        });
        Ok(begun?)
    })?;
    let back = rig.runtime.block_on(lease.read_back::<u8>("raw")?)?;
    Ok((seconds, sha256(back.as_slice().ok_or("not contiguous")?)))
}

fn begin_on_gpu(rig: &Rig, batch: HostBatch, compute: &Arc<CudaStream>) -> Outcome<(f64, String)> {
    let (seconds, lease) = timed(|| {
        let lease = rig.runtime.block_on(async {
            let batch = rig.device.transfer(batch).await?.early().await?;
            let lease = batch.on(compute)?;
            lease.queued("raw").await?;
            lease.view::<u8>("raw")?;
            Ok::<_, inflight::Error>(lease)
        })?;
        spin_until_done(compute)?;
        Ok(lease)
    })?;
    let back = rig.runtime.block_on(lease.read_back::<u8>("raw")?)?;
    Ok((seconds, sha256(back.as_slice().ok_or("not contiguous")?)))
}
