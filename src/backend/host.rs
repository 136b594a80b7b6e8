//! [`HostBackend`]: device memory is the host's, streams are threads, and a copy is a copy.
#![expect(unsafe_code, reason = "allocates blocks by layout")]

use std::alloc::Layout;
use std::sync::Arc;
use std::time::Duration;

use super::queue::Driver;
use super::{
    Answer, Backend, Copy, Event, Fault, HostEvent, HostQueue, Memory, Pitched, Rearrangement, Space, StreamHandle,
    Streams,
};
use crate::batch::Name;

/// How long a copy takes at least, for the host backend to behave like a link of that speed.
///
/// Figures that come from it are modelled, not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// Bytes a second; at least 1, and infinity is fine.
    pub bytes_per_second: f64,
    /// What each copy takes beside that.
    pub latency: Duration,
}

impl LinkModel {
    /// The time of a copy.
    pub(super) fn time(&self, bytes: usize) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a model needs no more than 53 bits")]
        let seconds = bytes as f64 / self.bytes_per_second;
        self.latency.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
    }
}

/// A device that is the host itself.
#[derive(Debug)]
pub(crate) struct HostBackend {
    streams: Streams,
    eager: bool,
}

impl HostBackend {
    pub(crate) fn new(link: Option<LinkModel>) -> std::io::Result<Self> {
        let eager = link.is_none();
        let driver = Driver::Thread { link, eager };
        let copy = StreamHandle::Host(HostQueue::new("inflight-copy", driver)?);
        let read = StreamHandle::Host(HostQueue::new("inflight-read", driver)?);
        let relayout = Driver::Thread { link: None, eager: false };
        let relayout = StreamHandle::Host(HostQueue::new("inflight-relayout", relayout)?);
        Ok(Self { streams: Streams { copy, read, fetch: relayout.clone(), relayout }, eager })
    }
}

/// The layout of a block: as aligned as a device's blocks are.
fn layout(bytes: usize) -> Result<Layout, Fault> {
    let align = if bytes < 4096 { 256 } else { 4096 };
    Layout::from_size_align(bytes, align).map_err(|_| Fault::new(Fault::OUT_OF_MEMORY, "alloc"))
}

/// A zeroed block of host memory.
pub(super) fn alloc(bytes: usize) -> Result<Memory, Fault> {
    if bytes == 0 {
        return Err(Fault::new(1, "alloc"));
    }
    // SAFETY: the layout's size is not 0.
    let ptr = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
    if ptr.is_null() {
        return Err(Fault::new(Fault::OUT_OF_MEMORY, "alloc"));
    }
    Ok(Memory { ptr, bytes })
}

/// Gives it back.
///
/// # Safety
///
/// `memory` came from `alloc` and nothing touches it.
pub(super) unsafe fn free(memory: &Memory) -> Result<(), Fault> {
    let layout = layout(memory.bytes)?;
    // SAFETY: the caller's contract; the layout is the one that `alloc` used.
    unsafe { std::alloc::dealloc(memory.ptr, layout) };
    Ok(())
}

impl Backend for HostBackend {
    fn streams(&self) -> &Streams {
        &self.streams
    }

    fn prompt(&self) -> bool {
        self.eager
    }

    /// Not where copies are to take a while.
    fn is_in_reach(&self) -> bool {
        self.eager
    }

    fn compute_stream(&self) -> Result<StreamHandle, Fault> {
        let driver = Driver::Thread { link: None, eager: false };
        let queue = HostQueue::new("inflight-compute", driver);
        queue.map(StreamHandle::Host).map_err(|_| Fault::new(Fault::OUT_OF_MEMORY, "thread spawn"))
    }

    fn alloc(&self, _space: Space, bytes: usize) -> Result<Memory, Fault> {
        alloc(bytes)
    }

    unsafe fn free(&self, _space: Space, memory: Memory) -> Result<(), Fault> {
        // SAFETY: the contract of this method.
        unsafe { free(&memory) }
    }

    unsafe fn copy(&self, stream: &StreamHandle, copy: Copy, _fields: &[Name]) -> Result<(), Fault> {
        let queue = stream.host()?;
        queue.copy(copy, Vec::new());
        Ok(())
    }

    unsafe fn copy_pitched(&self, stream: &StreamHandle, copies: &[Pitched], _fields: &[&[Name]]) -> Result<(), Fault> {
        stream.host()?.copy_pitched(copies.to_vec(), Vec::new());
        Ok(())
    }

    unsafe fn rearrange(
        &self,
        stream: &StreamHandle,
        rearrangement: Rearrangement,
        _fields: &[Name],
    ) -> Result<(), Fault> {
        stream.host()?.rearrange(rearrangement, Vec::new());
        Ok(())
    }

    fn create_event(&self) -> Result<Event, Fault> {
        Ok(Event::Host(Arc::new(HostEvent::default())))
    }

    fn record(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault> {
        let (queue, event) = (stream.host()?, event.host()?);
        queue.record(event);
        Ok(())
    }

    fn query(&self, event: &Event) -> Result<Answer, Fault> {
        let event = event.host()?;
        Ok(event.query())
    }

    fn wait(&self, stream: &StreamHandle, event: &Event) -> Result<(), Fault> {
        let (queue, event) = (stream.host()?, event.host()?);
        queue.wait(event);
        Ok(())
    }
}
