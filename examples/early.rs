//! Forward begins when `raw` is there, while labels ten times as large are still on their way.
//!
//! On the host backend the link is modelled (1 GB/s, 100 µs), and so are the times that are printed.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, LinkModel, Transfer, batch};
use ndarray::Array4;

const SIDE: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures::executor::block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let link = LinkModel { bytes_per_second: 1e9, latency: Duration::from_micros(100) };
    let device = Device::builder().link_model(link).build()?;
    let ComputeStream::Host(compute) = device.compute_stream()? else {
        return Err("a host device was asked for".into());
    };

    let submitted = Instant::now();
    let source = stream::iter(0..3_u8).map(|n| {
        let raw = Array4::from_elem((1, SIDE, SIDE, SIDE), n);
        let labels = Array4::from_elem((10, SIDE, SIDE, SIDE), f32::from(n));
        batch! { raw: raw, labels: labels }
    });
    let mut batches = source.to_device(&device).map(Transfer::early).buffered(2);
    while let Some(batch) = batches.try_next().await? {
        let step = batch.on(&compute)?;
        let forward = step.run(move |fields| {
            let sum: u64 = fields.view::<u8>("raw")?.iter().map(|voxel| u64::from(*voxel)).sum();
            Ok((submitted.elapsed(), sum))
        });
        let (began, sum) = forward.await?;
        batch.field("labels")?.ready().await?;
        let whole = submitted.elapsed();
        println!(
            "batch {}: forward began after {began:.1?} modelled, all of it was there after {whole:.1?} modelled",
            batch.index()
        );
        assert!(began < whole, "forward waits for raw only");
        assert_eq!(sum, batch.index() * (SIDE * SIDE * SIDE) as u64);
        step.end()?;
    }
    Ok(())
}
