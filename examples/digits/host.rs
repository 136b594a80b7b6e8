//! The network on the host: its work is closures on a host stream.

use inflight::{Device, Fields, HostSlice, HostStream, HostTask, Lease, ReadSource, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, Ix1, Ix2};

use super::model::{Model, RATE, weights};

/// Weights and biases of both layers, and the loss of the latest step.
pub(crate) struct HostPerceptron {
    stream: HostStream,
    hidden: Layer,
    output: Layer,
    loss: HostSlice<f32>,
}

#[derive(Clone)]
struct Layer {
    weights: HostSlice<f32>,
    biases: HostSlice<f32>,
}

impl Layer {
    async fn new(device: &Device, stream: &HostStream, initial: Array2<f32>) -> Result<Self> {
        let (weights, biases) = (stream.alloc(initial.dim())?, stream.alloc(initial.ncols())?);
        device.write(initial, &weights, stream).await?;
        Ok(Self { weights, biases })
    }

    fn forward(&self, input: &ArrayView2<'_, f32>) -> Array2<f32> {
        let (weights, biases) = (self.weights.lock(), self.biases.lock());
        let biases = Array1::from_iter(biases.iter().copied());
        input.dot(&matrix(weights.array())) + &biases
    }

    /// A step of gradient descent; returns the gradient at the layer's input.
    fn backward(&self, input: &ArrayView2<'_, f32>, gradient: &Array2<f32>) -> Array2<f32> {
        let (mut weights, mut biases) = (self.weights.lock(), self.biases.lock());
        let at_input = gradient.dot(&matrix(weights.array()).t());
        weights.array_mut().scaled_add(-RATE, &input.t().dot(gradient).into_dyn());
        biases.array_mut().scaled_add(-RATE, &gradient.sum_axis(Axis(0)).into_dyn());
        at_input
    }
}

/// Two axes, as all weights have.
fn matrix(array: ndarray::ArrayViewD<'_, f32>) -> ArrayView2<'_, f32> {
    let (rows, columns) = (array.shape()[0], array.shape()[1]);
    array.into_shape_with_order((rows, columns)).unwrap_or_else(|_| unreachable!("weights are contiguous"))
}

/// The batch's pixels from 0 to 1, and its labels.
fn inputs(fields: &Fields) -> Result<(Array2<f32>, Array1<u8>)> {
    let pixels = fields.view::<f32>("pixels")?.into_dimensionality::<Ix2>().map_err(inflight::Error::source)?;
    let labels = fields.view::<u8>("labels")?.into_dimensionality::<Ix1>().map_err(inflight::Error::source)?;
    Ok((pixels.mapv(|pixel| pixel / 16.0), labels.to_owned()))
}

impl HostPerceptron {
    pub(crate) async fn new(device: &Device, stream: HostStream, seed: u64) -> Result<Self> {
        let [hidden, output] = weights(seed);
        let hidden = Layer::new(device, &stream, hidden).await?;
        let output = Layer::new(device, &stream, output).await?;
        let loss = stream.alloc(1)?;
        Ok(Self { stream, hidden, output, loss })
    }
}

impl Model for HostPerceptron {
    type Stream = HostStream;
    type Step = HostTask<()>;

    fn stream(&self) -> &HostStream {
        &self.stream
    }

    fn loss(&self) -> &impl ReadSource<f32> {
        &self.loss
    }

    fn train(&mut self, step: &Lease<HostStream>) -> Result<HostTask<()>> {
        let (hidden, output, loss) = (self.hidden.clone(), self.output.clone(), self.loss.clone());
        Ok(step.run(move |fields| {
            let (pixels, labels) = inputs(fields)?;
            let rows = pixels.nrows() as f32;
            let before = hidden.forward(&pixels.view());
            let active = before.mapv(|x| x.max(0.0));
            let mut gradient = softmax(output.forward(&active.view()));
            let mut sum = 0.0;
            for (row, label) in labels.iter().enumerate() {
                let chance = &mut gradient[[row, usize::from(*label)]];
                sum -= chance.max(f32::MIN_POSITIVE).ln();
                *chance -= 1.0;
            }
            gradient /= rows;
            let mut below = output.backward(&active.view(), &gradient);
            below.zip_mut_with(&before, |gradient, x| *gradient *= f32::from(u8::from(*x > 0.0)));
            hidden.backward(&pixels.view(), &below);
            loss.lock()[0] = sum / rows;
            Ok(())
        }))
    }

    async fn count_right(&self, step: Lease<HostStream>) -> Result<usize> {
        let (hidden, output) = (self.hidden.clone(), self.output.clone());
        let counted = step.run(move |fields| {
            let (pixels, labels) = inputs(fields)?;
            let scores = output.forward(&hidden.forward(&pixels.view()).mapv(|x| x.max(0.0)).view());
            let best = |row: ndarray::ArrayView1<'_, f32>| {
                let order = |a: &(usize, &f32), b: &(usize, &f32)| a.1.total_cmp(b.1);
                row.iter().enumerate().max_by(order).map(|(class, _)| class)
            };
            Ok(scores
                .rows()
                .into_iter()
                .zip(&labels)
                .filter(|(row, label)| best(*row) == Some(usize::from(**label)))
                .count())
        });
        step.end()?;
        counted.await
    }
}

fn softmax(mut scores: Array2<f32>) -> Array2<f32> {
    for mut row in scores.rows_mut() {
        let largest = row.fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        row.mapv_inplace(|x| (x - largest).exp());
        let sum = row.sum();
        row /= sum;
    }
    scores
}
