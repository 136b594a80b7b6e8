//! The limit of each job: the driver's calls in a plain loop, or `memcpy` on the host.
#![expect(unsafe_code, reason = "calls the driver and copies by address")]

use std::sync::Arc;

use inflight::cudarc::driver::{CudaContext, CudaStream, result, sys};

use super::rig::{Outcome, timed};

/// Page-locked memory and as much device memory, of a raw loop alone.
pub(crate) struct Raw {
    context: Arc<CudaContext>,
    streams: [Arc<CudaStream>; 2],
    host: Vec<*mut u8>,
    device: Vec<sys::CUdeviceptr>,
    events: Vec<sys::CUevent>,
    bytes: usize,
}

impl Raw {
    /// Room for `depth` copies of `bytes` that are under way.
    pub(crate) fn new(context: &Arc<CudaContext>, bytes: usize, depth: usize) -> Outcome<Self> {
        context.bind_to_thread()?;
        let mut raw = Self {
            context: context.clone(),
            streams: [context.new_stream()?, context.new_stream()?],
            host: Vec::new(),
            device: Vec::new(),
            events: Vec::new(),
            bytes,
        };
        for number in 0..depth {
            // SAFETY: the context is current; what is made here is freed in `drop`.
            let host = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }?.cast::<u8>();
            // SAFETY: the memory was just allocated, with so many bytes.
            unsafe { host.write_bytes(number as u8, bytes) };
            raw.host.push(host);
            // SAFETY: as above.
            raw.device.push(unsafe { result::malloc_sync(bytes) }?);
            raw.events.push(result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?);
        }
        Ok(raw)
    }

    /// Bytes of a copy.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a slot's copies go.
    pub(crate) fn device(&self, slot: usize) -> sys::CUdeviceptr {
        self.device[slot]
    }

    /// The stream of copies to the device.
    pub(crate) const fn stream(&self) -> &Arc<CudaStream> {
        &self.streams[0]
    }

    /// A slot's page-locked memory.
    pub(crate) fn host(&self, slot: usize) -> *mut u8 {
        self.host[slot]
    }

    /// Enqueues a slot's copy to the device.
    pub(crate) fn upload(&self, slot: usize) -> Outcome<()> {
        // SAFETY: the page-locked memory has so many bytes, and nobody writes to it.
        let from = unsafe { std::slice::from_raw_parts(self.host[slot], self.bytes) };
        // SAFETY: both ends live until `drop`, which waits.
        unsafe { result::memcpy_htod_async(self.device[slot], from, self.streams[0].cu_stream()) }?;
        Ok(())
    }

    /// Records a slot's event on one of the streams.
    pub(crate) fn record(&self, slot: usize, stream: usize) -> Outcome<()> {
        // SAFETY: event and stream are of one context.
        unsafe { result::event::record(self.events[slot], self.streams[stream].cu_stream()) }?;
        Ok(())
    }

    /// Whether a slot's event has fired, or there is nothing to wait for.
    pub(crate) fn is_done(&self, slot: usize) -> Outcome<bool> {
        // SAFETY: the event lives.
        match unsafe { result::event::query(self.events[slot]) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks a slot's event until it has fired.
    pub(crate) fn spin(&self, slot: usize) -> Outcome<()> {
        while !self.is_done(slot)? {}
        Ok(())
    }

    /// Copies to the device, each followed by a record, with a slot's event asked until it has fired before the slot is used
    /// again. Seconds in all.
    pub(crate) fn uploads(&self, count: usize) -> Outcome<f64> {
        self.rounds(count, |_, slot| self.upload(slot))
    }

    /// The same with something else than one copy: `enqueue` gets the number and the slot of each.
    pub(crate) fn rounds(&self, count: usize, enqueue: impl Fn(usize, usize) -> Outcome<()>) -> Outcome<f64> {
        let depth = self.host.len();
        Ok(timed(|| {
            for number in 0..count {
                let slot = number % depth;
                if number >= depth {
                    self.spin(slot)?;
                }
                enqueue(number, slot)?;
                self.record(slot, 0)?;
            }
            (0..depth.min(count)).try_for_each(|slot| self.spin(slot))
        })?
        .0)
    }

    /// Copies to the device and others back at once, on two streams, with two slots. Seconds in all.
    pub(crate) fn both_ways(&self, count: usize) -> Outcome<f64> {
        Ok(timed(|| {
            for number in 0..count {
                if number % 8 == 7 {
                    self.streams[0].synchronize()?;
                    self.streams[1].synchronize()?;
                }
                self.upload(0)?;
                self.download(1)?;
            }
            self.streams[0].synchronize()?;
            Ok(self.streams[1].synchronize()?)
        })?
        .0)
    }

    fn download(&self, slot: usize) -> Outcome<()> {
        // SAFETY: the page-locked memory has so many bytes, and nobody reads it meanwhile.
        let to = unsafe { std::slice::from_raw_parts_mut(self.host[slot], self.bytes) };
        // SAFETY: both ends live until `drop`, which waits.
        unsafe { result::memcpy_dtoh_async(to, self.device[slot], self.streams[1].cu_stream()) }?;
        Ok(())
    }

    /// One copy to the device and one back, after each other. Seconds for each.
    pub(crate) fn there_and_back(&self) -> Outcome<(f64, f64)> {
        let (there, ()) = timed(|| {
            self.upload(0)?;
            Ok(self.streams[0].synchronize()?)
        })?;
        let (back, ()) = timed(|| {
            self.download(0)?;
            Ok(self.streams[1].synchronize()?)
        })?;
        Ok((there, back))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        for host in &self.host {
            // SAFETY: allocated in `new`, and nothing is pending.
            let _ = unsafe { result::free_host(host.cast()) };
        }
        for device in &self.device {
            // SAFETY: as above.
            let _ = unsafe { result::free_sync(*device) };
        }
        for event in &self.events {
            // SAFETY: as above.
            let _ = unsafe { result::event::destroy(*event) };
        }
    }
}

/// A spin until what was queued on a stream is done, as an event of the raw loop tells it.
pub(crate) fn spin_until_done(stream: &Arc<CudaStream>) -> Outcome<()> {
    let event = stream.record_event(None)?;
    while !event.try_is_complete()? {}
    Ok(())
}

/// `memcpy` of `bytes` into memory that is used again, `count` times. Seconds in all.
pub(crate) fn memcpy(bytes: usize, count: usize) -> Outcome<f64> {
    let (from, mut to) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    Ok(timed(|| {
        for _ in 0..count {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
        }
        Ok(())
    })?
    .0)
}
