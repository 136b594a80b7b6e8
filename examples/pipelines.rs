//! Training at depth 4 and validation at depth 1, in two spawned tasks on one device.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, HostStream, Result, batch};

/// Runs a pipeline of `count` batches; returns the sum of all that was sent.
async fn pipeline(device: Device, compute: HostStream, name: &str, count: u16, depth: usize) -> Result<f64> {
    let source = stream::iter(0..count).map(|n| batch! { x: vec![f32::from(n); 64 * 1024] });
    let mut batches = source.to_device(&device).named(name).buffered(depth);
    let mut sums = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let step = batch.on(&compute)?;
        sums.push(step.run(|fields| Ok(fields.view::<f32>("x")?.iter().map(|x| f64::from(*x)).sum::<f64>())));
        step.end()?;
    }
    let mut total = 0.0;
    for sum in sums {
        total += sum.await?;
    }
    Ok(total)
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Device::from_env()?;
    let (ComputeStream::Host(one), ComputeStream::Host(two)) = (device.compute_stream()?, device.compute_stream()?)
    else {
        return Err("the work of this example is for host streams".into());
    };
    let train = tokio::spawn(pipeline(device.clone(), one, "train", 64, 4));
    let validation = tokio::spawn(pipeline(device.clone(), two, "validation", 16, 1));
    println!("train sum {}, validation sum {}", train.await??, validation.await??);
    for row in device.stats().pipelines.iter().filter(|row| row.batches > 0) {
        println!(
            "{:<10} {:>3} batches, {:>9} bytes, at most {} in flight, {} waits",
            row.name, row.batches, row.bytes, row.peak_in_flight, row.waits
        );
    }
    Ok(())
}
