//! [`Lease`]: a batch in use by a compute stream. What can be seen through it is in `view.rs`, streams are in `stream.rs`.

#[cfg(feature = "cuda")]
mod cuda;
mod fields;
mod memory;
mod slice;
mod stream;
mod view;

use std::sync::Arc;

#[cfg(feature = "cuda")]
pub use cuda::{CudaFieldView, CudaFieldViewMut};
pub use fields::{Fields, FieldsMut};
pub(crate) use memory::Users;
pub use memory::{ReadSource, WriteTarget};
pub use slice::{HostGuard, HostSlice};
pub(crate) use stream::Binding;
pub use stream::{ComputeStream, HostStream, HostTask, LeaseStream};
pub use view::{HostView, View, ViewMut};

use crate::backend::StreamHandle;
use crate::batch::{BatchCore, BatchOwner, GroupState};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::reactor::until;
use crate::readback::{Readback, on_stream};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::lock;

/// A batch in use by a compute stream: what is queued there finds the batch's bytes in place.
///
/// Owned: it may outlive the batch's handles. When it ends, by [`end`](Self::end) or by being dropped, the memory is used
/// again only after the work that was queued on the stream until then. A lease that took no view records nothing. One that
/// is forgotten (`mem::forget`) keeps the memory for ever.
#[derive(Debug)]
pub struct Lease<S: LeaseStream> {
    core: BatchOwner,
    stream: S,
    handle: StreamHandle,
    /// Groups that the stream is ordered after, a bit each.
    waited: AtomicU64,
    /// How much of earlier uses on other streams the stream is ordered after.
    behind: AtomicU8,
    /// Work on the stream may touch the memory.
    used: AtomicBool,
    exclusive: AtomicBool,
    open: bool,
}

const BEHIND_WRITERS: u8 = 1;
const BEHIND_ALL: u8 = 2;

impl<S: LeaseStream> Lease<S> {
    pub(crate) fn new(core: BatchOwner, stream: &S) -> Result<Self> {
        core.device.check()?;
        if let Some(error) = core.failure() {
            return Err(error.clone());
        }
        let handle = core.device.bind(stream)?;
        lock(&core.usage).open()?;
        Ok(Self {
            handle,
            stream: stream.clone(),
            core,
            waited: AtomicU64::new(0),
            behind: AtomicU8::new(0),
            used: AtomicBool::new(false),
            exclusive: AtomicBool::new(false),
            open: true,
        })
    }

    /// The stream that uses the batch.
    pub const fn stream(&self) -> &S {
        &self.stream
    }

    /// Orders the stream after earlier writers on other streams, or all their uses.
    fn come_after(&self, all: bool) -> Result<()> {
        let wanted = if all { BEHIND_ALL } else { BEHIND_WRITERS };
        if self.behind.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let earlier = lock(&self.core.usage).before(&self.handle, all);
        for event in earlier {
            self.core.device.wait(&self.handle, &event)?;
        }
        self.behind.fetch_max(wanted, Ordering::AcqRel);
        Ok(())
    }

    /// Orders the stream after the arrival of a group, if it is queued.
    fn come_after_group(&self, group: usize) -> Result<bool> {
        let bit = 1 << group;
        if self.waited.load(Ordering::Acquire) & bit != 0 {
            return Ok(true);
        }
        match self.core.state(Some(group)) {
            GroupState::Staging | GroupState::Failed => return Ok(false),
            GroupState::Arrived => {}
            GroupState::Queued => {
                if let Some(event) = self.core.event(group) {
                    self.core.device.wait(&self.handle, event)?;
                }
            }
        }
        self.waited.fetch_or(bit, Ordering::AcqRel);
        Ok(true)
    }

    fn prepare(&self, place: usize) -> Result<()> {
        self.core.device.check()?;
        let _inside = self.core.device.backend.enter();
        self.come_after(false)?;
        if let Some(group) = self.core.layout.fields[place].group
            && !self.come_after_group(group)?
        {
            return Err(self.core.not_queued(place));
        }
        Ok(())
    }

    /// A field's memory, to be read by work that is queued on this stream.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`], [`Error::DtypeMismatch`], [`Error::NotQueued`] for a field of an early batch that
    /// [`queued`](Self::queued) has not answered for, or the cause if it failed.
    pub fn view<T: Element>(&self, name: &str) -> Result<View<'_, T, S>> {
        let place = self.core.position(name)?;
        self.core.typed(place, T::DTYPE)?;
        self.prepare(place)?;
        self.used.store(true, Ordering::Release);
        Ok(View::new(self, place))
    }

    /// Waits until all copies of a field are enqueued. It does not wait for their arrival.
    ///
    /// # Cancel safety
    ///
    /// It only waits: dropping it changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`], or the cause if the field failed.
    pub async fn queued(&self, name: &str) -> Result<()> {
        let place = self.core.position(name)?;
        let group = self.core.layout.fields[place].group;
        let queued = until(&self.core.waiters, || match self.core.state(group) {
            GroupState::Staging => None,
            GroupState::Queued | GroupState::Arrived => Some(Ok(())),
            GroupState::Failed => Some(Err(self.core.not_queued(place))),
        });
        queued.await
    }

    /// Orders the stream after a field's arrival, without looking at it.
    ///
    /// # Errors
    ///
    /// As for [`view`](Self::view), but for the type.
    pub fn wait(&self, name: &str) -> Result<()> {
        self.prepare(self.core.position(name)?)
    }

    /// Makes this the only user, ordered after all earlier ones.
    fn make_exclusive(&self) -> Result<()> {
        if !self.exclusive.load(Ordering::Acquire) {
            lock(&self.core.usage).make_exclusive()?;
            self.exclusive.store(true, Ordering::Release);
        }
        self.come_after(true)
    }

    /// Several fields' memory, to be written by work that is queued on this stream. For the batch's only lease.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] if the batch has other leases, host views or pending reads, or a name is given twice; else as
    /// for [`view`](Self::view).
    pub fn split_mut<T: Element, const N: usize>(&mut self, names: [&str; N]) -> Result<[ViewMut<'_, T, S>; N]> {
        let mut places = [0; N];
        for (index, name) in names.iter().enumerate() {
            places[index] = self.core.position(name)?;
            if places[..index].contains(&places[index]) {
                return Err(Error::Borrowed { reason: "one field can't be written through two views" });
            }
            self.core.typed(places[index], T::DTYPE)?;
        }
        self.make_exclusive()?;
        for place in places {
            self.prepare(place)?;
        }
        self.used.store(true, Ordering::Release);
        let this = &*self;
        Ok(places.map(|place| ViewMut::new(this, place)))
    }

    /// Reads a field back, after the work that is queued on this stream until now.
    ///
    /// # Errors
    ///
    /// As for [`view`](Self::view); [`Error::Busy`] where the lease writes to the batch and there is no room to read it
    /// into right now.
    pub fn read_back<T: Element>(&self, name: &str) -> Result<Readback<T>> {
        if !self.exclusive.load(Ordering::Acquire) {
            return crate::DeviceBatch::new(self.core.clone()).field(name)?.read_back();
        }
        self.view::<T>(name)?;
        let place = self.core.position(name)?;
        on_stream::read_field(&self.core, place, &self.handle).map(Readback::new)
    }

    /// Orders the stream after all that is queued, and says what that is.
    fn fields(&self) -> Result<Fields> {
        self.core.device.check()?;
        self.come_after(false)?;
        let mut there = 0;
        for group in 0..self.core.group_count() {
            there |= u64::from(self.come_after_group(group)?) << group;
        }
        self.used.store(true, Ordering::Release);
        Ok(Fields::new(self.core.core(), there))
    }

    /// Orders the stream after the named fields alone.
    fn fields_of(&self, names: &[&str]) -> Result<Fields> {
        let mut there = 0;
        for name in names {
            let place = self.core.position(name)?;
            self.prepare(place)?;
            there |= self.core.layout.fields[place].group.map_or(0, |group| 1 << group);
        }
        self.used.store(true, Ordering::Release);
        Ok(Fields::new(self.core.core(), there))
    }

    /// Ends it: the memory comes back when the work that is queued on the stream is done.
    ///
    /// # Errors
    ///
    /// A driver's error while the end is recorded. The memory is then never used again, and stays counted.
    pub fn end(mut self) -> Result<()> {
        self.close().map_or(Ok(()), Err)
    }

    fn close(&mut self) -> Option<Error> {
        if !std::mem::replace(&mut self.open, false) {
            return None;
        }
        let _inside = self.core.device.backend.enter();
        let (touched, wrote) = (self.used.load(Ordering::Acquire), self.exclusive.load(Ordering::Acquire));
        self.core.close_use(&self.handle, touched, wrote)
    }
}

impl<S: LeaseStream> Drop for Lease<S> {
    fn drop(&mut self) {
        if let Some(error) = self.close() {
            tracing::error!(device = self.core.device.name, %error, "the end of a lease could not be recorded");
        }
    }
}

impl Lease<HostStream> {
    /// Queues work on the stream that reads the batch; resolves to what it returns.
    ///
    /// It comes after all fields that are queued when this is called, and sees those; for work on some of them see
    /// [`run_on`](Self::run_on). If one of them fails to arrive, it does not run
    /// and the task resolves to the cause.
    pub fn run<R, F>(&self, work: F) -> HostTask<R>
    where
        R: Send + 'static,
        F: FnOnce(&Fields) -> Result<R> + Send + 'static,
    {
        self.queue(self.fields(), work)
    }

    /// As [`run`](Self::run), for work that uses the named fields only: it does not wait for the others.
    ///
    /// So work on `raw` begins while labels are still arriving. Fields that are not named, and do not come with those that
    /// are, can't be seen. An unknown name, or a field that is not queued, makes the task resolve to the error.
    pub fn run_on<R, F>(&self, names: &[&str], work: F) -> HostTask<R>
    where
        R: Send + 'static,
        F: FnOnce(&Fields) -> Result<R> + Send + 'static,
    {
        self.queue(self.fields_of(names), work)
    }

    fn queue<R, F>(&self, fields: Result<Fields>, work: F) -> HostTask<R>
    where
        R: Send + 'static,
        F: FnOnce(&Fields) -> Result<R> + Send + 'static,
    {
        match fields {
            Ok(fields) => self.stream.run_fallible(move || work(&fields.checked()?)),
            Err(error) => HostTask::failed(error),
        }
    }

    /// Queues work on the stream that reads and writes the batch. For the batch's only lease.
    ///
    /// If it can't be the only one, the task resolves to [`Error::Borrowed`]; else as for [`run`](Self::run). Work that
    /// fails or panics may have written half of what it should: the batch counts as failed from then on, and reads of it
    /// that were queued behind the work resolve to the same error.
    pub fn run_mut<R, F>(&mut self, work: F) -> HostTask<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut FieldsMut) -> Result<R> + Send + 'static,
    {
        let fields = match self.make_exclusive().and_then(|()| self.fields()) {
            Ok(fields) => fields,
            Err(error) => return HostTask::failed(error),
        };
        let unrun = Unrun(Some(self.core.core()));
        self.stream.run_fallible(move || {
            let core = unrun.runs();
            let work = move || work(&mut FieldsMut::new(fields.checked()?));
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let outcome = outcome.unwrap_or_else(|payload| Err(Error::panicked("work on a host stream", &*payload)));
            outcome.inspect_err(|error| core.iter().for_each(|core| core.fail(error.clone())))
        })
    }
}

/// Work that writes to a batch and has not run. Dropped, it never will: what is read behind it is not what was meant.
struct Unrun(Option<Arc<BatchCore>>);

impl Unrun {
    fn runs(mut self) -> Option<Arc<BatchCore>> {
        self.0.take()
    }
}

impl Drop for Unrun {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.fail(stream::not_run());
        }
    }
}
