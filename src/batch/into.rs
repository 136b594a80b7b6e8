//! What becomes a batch: pairs of names and arrays, and with [`IntoBatch`] the items of a source, fallible or not.

use super::{HostArray, HostBatch};
use crate::error::{BoxError, Error, Result};

/// An item of a source: anything that becomes a [`HostBatch`], or a `Result` of that.
///
/// Implement `From<YourType> for HostBatch` to send a type of your own.
pub trait IntoBatch {
    /// Makes it a batch.
    ///
    /// # Errors
    ///
    /// The source's error, as [`Error::Source`].
    fn into_batch(self) -> Result<HostBatch>;
}

impl<T: Into<HostBatch>> IntoBatch for T {
    fn into_batch(self) -> Result<HostBatch> {
        Ok(self.into())
    }
}

impl<T: Into<HostBatch>, E: Into<BoxError>> IntoBatch for Result<T, E> {
    fn into_batch(self) -> Result<HostBatch> {
        self.map(Into::into).map_err(Error::source)
    }
}

macro_rules! from_pairs {
    ($($name:ident $array:ident),*) => {
        impl<$($name: AsRef<str>, $array: Into<HostArray>),*> From<($(($name, $array),)*)> for HostBatch {
            fn from(pairs: ($(($name, $array),)*)) -> Self {
                #[expect(non_snake_case, reason = "the names of the type parameters serve as variables")]
                let ($(($name, $array),)*) = pairs;
                Self::new()$(.with($name, $array))*
            }
        }
    };
}

impl<N: AsRef<str>, A: Into<HostArray>> From<(N, A)> for HostBatch {
    fn from((name, array): (N, A)) -> Self {
        Self::new().with(name, array)
    }
}

from_pairs!(N1 A1);
from_pairs!(N1 A1, N2 A2);
from_pairs!(N1 A1, N2 A2, N3 A3);
from_pairs!(N1 A1, N2 A2, N3 A3, N4 A4);
from_pairs!(N1 A1, N2 A2, N3 A3, N4 A4, N5 A5);
from_pairs!(N1 A1, N2 A2, N3 A3, N4 A4, N5 A5, N6 A6);
from_pairs!(N1 A1, N2 A2, N3 A3, N4 A4, N5 A5, N6 A6, N7 A7);
from_pairs!(N1 A1, N2 A2, N3 A3, N4 A4, N5 A5, N6 A6, N7 A7, N8 A8);
