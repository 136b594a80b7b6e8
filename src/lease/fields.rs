//! [`Fields`] and [`FieldsMut`]: a batch's arrays, as work on a [`HostStream`](crate::HostStream) sees them.

use std::sync::Arc;

use ndarray::{ArrayViewD, ArrayViewMutD};

use super::view;
use crate::batch::{BatchCore, GroupState};
use crate::dtype::Element;
use crate::error::{Error, Result};

/// The arrays that work on a host stream may read.
#[derive(Debug)]
pub struct Fields {
    core: Arc<BatchCore>,
    /// Groups that the stream was ordered after, a bit each.
    there: u64,
}

impl Fields {
    pub(crate) const fn new(core: Arc<BatchCore>, there: u64) -> Self {
        Self { core, there }
    }

    /// Makes sure, where the work runs, that what it was ordered after has arrived and not failed.
    pub(crate) fn checked(self) -> Result<Self> {
        for group in (0..self.core.group_count()).filter(|group| self.there >> group & 1 == 1) {
            let name = || self.core.layout.fields.iter().position(|field| field.group == Some(group)).unwrap_or(0);
            match self.core.state(Some(group)) {
                GroupState::Arrived => continue,
                GroupState::Failed => return Err(self.core.not_queued(name())),
                GroupState::Staging | GroupState::Queued => {}
            }
            let fired = self.core.event(group).map_or(Ok(false), |event| self.core.device.query(event))?;
            if !fired {
                return Err(Error::NotArrived { field: self.core.layout.names[name()].to_string() });
            }
        }
        Ok(self)
    }

    fn place<T: Element>(&self, name: &str) -> Result<usize> {
        let place = self.core.position(name)?;
        let field = self.core.typed(place, T::DTYPE)?;
        if field.group.is_some_and(|group| self.there >> group & 1 == 0) {
            return Err(self.core.not_queued(place));
        }
        Ok(place)
    }

    /// One of the arrays.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`], [`Error::DtypeMismatch`], [`Error::NotQueued`] for a field of an early batch that was not
    /// queued when the work was, or the cause if the batch failed.
    pub fn view<T: Element>(&self, name: &str) -> Result<ArrayViewD<'_, T>> {
        let place = self.place::<T>(name)?;
        Ok(view::array(&self.core, place, self))
    }

    /// The names of the arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.core.layout.names.iter().map(|name| &**name)
    }
}

/// The arrays that work on a host stream may read and write.
#[derive(Debug)]
pub struct FieldsMut(Fields);

impl FieldsMut {
    pub(crate) const fn new(fields: Fields) -> Self {
        Self(fields)
    }

    /// One of the arrays.
    ///
    /// # Errors
    ///
    /// As for [`Fields::view`].
    pub fn view<T: Element>(&self, name: &str) -> Result<ArrayViewD<'_, T>> {
        self.0.view(name)
    }

    /// One of the arrays, to be written.
    ///
    /// # Errors
    ///
    /// As for [`Fields::view`].
    pub fn view_mut<T: Element>(&mut self, name: &str) -> Result<ArrayViewMutD<'_, T>> {
        let place = self.0.place::<T>(name)?;
        let core = self.0.core.clone();
        Ok(view::array_mut(&core, place, self))
    }

    /// One array to read and another to write.
    ///
    /// # Errors
    ///
    /// As for [`Fields::view`]; [`Error::Borrowed`] if both are the same.
    pub fn split<A: Element, B: Element>(
        &mut self,
        read: &str,
        write: &str,
    ) -> Result<(ArrayViewD<'_, A>, ArrayViewMutD<'_, B>)> {
        let (from, to) = (self.0.place::<A>(read)?, self.0.place::<B>(write)?);
        if from == to {
            return Err(Error::Borrowed { reason: "one field can't be read and written at once" });
        }
        let core = self.0.core.clone();
        Ok(view::array_pair(&core, from, to, self))
    }
}
