//! Forward begins when `raw` is there, while labels that are ten times as many bytes are still on their way.
//!
//! On the host backend the link is modelled (100 MB/s, 100 µs a copy), and so are the times that are printed.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

#[path = "options/device.rs"]
mod device;
#[path = "work/mod.rs"]
mod work;

use std::error::Error;
use std::time::{Duration, Instant};

use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, ComputeStream, Device, DeviceKind, HostBatch, LinkModel, Transfer, batch};
use ndarray::Array4;

use device::Which;
use work::Work;

const SIDE: usize = 64;

fn example(n: u8) -> HostBatch {
    let raw = Array4::from_elem((1, SIDE, SIDE, SIDE), f32::from(n));
    let labels = Array4::from_elem((10, SIDE, SIDE, SIDE), f32::from(n));
    batch! { raw: raw, labels: labels }
}

fn main() -> Result<(), Box<dyn Error>> {
    let link = LinkModel { bytes_per_second: 100e6, latency: Duration::from_micros(100) };
    let device = Which::from_arguments()?.builder().link_model(link).build()?;
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
    let is_modelled = device.kind() == DeviceKind::Host;
    let unit = if is_modelled { "ms (modelled)" } else { "ms" };
    // Made beforehand, so that no time is spent on it here. The moment of submission travels along.
    let examples: Vec<_> = (0..3).map(example).collect();
    let source = stream::iter(examples).map(|batch| batch.with_meta(Instant::now()));
    // Depth 1: each batch sets out when it is asked for, so that its times tell of it alone.
    let mut batches = source.to_device(device).map(Transfer::early).buffered(1);
    while let Some(batch) = batches.try_next().await? {
        let submitted = *batch.meta::<Instant>().ok_or("the moment was sent along")?;
        let labels = batch.field("labels")?;

        let step = batch.on(compute.stream())?;
        let forward = compute.sum(&step, "raw").await?;
        let forward = async { forward.await.map(|sum| (submitted.elapsed(), sum)) };

        // The loss needs the labels: queued behind forward, it waits for them on the stream.
        let rest = async {
            step.queued("labels").await?;
            let loss = compute.sum(&step, "labels").await?;
            step.end()?;
            labels.ready().await?;
            Ok((submitted.elapsed(), loss.await?))
        };

        let ((forward, sum), (whole, loss)) = try_join(forward, rest).await?;
        let [forward_ms, whole_ms] = [forward, whole].map(|time| time.as_secs_f64() * 1e3);
        println!(
            "batch {}: forward was done after {forward_ms:.1} {unit}, the whole batch was there after {whole_ms:.1} {unit}",
            batch.index()
        );
        assert!(forward < whole || !is_modelled, "forward waits for raw only");
        assert_eq!(sum, batch.index() as f32 * (SIDE * SIDE * SIDE) as f32);
        assert_eq!(loss, batch.index() as f32 * (10 * SIDE * SIDE * SIDE) as f32);
    }
    Ok(())
}
