//! [`Change`]: what happens to an array's elements on the way: another type, or images normalized.

use std::sync::Arc;

use half::{bf16, f16};

use crate::dtype::Dtype;

/// A conversion of elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// To another type.
    Cast(Dtype),
    /// From `u8` to numbers about 0.
    Normalize(Normalization),
}

/// `(x * scale - mean) / std` for each channel, in `f32`, each operation rounded, the result rounded once to its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Normalization {
    pub(crate) scale: f32,
    /// One for each channel, or one for all.
    pub(crate) mean: Arc<[f32]>,
    /// As many as `mean`.
    pub(crate) std: Arc<[f32]>,
    /// The axis of the channels; `None` where one mean serves all elements.
    pub(crate) axis: Option<usize>,
    /// `F32`, `F16` or `Bf16`.
    pub(crate) dtype: Dtype,
}

impl Change {
    /// The type that elements have afterwards.
    pub(crate) const fn dtype(&self) -> Dtype {
        match self {
            Self::Cast(dtype) => *dtype,
            Self::Normalize(normalization) => normalization.dtype,
        }
    }

    /// The axis that tells elements which of several means is theirs.
    pub(crate) fn channels(&self) -> Option<usize> {
        match self {
            Self::Cast(_) => None,
            Self::Normalize(normalization) => normalization.axis,
        }
    }

    /// The same for a view whose axes are others: `to` tells the new number of an axis.
    pub(crate) fn renumbered(&self, to: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Cast(dtype) => Self::Cast(*dtype),
            Self::Normalize(normalization) => {
                let axis = normalization.axis.map(to);
                Self::Normalize(Normalization { axis, ..normalization.clone() })
            }
        }
    }

    /// The same for a view that has picked indices of `axis`: of `count` indices the `nth` one is `index(nth)`.
    pub(super) fn picked(&self, axis: usize, count: usize, index: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Normalize(normalization) if normalization.axis == Some(axis) => {
                let pick = |values: &[f32]| (0..count).map(|nth| values[index(nth)]).collect();
                let (mean, std) = (pick(&normalization.mean), pick(&normalization.std));
                Self::Normalize(Normalization { mean, std, ..normalization.clone() })
            }
            other => other.clone(),
        }
    }

    /// The same for a view of the one index `place` of `axis`, which is no axis any more.
    pub(super) fn fixed(&self, axis: usize, place: usize) -> Self {
        match self.picked(axis, 1, |_| place) {
            Self::Normalize(normalization) if normalization.axis == Some(axis) => {
                Self::Normalize(Normalization { axis: None, ..normalization })
            }
            other => other,
        }
    }
}

impl Normalization {
    /// The 256 values of a channel, as bits of the result's type.
    pub(crate) fn table(&self, channel: usize) -> [u32; 256] {
        let (mean, std) = (self.mean[channel], self.std[channel]);
        let bits = |value: f32| match self.dtype {
            Dtype::F16 => u32::from(f16::from_f32(value).to_bits()),
            Dtype::Bf16 => u32::from(bf16::from_f32(value).to_bits()),
            _ => value.to_bits(),
        };
        std::array::from_fn(|byte| bits((byte as f32 * self.scale - mean) / std))
    }
}
