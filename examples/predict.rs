//! Prediction: batches in, every score out, in order. Both directions are in flight while the stream computes.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

#[path = "options/device.rs"]
mod device;
#[path = "work/mod.rs"]
mod work;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, DeviceBatch, HostArray, HostBatch, Result, batch};

use device::Which;
use work::Work;

const ROWS: usize = 4;
const BATCHES: u16 = 8;

/// One batch: pixels, and room for a score for each row. The room costs no host memory; the number travels along.
fn rows(n: u16) -> Result<HostBatch> {
    let pixels = ndarray::Array2::from_shape_fn((ROWS, 100), |(row, _)| f32::from(n) + row as f32 / 4.0);
    Ok(batch! { pixels: pixels, scores: HostArray::zeros::<f32>(ROWS)? }.with_meta(n))
}

/// Queues the forward pass, which writes the scores in place; only they go home.
fn forward(batch: DeviceBatch, compute: &impl Work) -> Result<(DeviceBatch, BoxFuture<'static, Result<()>>)> {
    let mut step = batch.on(compute.stream())?;
    let work = compute.sum_rows(&mut step, "pixels", "scores")?;
    step.end()?;
    Ok((batch.select(["scores"])?, work))
}

async fn run(device: &Device, compute: impl Work) -> Result<(), Box<dyn Error>> {
    // A forward pass that fails leaves the scores as they were: only its future knows.
    let works = RefCell::new(VecDeque::new());
    let mut results = stream::iter((0..BATCHES).map(rows))
        .to_device(device)
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
        let expected = |row| 100.0 * (f32::from(next) + row as f32 / 4.0);
        assert!((0..ROWS).all(|row| scores[row] == expected(row)), "each row has its score");
        println!("batch {next}: {scores}");
        next += 1;
    }
    assert_eq!(next, BATCHES, "every prediction");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Which::from_arguments()?.builder().build()?;
    futures::executor::block_on(async {
        match device.compute_stream()? {
            ComputeStream::Host(stream) => run(&device, work::Host(stream)).await,
            #[cfg(feature = "cuda")]
            ComputeStream::Cuda(stream) => run(&device, work::Gpu::new(&device, stream)?).await,
            other => Err(format!("no work is known for {other:?}").into()),
        }
    })
}
