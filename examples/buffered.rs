//! The ten lines of the README: batches in flight ahead of compute, each handed to a compute stream as it arrives.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, Result, batch};

fn main() -> Result<()> {
    futures::executor::block_on(run())
}

async fn run() -> Result<()> {
    let device = Device::from_env()?;
    let compute = device.compute_stream()?;
    let source = stream::iter(0..16_u8).map(|n| batch! { raw: vec![f32::from(n); 64 * 64], labels: vec![n; 64] });
    let mut batches = source.to_device(&device).named("train").buffered(4);

    let mut means = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let ComputeStream::Host(stream) = &compute else { break };
        let step = batch.on(stream)?;
        means.push(step.run(|fields| Ok(fields.view::<f32>("raw")?.mean().unwrap_or(0.0))));
        step.end()?;
    }
    for (n, mean) in means.into_iter().enumerate() {
        println!("batch {n}: mean {}", mean.await?);
    }
    let stats = device.stats();
    let row = stats.pipeline("train").map_or(0, |row| row.peak_in_flight);
    println!("{} bytes sent, at most {row} batches in flight", stats.bytes_sent);
    Ok(())
}
