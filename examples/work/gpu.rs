//! The work as a kernel on a stream of cudarc's.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use inflight::cudarc::driver::{CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use inflight::cudarc::nvrtc::Ptx;
use inflight::{Device, Error, Lease, Result};

use super::Work;

/// A GPU's stream, and the kernel.
pub(crate) struct Gpu {
    device: Device,
    stream: Arc<CudaStream>,
    sum_rows: CudaFunction,
}

impl Gpu {
    pub(crate) fn new(device: &Device, stream: Arc<CudaStream>) -> Result<Self, DriverError> {
        let module = stream.context().load_module(Ptx::from_src(include_str!("rows.ptx")))?;
        Ok(Self { device: device.clone(), stream, sum_rows: module.load_function("sum_rows")? })
    }
}

/// A block of many threads for each row.
const fn blocks(rows: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (rows, 1, 1), block_dim: (1024, 1, 1), shared_mem_bytes: 0 }
}

impl Work for Gpu {
    type Stream = Arc<CudaStream>;

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    async fn sum(&self, step: &Lease<Arc<CudaStream>>, field: &'static str) -> Result<BoxFuture<'static, Result<f32>>> {
        let mut sum = self.stream.alloc_zeros::<f32>(1).map_err(Error::source)?;
        {
            let all = step.view::<f32>(field)?;
            let (rows, columns) = (1_u32, u32::try_from(all.len()).map_err(Error::source)?);
            let mut launch = self.stream.launch_builder(&self.sum_rows);
            launch.arg(&mut sum).arg(&all).arg(&rows).arg(&columns);
            // SAFETY: the arguments are those of the kernel, which reads `columns` elements and writes one.
            unsafe { launch.launch(blocks(rows)) }.map_err(Error::source)?;
        }
        let home = self.device.read_wait(&sum, &self.stream).await?;
        Ok(home.map(|sum| Ok(sum?[0])).boxed())
    }

    fn sum_rows(
        &self,
        step: &mut Lease<Arc<CudaStream>>,
        from: &'static str,
        to: &'static str,
    ) -> Result<BoxFuture<'static, Result<()>>> {
        let [from, mut to] = step.split_mut::<f32, 2>([from, to])?;
        let rows = u32::try_from(to.len()).map_err(Error::source)?;
        let columns = u32::try_from(from.len()).map_err(Error::source)? / rows.max(1);
        let from = from.as_view();
        let mut launch = self.stream.launch_builder(&self.sum_rows);
        launch.arg(&mut to).arg(&from).arg(&rows).arg(&columns);
        // SAFETY: the arguments are those of the kernel, which reads `rows` times `columns` elements and writes `rows`.
        unsafe { launch.launch(blocks(rows)) }.map_err(Error::source)?;
        Ok(ready(Ok(())).boxed())
    }
}
