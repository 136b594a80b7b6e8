//! Training at depth 4 and validation at depth 1, in two spawned tasks on one device.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

#[path = "options/device.rs"]
mod device;
#[path = "work/mod.rs"]
mod work;

use std::error::Error;

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, Result, batch};

use device::Which;
use work::Work;

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let device = Which::from_arguments()?.builder().build()?;
    match (device.compute_stream()?, device.compute_stream()?) {
        (ComputeStream::Host(one), ComputeStream::Host(two)) => {
            both(&device, work::Host(one), work::Host(two)).await?;
        }
        #[cfg(feature = "cuda")]
        (ComputeStream::Cuda(one), ComputeStream::Cuda(two)) => {
            both(&device, work::Gpu::new(&device, one)?, work::Gpu::new(&device, two)?).await?;
        }
        other => return Err(format!("no work is known for {other:?}").into()),
    }
    for row in device.stats().pipelines.iter().filter(|row| row.batches > 0) {
        println!(
            "{:<10} {:>3} batches, {:>9} bytes, at most {} in flight, {} waits",
            row.name, row.batches, row.bytes, row.peak_in_flight, row.waits
        );
    }
    Ok(())
}

async fn both<W: Work + Send + 'static>(device: &Device, one: W, two: W) -> Result<(), Box<dyn Error>> {
    let train = tokio::spawn(pipeline(device.clone(), one, "train", 64, 4));
    let validation = tokio::spawn(pipeline(device.clone(), two, "validation", 16, 1));
    println!("train sum {}, validation sum {}", train.await??, validation.await??);
    Ok(())
}

/// Runs a pipeline of `count` batches; returns the sum of all that was sent.
async fn pipeline(device: Device, compute: impl Work, name: &str, count: u16, depth: usize) -> Result<f64> {
    let source = stream::iter(0..count).map(|n| batch! { x: vec![f32::from(n); 64 * 1024] });
    let mut batches = source.to_device(&device).named(name).buffered(depth);
    let mut sums = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let step = batch.on(compute.stream())?;
        sums.push(compute.sum(&step, "x").await?);
        step.end()?;
    }
    let mut total = 0.0;
    for sum in sums {
        total += f64::from(sum.await?);
    }
    Ok(total)
}
