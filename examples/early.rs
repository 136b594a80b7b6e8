//! Forward begins when `raw` is there, while labels that are forty times as many bytes are still on their way.
//!
//! On the host backend the link is modelled (100 MB/s, 100 µs a copy), and so are the times that are printed.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::time::{Duration, Instant};

use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, HostBatch, LinkModel, Transfer, batch};
use ndarray::Array4;

const SIDE: usize = 64;

fn example(n: u8) -> HostBatch {
    let raw = Array4::from_elem((1, SIDE, SIDE, SIDE), n);
    let labels = Array4::from_elem((10, SIDE, SIDE, SIDE), f32::from(n));
    batch! { raw: raw, labels: labels }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures::executor::block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let link = LinkModel { bytes_per_second: 100e6, latency: Duration::from_micros(100) };
    let device = Device::builder().host().link_model(link).build()?;
    let ComputeStream::Host(compute) = device.compute_stream()? else {
        return Err("a host device was asked for".into());
    };

    // Made beforehand, so that no time is spent on it here. The moment of submission travels along.
    let examples: Vec<_> = (0..3).map(example).collect();
    let source = stream::iter(examples).map(|batch| batch.with_meta(Instant::now()));
    // Depth 1: each batch sets out when it is asked for, so that its times tell of it alone.
    let mut batches = source.to_device(&device).map(Transfer::early).buffered(1);
    while let Some(batch) = batches.try_next().await? {
        let submitted = *batch.meta::<Instant>().ok_or("the moment was sent along")?;
        let labels = batch.field("labels")?;

        let step = batch.on(&compute)?;
        let forward = step.run_on(&["raw"], move |fields| {
            let began = submitted.elapsed();
            let sum: u64 = fields.view::<u8>("raw")?.iter().map(|voxel| u64::from(*voxel)).sum();
            Ok((began, sum))
        });

        // The loss needs the labels: queued behind forward, it waits for them on the stream.
        step.queued("labels").await?;
        let loss = step.run(|fields| Ok(fields.view::<f32>("labels")?.mean().unwrap_or(0.0)));
        step.end()?;

        let arrived = async { labels.ready().await.map(|()| submitted.elapsed()) };
        let ((began, sum), whole) = try_join(forward, arrived).await?;
        println!(
            "batch {}: forward began after {:.1} ms (modelled), the whole batch was there after {:.1} ms (modelled)",
            batch.index(),
            began.as_secs_f64() * 1e3,
            whole.as_secs_f64() * 1e3
        );
        assert!(began < whole, "forward waits for raw only");
        println!("  forward began {:.1} ms (modelled) earlier", (whole - began).as_secs_f64() * 1e3);
        assert_eq!(sum, batch.index() * (SIDE * SIDE * SIDE) as u64);
        assert_eq!(loss.await?, batch.index() as f32);
    }
    Ok(())
}
