//! The work as closures on a host stream.

use futures::FutureExt;
use futures::future::BoxFuture;
use inflight::{HostStream, Lease, Result};

use super::Work;

/// A host stream.
pub(crate) struct Host(pub(crate) HostStream);

impl Work for Host {
    type Stream = HostStream;

    fn stream(&self) -> &HostStream {
        &self.0
    }

    async fn sum(&self, step: &Lease<HostStream>, field: &'static str) -> Result<BoxFuture<'static, Result<f32>>> {
        Ok(step.run_on(&[field], move |fields| Ok(fields.view::<f32>(field)?.sum())).boxed())
    }

    fn sum_rows(
        &self,
        step: &mut Lease<HostStream>,
        from: &'static str,
        to: &'static str,
    ) -> Result<BoxFuture<'static, Result<()>>> {
        let work = step.run_mut(move |fields| {
            let (rows, mut sums) = fields.split::<f32, f32>(from, to)?;
            for (sum, row) in sums.iter_mut().zip(rows.outer_iter()) {
                *sum = row.sum();
            }
            Ok(())
        });
        Ok(work.boxed())
    }
}
