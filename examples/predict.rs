//! Prediction: batches in, every score out, in order. Both directions are in flight while the stream computes.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::cell::RefCell;
use std::collections::VecDeque;

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{
    BatchStreamExt, ComputeStream, Device, DeviceBatch, HostArray, HostBatch, HostStream, HostTask, Result, batch,
};

const ROWS: usize = 4;
const BATCHES: u16 = 8;

/// One batch: pixels, and room for a score for each row. The room costs no host memory; the number travels along.
fn rows(n: u16) -> Result<HostBatch> {
    let pixels = ndarray::Array2::from_shape_fn((ROWS, 100), |(row, _)| f32::from(n) + row as f32 / 4.0);
    Ok(batch! { pixels: pixels, scores: HostArray::zeros::<f32>(ROWS)? }.with_meta(n))
}

/// Queues the forward pass, which writes the scores in place; only they go home.
fn forward(batch: DeviceBatch, compute: &HostStream) -> Result<(DeviceBatch, HostTask<()>)> {
    let mut step = batch.on(compute)?;
    let work = step.run_mut(|fields| {
        let (pixels, mut scores) = fields.split::<f32, f32>("pixels", "scores")?;
        for (score, row) in scores.iter_mut().zip(pixels.outer_iter()) {
            *score = row.mean().unwrap_or(0.0);
        }
        Ok(())
    });
    step.end()?;
    Ok((batch.select(["scores"])?, work))
}

async fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Device::from_env()?;
    let ComputeStream::Host(compute) = device.compute_stream()? else {
        return Err("the work of this example is for a host stream".into());
    };
    // A forward pass that fails leaves the scores as they were: only its task knows.
    let works = RefCell::new(VecDeque::new());
    let mut results = stream::iter((0..BATCHES).map(rows))
        .to_device(&device)
        .buffered(4)
        .map(|batch| -> Result<_> {
            let (scores, work) = forward(batch?, &compute)?;
            works.borrow_mut().push_back(work);
            Ok(scores)
        })
        .read_back()
        .buffered(2);

    let mut next = 0;
    while let Some(result) = results.try_next().await? {
        let work = works.borrow_mut().pop_front().ok_or("each result has its forward pass")?;
        work.await?;
        let (n, scores) = (result.meta::<u16>().copied(), result.field("scores")?.to_array::<f32>()?);
        assert_eq!(n, Some(next), "in order");
        assert!((0..ROWS).all(|row| scores[row] == f32::from(next) + row as f32 / 4.0), "each row has its score");
        println!("batch {next}: {scores}");
        next += 1;
    }
    assert_eq!(next, BATCHES, "every prediction");
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    futures::executor::block_on(run())
}
