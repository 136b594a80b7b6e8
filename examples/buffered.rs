//! The ten lines of the README: batches in flight ahead of compute, each handed to a compute stream as it arrives.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, batch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures::executor::block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::from_env()?;
    let ComputeStream::Host(compute) = device.compute_stream()? else {
        return Err("the work of this example is for a host stream".into());
    };
    let source = stream::iter(0..16_u8).map(|n| batch! { raw: vec![f32::from(n); 64 * 64], labels: vec![n; 64] });
    let mut batches = source.to_device(&device).named("train").buffered(4);

    let mut sums = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let step = batch.on(&compute)?;
        sums.push(step.run(|fields| Ok(fields.view::<f32>("raw")?.sum())));
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
