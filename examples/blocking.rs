//! No async at all: the stream of batches as an iterator. The transfers go on while the loop's body runs.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

#[path = "options/device.rs"]
mod device;

use futures::executor::{block_on, block_on_stream};
use futures::{StreamExt, stream};
use inflight::BatchStreamExt;

use device::Which;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Which::from_arguments()?.builder().build()?;
    let source = stream::iter((0..5_u8).map(|n| ("x", vec![n; 1000])));
    for batch in block_on_stream(source.to_device(&device).buffered(2)) {
        let batch = batch?;
        let x = block_on(batch.field("x")?.read_back::<u8>()?)?;
        println!("batch {}: {} elements, the first is {}", batch.index(), x.len(), x[0]);
    }
    Ok(())
}
