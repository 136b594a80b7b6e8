//! The ten lines of the README: batches in flight ahead of compute, each handed to a compute stream as it arrives.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

#[path = "options/device.rs"]
mod device;
#[path = "work/mod.rs"]
mod work;

use std::error::Error;

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, batch};

use device::Which;
use work::Work;

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

async fn run(device: &Device, compute: impl Work) -> Result<(), Box<dyn Error>> {
    let source = stream::iter(0..16_u8).map(|n| batch! { raw: vec![f32::from(n); 64 * 64], labels: vec![n; 64] });
    let mut batches = source.to_device(device).named("train").buffered(4);

    let mut sums = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let step = batch.on(compute.stream())?;
        sums.push(compute.sum(&step, "raw").await?);
        step.end()?;
    }
    for (n, sum) in sums.into_iter().enumerate() {
        println!("batch {n}: sum {}", sum.await?);
    }
    let stats = device.stats();
    let peak = stats.pipeline("train").map_or(0, |row| row.peak_in_flight);
    println!("{} bytes sent, at most {peak} batches in flight", stats.bytes_sent);
    Ok(())
}
