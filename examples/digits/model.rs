//! A perceptron of two layers, its weights in device memory, trained by work on a host stream.

use inflight::{Fields, HostSlice, HostStream, HostTask, Lease, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, Ix1, Ix2};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::data::PIXELS;

const HIDDEN: usize = 96;
const CLASSES: usize = 10;
const RATE: f32 = 0.2;

/// Weights and biases of both layers, and the loss of the latest step.
pub(crate) struct Perceptron {
    hidden: Layer,
    output: Layer,
    /// Cross-entropy, the mean over the batch: one element.
    pub(crate) loss: HostSlice<f32>,
}

#[derive(Clone)]
struct Layer {
    weights: HostSlice<f32>,
    biases: HostSlice<f32>,
}

impl Layer {
    /// Normalised uniform weights after Glorot and Bengio (2010), equation 16.
    fn new(stream: &HostStream, inputs: usize, outputs: usize, random: &mut StdRng) -> Result<Self> {
        let weights = stream.alloc::<f32, _>((inputs, outputs))?;
        let bound = (6.0 / (inputs + outputs) as f32).sqrt();
        weights.lock().fill_with(|| random.random_range(-bound..bound));
        Ok(Self { weights, biases: stream.alloc(outputs)? })
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

impl Perceptron {
    pub(crate) fn new(stream: &HostStream, seed: u64) -> Result<Self> {
        let random = &mut StdRng::seed_from_u64(seed.wrapping_mul(31));
        let hidden = Layer::new(stream, PIXELS, HIDDEN, random)?;
        let output = Layer::new(stream, HIDDEN, CLASSES, random)?;
        Ok(Self { hidden, output, loss: stream.alloc(1)? })
    }

    /// Queues one step of stochastic gradient descent on the batch.
    pub(crate) fn train(&self, step: &Lease<HostStream>) -> HostTask<()> {
        let (hidden, output, loss) = (self.hidden.clone(), self.output.clone(), self.loss.clone());
        step.run(move |fields| {
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
        })
    }

    /// Queues a forward pass; resolves to how many rows it classed right.
    pub(crate) fn count_right(&self, step: &Lease<HostStream>) -> HostTask<usize> {
        let (hidden, output) = (self.hidden.clone(), self.output.clone());
        step.run(move |fields| {
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
        })
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
