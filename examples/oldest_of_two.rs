//! Two transfers kept under way by hand, the oldest awaited in each step; and the same loop with `.buffered(2)`.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

#[path = "options/device.rs"]
mod device;

use std::collections::VecDeque;

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Device, DeviceBatch, HostBatch, Result, batch};

use device::Which;

const STEPS: usize = 10;

fn source() -> impl Iterator<Item = HostBatch> {
    (0..STEPS).map(|n| batch! { x: vec![n as f32; 10_000], y: vec![n as u8; 100] })
}

/// What a step would do with the batch: here it adds up what it is sent.
async fn step(batch: DeviceBatch, sum: &mut f64) -> Result<()> {
    let x = batch.field("x")?.read_back::<f32>()?.await?;
    *sum += x.iter().map(|x| f64::from(*x)).sum::<f64>();
    Ok(())
}

async fn by_hand(device: &Device) -> Result<(usize, f64)> {
    let (mut waiting, mut source, mut steps, mut sum) = (VecDeque::new(), source(), 0, 0.0);
    loop {
        while waiting.len() < 2
            && let Some(batch) = source.next()
        {
            waiting.push_back(device.transfer(batch).await?);
        }
        let Some(oldest) = waiting.pop_front() else { return Ok((steps, sum)) };
        step(oldest.await?, &mut sum).await?;
        steps += 1;
    }
}

async fn with_buffered(device: &Device) -> Result<(usize, f64)> {
    let (mut steps, mut sum) = (0, 0.0);
    let mut batches = stream::iter(source()).to_device(device).buffered(2);
    while let Some(batch) = batches.try_next().await? {
        step(batch, &mut sum).await?;
        steps += 1;
    }
    Ok((steps, sum))
}

async fn run(which: Which) -> Result<(), Box<dyn std::error::Error>> {
    let (one, two) = (which.builder().build()?, which.builder().build()?);
    let hand = by_hand(&one).await?;
    let buffered = with_buffered(&two).await?;
    let (sent, also) = (one.stats().bytes_sent, two.stats().bytes_sent);
    println!("by hand:     {} steps, {sent} bytes, sum {}", hand.0, hand.1);
    println!("buffered(2): {} steps, {also} bytes, sum {}", buffered.0, buffered.1);
    assert_eq!(sent, also, "bytes sent");
    assert_eq!(hand, buffered, "steps and sums");
    assert_eq!(hand.0, STEPS, "every batch");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures::executor::block_on(run(Which::from_arguments()?))
}
