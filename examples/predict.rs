//! Prediction: batches in, every score out, in order. Both directions are in flight while the stream computes.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, DeviceBatch, HostArray, HostBatch, HostStream, Result, batch};

const ROWS: usize = 4;
const BATCHES: u16 = 8;

/// One batch: pixels, and room for a score for each row. The room costs no host memory.
fn rows(n: u16) -> Result<HostBatch> {
    let pixels = ndarray::Array2::from_shape_fn((ROWS, 100), |(row, _)| f32::from(n) + row as f32 / 10.0);
    Ok(batch! { pixels: pixels, scores: HostArray::zeros::<f32>(ROWS)? })
}

/// Queues the forward pass, which writes the scores in place; only they go home.
fn forward(batch: Result<DeviceBatch>, stream: &HostStream) -> Result<DeviceBatch> {
    let batch = batch?;
    let mut step = batch.on(stream)?;
    let work = step.run_mut(|fields| {
        let (pixels, mut scores) = fields.split::<f32, f32>("pixels", "scores")?;
        for (score, row) in scores.iter_mut().zip(pixels.outer_iter()) {
            *score = row.mean().unwrap_or(0.0);
        }
        Ok(())
    });
    drop(work);
    step.end()?;
    batch.select(["scores"])
}

fn main() -> Result<()> {
    futures::executor::block_on(async {
        let device = Device::from_env()?;
        let ComputeStream::Host(stream) = device.compute_stream()? else { return Ok(()) };
        let results = stream::iter((0..BATCHES).map(rows))
            .to_device(&device)
            .buffered(4)
            .map(|batch| forward(batch, &stream))
            .read_back()
            .buffered(2);
        let mut results = std::pin::pin!(results);
        let mut last = f32::NEG_INFINITY;
        while let Some(result) = results.try_next().await? {
            let scores = result.field("scores")?.to_array::<f32>()?;
            println!("{:?}", scores.as_slice().unwrap_or(&[]));
            assert!(scores.iter().all(|score| std::mem::replace(&mut last, *score) < *score), "in order");
        }
        Ok(())
    })
}
