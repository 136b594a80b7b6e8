//! Steps of matmul twice as long as the transfer of a batch of shuffled images, against the same steps without transfers.
#![expect(unsafe_code, reason = "launches kernels")]

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use inflight::cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg,
};
use inflight::{BatchStreamExt, Device, DeviceBatch};

use super::check::check;
use super::compute::kernel;
use super::raw::spin_until_done;
use super::reach::Reach;
use super::rig::{Outcome, Rig, Row, median, processor_time, timed};
use super::rows::Images;

const RUNS: usize = 5;
/// Edge of the matrices.
const SIZE: u32 = 2048;
/// Edge of a block's part of the result.
const TILE: u32 = 64;

/// A matrix product on a compute stream of the user's.
struct Matmul {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    /// Two factors and the product.
    matrices: [CudaSlice<f32>; 3],
    /// What is summed for an element; a multiple of 16.
    depth: u32,
}

impl Matmul {
    /// One that takes so many seconds.
    fn new(context: &Arc<CudaContext>, seconds: f64) -> Outcome<Self> {
        let stream = context.new_stream()?;
        let matrix = || stream.alloc_zeros::<f32>((SIZE * SIZE) as usize);
        let matrices = [matrix()?, matrix()?, matrix()?];
        let mut matmul = Self { kernel: kernel("matmul", context)?, stream, matrices, depth: SIZE };
        let batch = matmul.stream.alloc_zeros::<u8>(1)?;
        matmul.time(16, &batch)?;
        let each = matmul.time(16, &batch)? / 16.0;
        let depth = f64::from(SIZE) * seconds / each;
        matmul.depth = ((depth / 16.0).round() as u32).max(1) * 16;
        Ok(matmul)
    }

    /// Queues it, behind whatever fills `batch`.
    fn launch(&self, batch: &impl DevicePtr<u8>) -> Result<(), DriverError> {
        let grid =
            LaunchConfig { grid_dim: (SIZE / TILE, SIZE / TILE, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let [a, b, c] = &self.matrices;
        let mut launch = self.stream.launch_builder(&self.kernel);
        // What keeps the batch until then is dropped behind the launch.
        let (batch, _until_launched) = batch.device_ptr(&self.stream);
        launch.arg(c).arg(a).arg(b).arg(&batch).arg(&SIZE).arg(&self.depth);
        // SAFETY: the arguments are those of the kernel, the matrices have as many elements as it says, and the batch has
        // one; kernels of one stream run one after the other, and nobody else uses the product.
        unsafe { launch.launch(grid) }.map(|_| ())
    }

    /// How long so many take, in seconds.
    fn time(&self, count: usize, batch: &CudaSlice<u8>) -> Outcome<f64> {
        let steps = || {
            (0..count).try_for_each(|_| self.launch(batch))?;
            spin_until_done(&self.stream)
        };
        Ok(timed(steps)?.0)
    }

    /// The same with a batch for each.
    async fn feed(&self, device: &Device, images: &Images, count: usize) -> Outcome<Option<DeviceBatch>> {
        let source = stream::iter((0..count).map(|number| images.shuffled(number).map(|array| ("x", array))));
        let mut batches = source.to_device(device).buffered(4);
        let mut last = None;
        while let Some(batch) = batches.try_next().await? {
            let step = batch.on(&self.stream)?;
            let view = step.view::<u8>("x")?;
            if view.len() != images.bytes() {
                return Err("the batch has another size".into());
            }
            self.launch(&view)?;
            step.end()?;
            last = Some(batch);
        }
        spin_until_done(&self.stream)?;
        Ok(last)
    }
}

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let Some(context) = &rig.context else {
        rig.left_out("steps", "they are a GPU's");
        return Ok(());
    };
    let images = Images::new(rig)?;
    let count = rig.size(128, 16);
    let transfer = rig.link(count * images.bytes())? / count as f64;
    let matmul = Matmul::new(context, 2.0 * transfer)?;
    rig.title(&format!(
        "{count} steps of matmul, twice as long as the {:.0} µs of a transfer, shuffled images from pageable memory, \
         against the steps alone",
        transfer * 1e6
    ));
    let device = rig.device_with(1 << 30)?;
    let nothing = matmul.stream.alloc_zeros::<u8>(1)?;
    let (mut ours, mut alone, mut cores) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..=RUNS {
        let without = matmul.time(count, &nothing)?;
        let before = processor_time();
        let (seconds, last) = timed(|| rig.runtime.block_on(matmul.feed(&device, &images, count)))?;
        let busy = (processor_time() - before) / seconds;
        if number == 0 {
            let last = last.ok_or("nothing was sent")?;
            check(rig, &last, &images.shape(), |at| images.expected(count - 1, at))?;
            continue;
        }
        ours.push(seconds);
        alone.push(without);
        cores.push(busy);
    }
    rig.row(&Row {
        job: "steps".to_owned(),
        bytes: count * images.bytes(),
        batches: count,
        note: format!("a step alone {:.3} ms", median(alone.clone()) * 1e3 / count as f64),
        seconds: median(ours),
        limit_seconds: median(alone),
        cores: Some(median(cores)),
        reaches: &[Reach::Times(1.02)],
        ..Row::default()
    });
    Ok(())
}
