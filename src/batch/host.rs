//! [`HostBatch`]: named arrays on the host.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{HostArray, Name};
use crate::error::{Error, Result};

/// Who adds a second array mostly adds some more.
const MORE: usize = 7;

/// Where a loader can resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The row within the epoch's order, from 0.
    pub row: u64,
}

/// Named arrays on the host, and what travels with them.
///
/// ```
/// use inflight::{HostBatch, batch};
///
/// let labels = vec![1_u8, 2];
/// let one = HostBatch::new().with("raw", [0.5_f32, 0.25]).with("labels", labels.clone()).with_meta("file 7");
/// let two = batch! { raw: [0.5_f32, 0.25], labels: labels };
/// assert!(one.names().eq(two.names()));
/// assert_eq!(one.meta::<&str>(), Some(&"file 7"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct HostBatch {
    fields: SmallVec<[(Name, HostArray); 1]>,
    meta: Option<Arc<dyn Any + Send + Sync>>,
    cursor: Option<Cursor>,
}

impl HostBatch {
    /// A batch without arrays.
    ///
    /// One without arrays, or without elements in any, can be sent: it takes no device memory and is there at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array. Two of one name make the transfer fail.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<str>, array: impl Into<HostArray>) -> Self {
        if self.fields.len() == self.fields.inline_size() {
            self.fields.reserve(MORE);
        }
        self.fields.push((Name::new(name), array.into()));
        self
    }

    /// A batch of the arrays of an iterator.
    pub fn from_fields<N, A>(fields: impl IntoIterator<Item = (N, A)>) -> Self
    where
        N: AsRef<str>,
        A: Into<HostArray>,
    {
        let named = |(name, array): (N, A)| (Name::new(name), array.into());
        Self { fields: fields.into_iter().map(named).collect(), ..Self::default() }
    }

    /// Lets something travel along: it comes out as [`DeviceBatch::meta`](crate::DeviceBatch::meta).
    #[must_use]
    pub fn with_meta<M: Any + Send + Sync>(self, meta: M) -> Self {
        self.with_shared_meta(Arc::new(meta))
    }

    pub(crate) fn with_shared_meta(mut self, meta: Arc<dyn Any + Send + Sync>) -> Self {
        self.meta = Some(meta);
        self
    }

    /// Says where a loader can resume after this batch.
    #[must_use]
    pub const fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// What travels along, if it is an `M`.
    pub fn meta<M: Any + Send + Sync>(&self) -> Option<&M> {
        self.meta.as_ref()?.downcast_ref()
    }

    /// Where a loader can resume after this batch, if it was said.
    pub const fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// One of the arrays.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`], which lists the names.
    pub fn field(&self, name: &str) -> Result<&HostArray> {
        let found = self.fields.iter().find(|(of, _)| of == name);
        found.map(|(_, array)| array).ok_or_else(|| Error::UnknownField {
            field: name.to_owned(),
            names: self.names().map(str::to_owned).collect(),
        })
    }

    /// The names of the arrays, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| &**name)
    }

    /// The number of arrays.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no arrays.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The bytes of all arrays on the device; `usize::MAX` if an address space does not hold them.
    pub fn bytes(&self) -> usize {
        self.fields.iter().fold(0, |sum: usize, (_, array)| sum.saturating_add(array.bytes()))
    }

    /// The length of the first axis of the first array, if it has one.
    pub fn rows(&self) -> Option<usize> {
        self.fields.first()?.1.shape().first().copied()
    }

    pub(crate) fn fields(&self) -> &[(Name, HostArray)] {
        &self.fields
    }

    pub(crate) fn shared_meta(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.meta.clone()
    }

    /// A name that stands twice.
    pub(crate) fn duplicate(&self) -> Option<&str> {
        super::repeated(self.names())
    }
}
