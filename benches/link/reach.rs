//! [`Reach`]: what a job is to come to on a GPU, and whether it does.

use super::rig::Row;

/// A figure that a job is to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reach {
    /// So much of the limit's rate, or more.
    OfLimit(f64),
    /// So much of the link's rate, or more.
    OfLink(f64),
    /// Fewer cores than so many, in the mean.
    Cores(f64),
    /// So many microseconds a batch, or less.
    Micros(f64),
    /// So many times as long as the limit, or less.
    Times(f64),
}

impl Reach {
    /// What the row came to; nothing if it was not measured.
    pub(crate) fn found(self, row: &Row<'_>) -> Option<f64> {
        match self {
            Self::OfLimit(_) => Some(row.limit_seconds / row.seconds),
            Self::OfLink(_) => Some(row.link_seconds? / row.seconds),
            Self::Cores(_) => row.cores,
            Self::Micros(_) => Some(row.micros()),
            Self::Times(_) => Some(row.seconds / row.limit_seconds),
        }
    }

    /// Whether the row came to it.
    pub(crate) fn is_reached(self, row: &Row<'_>) -> bool {
        self.found(row).is_some_and(|found| match self {
            Self::OfLimit(least) | Self::OfLink(least) => found >= least,
            Self::Cores(most) | Self::Micros(most) | Self::Times(most) => found <= most,
        })
    }
}

impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OfLimit(least) => write!(f, "{least} of the limit"),
            Self::OfLink(least) => write!(f, "{least} of the link"),
            Self::Cores(most) => write!(f, "under {most} cores"),
            Self::Micros(most) => write!(f, "{most} µs a batch"),
            Self::Times(most) => write!(f, "{most} × the limit"),
        }
    }
}
