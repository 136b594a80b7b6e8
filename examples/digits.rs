//! The main job: a two-layer perceptron learns handwritten digits, fed through `.to_device(&device).buffered(n)`.
//!
//! The data is in `examples/data/digits.npz`. `--help` tells the options.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program tells what it does")]

#[path = "digits/data.rs"]
mod data;
#[path = "options/device.rs"]
mod device;
#[cfg(feature = "cuda")]
#[path = "digits/gpu.rs"]
mod gpu;
#[path = "digits/host.rs"]
mod host;
#[path = "digits/model.rs"]
mod model;
#[path = "digits/options.rs"]
mod options;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use inflight::{
    BatchStreamExt, ComputeStream, Device, HostArray, HostBatch, HostStream, Overlap, Readback, Result, batch,
};

use data::Digits;
#[cfg(feature = "cuda")]
use gpu::GpuPerceptron;
use host::HostPerceptron;
use model::Model;
use options::Options;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("{message}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    let device = match device(&options) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("--device {}: {error}", options.device);
            return ExitCode::from(2);
        }
    };
    match futures::executor::block_on(on(&device, &options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the device; with `--single-stream` its copies share the compute stream.
fn device(options: &Options) -> Result<Device> {
    let device = options.device.builder().build()?;
    if !options.single_stream {
        return Ok(device);
    }
    let stream = match device.compute_stream()? {
        // A host stream is of the device that made it, a GPU's of its context.
        ComputeStream::Host(_) => ComputeStream::Host(HostStream::new()?),
        stream => stream,
    };
    options.device.builder().overlap(Overlap::Off(&stream)).build()
}

/// Makes the network on the device, and trains it.
async fn on(device: &Device, options: &Options) -> Result<(), Box<dyn Error>> {
    match device.compute_stream()? {
        ComputeStream::Host(stream) => {
            run(options, device, HostPerceptron::new(device, stream, options.seed).await?).await
        }
        #[cfg(feature = "cuda")]
        ComputeStream::Cuda(stream) => {
            run(options, device, GpuPerceptron::new(device, stream, options.seed).await?).await
        }
        other => Err(format!("there is no network for {other:?}").into()),
    }
}

/// One batch of rows: pixels as `f32`, labels as they are.
fn rows(images: &HostArray, labels: &HostArray, indices: &[usize]) -> Result<HostBatch> {
    Ok(batch! { pixels: images.select_rows(indices)?.cast::<f32>(), labels: labels.select_rows(indices)? })
}

async fn run(options: &Options, device: &Device, mut model: impl Model) -> Result<(), Box<dyn Error>> {
    let mut digits = Digits::load("examples/data/digits.npz", options.seed)?;
    if options.permute_labels {
        digits.permute_labels();
    }
    let steps = digits.train.len().div_ceil(options.batch_size) * options.epochs;
    let (images, labels) = digits.arrays();
    let progress =
        ProgressBar::new(steps as u64).with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?);

    let (begun, mut waited) = (Instant::now(), Duration::ZERO);
    let mut losses = Losses { pending: None, last: f32::NAN };
    for epoch in 0..options.epochs {
        let order = digits.shuffled(epoch);
        let source = stream::iter(order.chunks(options.batch_size)).map(|indices| rows(&images, &labels, indices));
        let mut batches = source.to_device(device).named("train").buffered(options.depth);
        loop {
            let asked = Instant::now();
            let Some(batch) = batches.try_next().await? else { break };
            waited += asked.elapsed();
            let step = batch.on(model.stream())?;
            let trained = model.train(&step)?;
            step.end()?;
            losses.then(trained, device.read_wait(model.loss(), model.stream()).await?).await?;
            progress.inc(1);
            progress.set_message(format!("epoch {} loss {:.3}", epoch + 1, losses.last));
        }
    }
    losses.finish().await?;
    progress.finish_and_clear();
    let trained_in = begun.elapsed();

    let stats = device.stats();
    let sent = stats.pipeline("train").map_or(0, |row| row.bytes);
    let expected = (options.epochs * digits.train.len() * data::ROW_BYTES) as u64;
    assert_eq!(sent, expected, "bytes sent are epochs × bytes of the training rows");

    let source = stream::iter(digits.test.chunks(options.batch_size)).map(|indices| rows(&images, &labels, indices));
    let mut batches = source.to_device(device).named("test").buffered(options.depth);
    let mut right = 0;
    while let Some(batch) = batches.try_next().await? {
        right += model.count_right(batch.on(model.stream())?).await?;
    }
    let waiting = 100.0 * waited.as_secs_f64() / trained_in.as_secs_f64();
    println!("last training loss {:.4}", losses.last);
    println!("test accuracy {:.3} on {}", right as f64 / digits.test.len() as f64, device.name());
    println!("{:.0} batches/s, waiting for data {waiting:.1} %", steps as f64 / trained_in.as_secs_f64());
    Ok(())
}

/// The loss of each step, looked at one step late: so nobody waits for the step that was just queued.
struct Losses<S> {
    pending: Option<(S, Readback<f32>)>,
    last: f32,
}

impl<S: Future<Output = Result<()>>> Losses<S> {
    async fn then(&mut self, trained: S, loss: Readback<f32>) -> Result<()> {
        let earlier = self.pending.replace((trained, loss));
        self.look(earlier).await
    }

    async fn finish(&mut self) -> Result<()> {
        let earlier = self.pending.take();
        self.look(earlier).await
    }

    async fn look(&mut self, earlier: Option<(S, Readback<f32>)>) -> Result<()> {
        if let Some((trained, loss)) = earlier {
            trained.await?;
            self.last = loss.await?[0];
        }
        Ok(())
    }
}
