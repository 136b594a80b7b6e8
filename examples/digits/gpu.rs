//! The network on a GPU: its work is the kernels of `perceptron.cu`, launched on a stream of cudarc's.
#![expect(unsafe_code, reason = "launches kernels")]

use std::error::Error;
use std::future::{Ready, ready};
use std::sync::Arc;

use inflight::cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use inflight::cudarc::nvrtc::Ptx;
use inflight::{Device, Lease, ReadSource, Result, View};
use ndarray::Array1;

use super::data::PIXELS;
use super::model::{CLASSES, HIDDEN, Model, RATE, weights};

/// `sizeof(Perceptron) / sizeof(float)` of the kernels.
const PARAMETERS: usize = (PIXELS + 1) * HIDDEN + (HIDDEN + 1) * CLASSES;
/// `sizeof(Pass) / sizeof(float)` of the kernels.
const PASS: usize = 2 * HIDDEN + CLASSES + 1;

/// Weights and biases of both layers, and the loss of the latest step.
pub(crate) struct GpuPerceptron {
    device: Device,
    stream: Arc<CudaStream>,
    forward: CudaFunction,
    update: CudaFunction,
    count_right: CudaFunction,
    parameters: CudaSlice<f32>,
    /// What `forward` leaves for `update`, a [`PASS`] for each row of the largest batch so far.
    passes: CudaSlice<f32>,
    loss: CudaSlice<f32>,
}

impl GpuPerceptron {
    pub(crate) async fn new(device: &Device, stream: Arc<CudaStream>, seed: u64) -> Result<Self, Box<dyn Error>> {
        let module = stream.context().load_module(Ptx::from_src(include_str!("perceptron.ptx")))?;
        let [hidden, output] = weights(seed);
        let biases = |count| std::iter::repeat_n(0.0, count);
        let initial: Array1<f32> =
            hidden.into_iter().chain(biases(HIDDEN)).chain(output).chain(biases(CLASSES)).collect();
        let mut parameters = stream.alloc_zeros(PARAMETERS)?;
        device.write(initial, &mut parameters, &stream).await?;
        Ok(Self {
            device: device.clone(),
            forward: module.load_function("forward")?,
            update: module.load_function("update")?,
            count_right: module.load_function("count_right")?,
            parameters,
            passes: stream.alloc_zeros(PASS)?,
            loss: stream.alloc_zeros(1)?,
            stream,
        })
    }
}

/// The batch's fields, and its number of rows.
struct Inputs<'a> {
    pixels: View<'a, f32, Arc<CudaStream>>,
    labels: View<'a, u8, Arc<CudaStream>>,
    rows: u32,
}

impl<'a> Inputs<'a> {
    fn new(step: &'a Lease<Arc<CudaStream>>) -> Result<Self> {
        let (pixels, labels) = (step.view::<f32>("pixels")?, step.view::<u8>("labels")?);
        if pixels.len() != labels.len() * PIXELS {
            return Err(inflight::Error::source(format!("{} pixels and {} labels", pixels.len(), labels.len())));
        }
        Ok(Self { pixels, labels, rows: u32::try_from(labels.len()).map_err(inflight::Error::source)? })
    }
}

/// So many blocks of so many threads.
const fn grid(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

impl Model for GpuPerceptron {
    type Stream = Arc<CudaStream>;
    type Step = Ready<Result<()>>;

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    fn loss(&self) -> &impl ReadSource<f32> {
        &self.loss
    }

    /// What goes wrong in the kernels is known when the loss is read.
    fn train(&mut self, step: &Lease<Arc<CudaStream>>) -> Result<Ready<Result<()>>> {
        let Inputs { pixels, labels, rows } = Inputs::new(step)?;
        if self.passes.len() < labels.len() * PASS {
            self.passes = self.stream.alloc_zeros(labels.len() * PASS).map_err(inflight::Error::source)?;
        }
        let mut forward = self.stream.launch_builder(&self.forward);
        forward.arg(&self.parameters).arg(&pixels).arg(&labels).arg(&rows).arg(&mut self.passes);
        // SAFETY: the arguments are those of the kernel, and each array has as many elements as `rows` rows need.
        unsafe { forward.launch(grid(rows, HIDDEN as u32)) }.map_err(inflight::Error::source)?;

        let mut update = self.stream.launch_builder(&self.update);
        update.arg(&mut self.parameters).arg(&pixels).arg(&self.passes).arg(&rows).arg(&RATE).arg(&mut self.loss);
        // SAFETY: as above.
        unsafe { update.launch(grid(PARAMETERS.div_ceil(128) as u32, 128)) }.map_err(inflight::Error::source)?;
        Ok(ready(Ok(())))
    }

    async fn count_right(&self, step: Lease<Arc<CudaStream>>) -> Result<usize> {
        let mut right = self.stream.alloc_zeros::<u32>(1).map_err(inflight::Error::source)?;
        {
            let Inputs { pixels, labels, rows } = Inputs::new(&step)?;
            let mut count = self.stream.launch_builder(&self.count_right);
            count.arg(&self.parameters).arg(&pixels).arg(&labels).arg(&rows).arg(&mut right);
            // SAFETY: as above.
            unsafe { count.launch(grid(rows, HIDDEN as u32)) }.map_err(inflight::Error::source)?;
        }
        step.end()?;
        let counted = self.device.read_wait(&right, &self.stream).await?.await?;
        Ok(counted[0] as usize)
    }
}
