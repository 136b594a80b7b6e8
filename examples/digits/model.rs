//! The network: a perceptron of two layers. `host.rs` and `gpu.rs` are it, in the memory of their devices.

use inflight::{Lease, LeaseStream, ReadSource, Result};
use ndarray::Array2;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::data::PIXELS;

/// Units of the hidden layer.
pub(crate) const HIDDEN: usize = 96;
/// Units of the output layer.
pub(crate) const CLASSES: usize = 10;
/// The step of gradient descent.
pub(crate) const RATE: f32 = 0.2;

/// A network whose work is queued on a stream of some backend.
pub(crate) trait Model {
    type Stream: LeaseStream;
    /// Resolves when it is known whether a step went well.
    type Step: Future<Output = Result<()>>;

    /// The stream that it learns on.
    fn stream(&self) -> &Self::Stream;

    /// The loss of the latest step in device memory: cross-entropy, the mean over the batch, one element.
    fn loss(&self) -> &impl ReadSource<f32>;

    /// Queues one step of stochastic gradient descent on the batch.
    fn train(&mut self, step: &Lease<Self::Stream>) -> Result<Self::Step>;

    /// Queues a forward pass; resolves to how many rows it classed right.
    async fn count_right(&self, step: Lease<Self::Stream>) -> Result<usize>;
}

/// The weights of both layers before the first step, the same on all devices.
pub(crate) fn weights(seed: u64) -> [Array2<f32>; 2] {
    let random = &mut StdRng::seed_from_u64(seed.wrapping_mul(31));
    [(PIXELS, HIDDEN), (HIDDEN, CLASSES)].map(|shape| normalised_uniform(shape, random))
}

/// After Glorot and Bengio (2010), equation 16.
fn normalised_uniform((inputs, outputs): (usize, usize), random: &mut StdRng) -> Array2<f32> {
    let bound = (6.0 / (inputs + outputs) as f32).sqrt();
    Array2::from_shape_simple_fn((inputs, outputs), || random.random_range(-bound..bound))
}
