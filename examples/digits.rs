//! The main job: a two-layer perceptron learns handwritten digits, fed through `.to_device(&device).buffered(n)`.
//!
//! The data is in `examples/data/digits.npz`. `--help` tells the options.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program tells what it does")]

#[path = "digits/data.rs"]
mod data;
#[path = "digits/model.rs"]
mod model;
#[path = "digits/options.rs"]
mod options;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use inflight::{BatchStreamExt, ComputeStream, Device, HostArray, HostBatch, HostStream, Overlap, batch};

use data::Digits;
use model::Perceptron;
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
    match futures::executor::block_on(run(&options, &device)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the device; with `--single-stream` its copies share the compute stream.
fn device(options: &Options) -> inflight::Result<Device> {
    let builder = match options.device.as_str() {
        "auto" => Device::builder(),
        "host" => Device::builder().host(),
        cuda => Device::builder().cuda(cuda.trim_start_matches("cuda:").parse().unwrap_or(usize::MAX)),
    };
    if !options.single_stream {
        return builder.build();
    }
    let stream = ComputeStream::Host(HostStream::new()?);
    builder.overlap(Overlap::Off(&stream)).build()
}

/// One batch of rows: pixels as `f32`, labels as they are.
fn rows(images: &HostArray, labels: &HostArray, indices: &[usize]) -> inflight::Result<HostBatch> {
    Ok(batch! { pixels: images.select_rows(indices)?.cast::<f32>(), labels: labels.select_rows(indices)? })
}

async fn run(options: &Options, device: &Device) -> Result<(), Box<dyn Error>> {
    let mut digits = Digits::load("examples/data/digits.npz", options.seed)?;
    if options.permute_labels {
        digits.permute_labels();
    }
    let stream = match device.compute_stream()? {
        ComputeStream::Host(stream) => stream,
        other => return Err(format!("this version trains on the host, not on {other:?}").into()),
    };
    let model = Perceptron::new(&stream, options.seed)?;
    let steps = digits.train.len().div_ceil(options.batch_size) * options.epochs;
    let (images, labels) = digits.arrays();
    let progress =
        ProgressBar::new(steps as u64).with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?);

    let (begun, mut waited) = (Instant::now(), Duration::ZERO);
    let mut losses = Losses::default();
    for epoch in 0..options.epochs {
        let order = digits.shuffled(epoch);
        let source = stream::iter(order.chunks(options.batch_size)).map(|indices| rows(&images, &labels, indices));
        let mut batches = source.to_device(device).named("train").buffered(options.depth);
        loop {
            let asked = Instant::now();
            let Some(batch) = batches.try_next().await? else { break };
            waited += asked.elapsed();
            let step = batch.on(&stream)?;
            let trained = model.train(&step);
            step.end()?;
            losses.then(trained, device.read_wait(&model.loss, &stream).await?).await?;
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
        right += model.count_right(&batch.on(&stream)?).await?;
    }
    let waiting = 100.0 * waited.as_secs_f64() / trained_in.as_secs_f64();
    println!("last training loss {:.4}", losses.last);
    println!("test accuracy {:.3} on {}", right as f64 / digits.test.len() as f64, device.name());
    println!("{:.0} batches/s, waiting for data {waiting:.1} %", steps as f64 / trained_in.as_secs_f64());
    Ok(())
}

/// The loss of each step, looked at one step late: so nobody waits for the step that was just queued.
#[derive(Default)]
struct Losses {
    pending: Option<(inflight::HostTask<()>, inflight::Readback<f32>)>,
    last: f32,
}

impl Losses {
    async fn then(&mut self, trained: inflight::HostTask<()>, loss: inflight::Readback<f32>) -> inflight::Result<()> {
        let earlier = self.pending.replace((trained, loss));
        self.look(earlier).await
    }

    async fn finish(&mut self) -> inflight::Result<()> {
        let earlier = self.pending.take();
        self.look(earlier).await
    }

    async fn look(
        &mut self,
        earlier: Option<(inflight::HostTask<()>, inflight::Readback<f32>)>,
    ) -> inflight::Result<()> {
        if let Some((trained, loss)) = earlier {
            trained.await?;
            self.last = loss.await?.iter().copied().sum();
        }
        Ok(())
    }
}
