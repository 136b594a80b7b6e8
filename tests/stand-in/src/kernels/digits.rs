//! The kernels of the examples: `perceptron.cu` of digits, and `rows.cu`. They say more.

use super::{Kernel, Launch, Outcome};

const PIXELS: usize = 64;
const HIDDEN: usize = 96;
const CLASSES: usize = 10;
/// `sizeof(Perceptron) / sizeof(float)`
const PARAMETERS: usize = (PIXELS + 1) * HIDDEN + (HIDDEN + 1) * CLASSES;
/// `sizeof(Pass) / sizeof(float)`
const PASS: usize = 2 * HIDDEN + CLASSES + 1;
const BRIGHTEST: f32 = 16.0;

/// The CPU version of one of the kernels here.
pub(crate) fn find(name: &str) -> Option<Kernel> {
    Some(match name {
        "forward" => |launch| ran(forward(launch)),
        "update" => |launch| ran(update(launch)),
        "count_right" => |launch| ran(count_right(launch)),
        "sum_rows" => |launch| ran(sum_rows(launch)),
        _ => return None,
    })
}

/// What a kernel gives that ended early where memory was invalid: the launch knows that, and makes it a fault.
fn ran(_: Option<()>) -> Outcome {
    Outcome::done()
}

/// `forward(u64 model, u64 pixels, u64 labels, u32 rows, u64 passes)`
fn forward(launch: &Launch<'_>) -> Option<()> {
    let rows = usize::try_from(launch.u32_at(3)).ok()?;
    let (model, pixels) = (Perceptron::read(launch)?, launch.read::<f32>(launch.u64_at(1), rows * PIXELS)?);
    let labels = launch.read::<u8>(launch.u64_at(2), rows)?;
    let mut passes = Vec::with_capacity(rows * PASS);
    for (pixels, label) in pixels.chunks_exact(PIXELS).zip(labels) {
        let (active, scores) = model.layers(pixels);
        let mut gradient = softmax(&scores);
        let chance = gradient.get_mut(usize::from(label))?;
        let loss = -chance.max(f32::MIN_POSITIVE).ln();
        *chance -= 1.0;
        gradient.iter_mut().for_each(|slope| *slope /= rows as f32);
        let below = active.iter().zip(model.output.chunks_exact(CLASSES)).map(|(active, weights)| {
            let sum: f32 = gradient.iter().zip(weights).map(|(slope, weight)| slope * weight).sum();
            if *active > 0.0 { sum } else { 0.0 }
        });
        passes.extend(active.iter().copied().chain(below).chain(gradient.iter().copied()).chain([loss]));
    }
    launch.write(launch.u64_at(4), &passes).then_some(())
}

/// `update(u64 model, u64 pixels, u64 passes, u32 rows, f32 rate, u64 loss)`
fn update(launch: &Launch<'_>) -> Option<()> {
    let (rows, rate) = (usize::try_from(launch.u32_at(3)).ok()?, launch.f32_at(4));
    let pixels = launch.read::<f32>(launch.u64_at(1), rows * PIXELS)?;
    let passes = launch.read::<f32>(launch.u64_at(2), rows * PASS)?;
    let mut model = launch.read::<f32>(launch.u64_at(0), PARAMETERS)?;
    let (mut gradient, mut loss) = (vec![0.0; PARAMETERS], 0.0);
    for (pixels, pass) in pixels.chunks_exact(PIXELS).zip(passes.chunks_exact(PASS)) {
        let (active, pass) = pass.split_at_checked(HIDDEN)?;
        let (below, pass) = pass.split_at_checked(HIDDEN)?;
        let (output, row_loss) = pass.split_at_checked(CLASSES)?;
        let weights = pixels.iter().flat_map(|pixel| below.iter().map(move |slope| pixel / BRIGHTEST * slope));
        let output_weights = active.iter().flat_map(|active| output.iter().map(move |slope| active * slope));
        let slopes = weights.chain(below.iter().copied()).chain(output_weights).chain(output.iter().copied());
        gradient.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope);
        loss += row_loss.iter().sum::<f32>();
    }
    model.iter_mut().zip(gradient).for_each(|(parameter, slope)| *parameter -= rate * slope);
    (launch.write(launch.u64_at(0), &model) && launch.write(launch.u64_at(5), &[loss / rows as f32])).then_some(())
}

/// `count_right(u64 model, u64 pixels, u64 labels, u32 rows, u64 right)`
fn count_right(launch: &Launch<'_>) -> Option<()> {
    let rows = usize::try_from(launch.u32_at(3)).ok()?;
    let (model, pixels) = (Perceptron::read(launch)?, launch.read::<f32>(launch.u64_at(1), rows * PIXELS)?);
    let labels = launch.read::<u8>(launch.u64_at(2), rows)?;
    let right = pixels.chunks_exact(PIXELS).zip(labels).filter(|(pixels, label)| {
        let (_, scores) = model.layers(pixels);
        let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.is_some_and(|(class, _)| class == usize::from(*label))
    });
    let before = launch.read::<u32>(launch.u64_at(4), 1)?.first().copied()?;
    let after = before.wrapping_add(u32::try_from(right.count()).ok()?);
    launch.write(launch.u64_at(4), &[after]).then_some(())
}

/// `sum_rows(u64 dst, u64 src, u32 rows, u32 columns)`
fn sum_rows(launch: &Launch<'_>) -> Option<()> {
    let (rows, columns) = (usize::try_from(launch.u32_at(2)).ok()?, usize::try_from(launch.u32_at(3)).ok()?);
    let values = launch.read::<f32>(launch.u64_at(1), rows.checked_mul(columns)?)?;
    let sum = |row| values.iter().skip(row * columns).take(columns).sum::<f32>();
    launch.write(launch.u64_at(0), &(0..rows).map(sum).collect::<Vec<_>>()).then_some(())
}

/// The matrices by rows.
struct Perceptron {
    hidden: Vec<f32>,
    hidden_biases: Vec<f32>,
    output: Vec<f32>,
    output_biases: Vec<f32>,
}

impl Perceptron {
    /// From the launch's first argument.
    fn read(launch: &Launch<'_>) -> Option<Self> {
        let mut hidden = launch.read::<f32>(launch.u64_at(0), PARAMETERS)?;
        let mut hidden_biases = hidden.split_off(PIXELS * HIDDEN);
        let mut output = hidden_biases.split_off(HIDDEN);
        let output_biases = output.split_off(HIDDEN * CLASSES);
        Some(Self { hidden, hidden_biases, output, output_biases })
    }

    /// What the hidden layer gives, and the scores of the classes.
    fn layers(&self, pixels: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let inputs: Vec<_> = pixels.iter().map(|pixel| pixel / BRIGHTEST).collect();
        let mut active = layer(&inputs, &self.hidden, &self.hidden_biases);
        active.iter_mut().for_each(|sum| *sum = sum.max(0.0));
        let scores = layer(&active, &self.output, &self.output_biases);
        (active, scores)
    }
}

fn layer(inputs: &[f32], weights: &[f32], biases: &[f32]) -> Vec<f32> {
    let mut sums = biases.to_vec();
    for (input, row) in inputs.iter().zip(weights.chunks_exact(biases.len())) {
        sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += input * weight);
    }
    sums
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<_> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}
