//! What can be said on the command line.

use super::device::Which;

/// The text of `--help`.
pub(crate) const HELP: &str = "Trains a two-layer perceptron on handwritten digits.

  --device auto|host|cuda:N  where to train [auto]
  --depth N                  batches in flight ahead of compute, at least 1 [4]
  --batch-size N             rows a batch, at least 1 [32]
  --epochs N                 times over the training rows, at least 1 [30]
  --seed N                   for the split, the order and the weights [1]
  --single-stream            copies share the compute stream
  --permute-labels           a control: deals the labels out anew, so that nothing can be learnt
  --help                     prints this";

/// What was said, or the defaults.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) device: Which,
    pub(crate) depth: usize,
    pub(crate) batch_size: usize,
    pub(crate) epochs: usize,
    pub(crate) seed: u64,
    pub(crate) single_stream: bool,
    pub(crate) permute_labels: bool,
}

impl Options {
    /// Reads the arguments. `None` if help was asked for; a message if one is wrong.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            device: Which::Auto,
            depth: 4,
            batch_size: 32,
            epochs: 30,
            seed: 1,
            single_stream: false,
            permute_labels: false,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
            match name.as_str() {
                "--help" | "-h" => return Ok(None),
                "--device" => options.device = value()?.parse()?,
                "--depth" => options.depth = at_least_one(&name, &value()?)?,
                "--batch-size" => options.batch_size = at_least_one(&name, &value()?)?,
                "--epochs" => options.epochs = at_least_one(&name, &value()?)?,
                "--seed" => {
                    let text = value()?;
                    options.seed = text.parse().map_err(|_| format!("--seed \"{text}\" is not a number"))?;
                }
                "--single-stream" => options.single_stream = true,
                "--permute-labels" => options.permute_labels = true,
                other => return Err(format!("there is no option \"{other}\"")),
            }
        }
        Ok(Some(options))
    }
}

fn at_least_one(name: &str, text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number >= 1)
        .ok_or_else(|| format!("{name} \"{text}\" is not a number from 1 on"))
}
