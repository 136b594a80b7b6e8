//! [`Device`] and [`Context`]: the primary contexts, counted, and others; what a fault does to one.

use std::time::Instant;

use crate::code::Code;
use crate::operation::Work;
use crate::refusal::Refusal;
use crate::world::World;

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    /// The primary context and how often it is retained.
    pub(crate) primary: Option<(usize, u64)>,
    pub(crate) default_pool: usize,
    /// What `cuMemAllocAsync` takes from.
    pub(crate) pool: usize,
    /// Until when the link is taken, to the device and from it.
    pub(crate) link: [Option<Instant>; 2],
}

impl Device {
    pub(crate) const fn new(pool: usize) -> Self {
        Self { primary: None, default_pool: pool, pool, link: [None; 2] }
    }
}

/// A context. It stays known when it is destroyed, for the sake of a better error.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) is_primary: bool,
    pub(crate) is_alive: bool,
    /// What all calls on it return since something went wrong.
    pub(crate) fault: Option<Code>,
    /// The default stream, if it was used.
    pub(crate) legacy: Option<usize>,
}

impl World {
    pub(crate) fn check_device(&self, device: i32) -> Result<usize, Refusal> {
        let number = usize::try_from(device).ok().filter(|number| *number < self.devices.len());
        number.ok_or_else(|| Refusal::from(Code::INVALID_DEVICE))
    }

    pub(crate) fn make_context(&mut self, device: usize, is_primary: bool) -> usize {
        let handle = self.new_handle();
        let context = Context { device, is_primary, is_alive: true, fault: None, legacy: None };
        self.contexts.insert(handle, context);
        handle
    }

    /// The context lives; it may have a fault.
    pub(crate) fn live_context(&self, handle: usize) -> Result<&Context, Refusal> {
        match self.contexts.get(&handle) {
            None => Err(Refusal::misuse(Code::INVALID_CONTEXT, format!("{handle:#x} is no context"))),
            Some(context) if context.is_alive => Ok(context),
            Some(_) => Err(Refusal::misuse(Code::CONTEXT_IS_DESTROYED, format!("context {handle:#x} was destroyed"))),
        }
    }

    /// The context lives and has no fault.
    pub(crate) fn check_context(&self, handle: usize) -> Result<(), Refusal> {
        self.live_context(handle)?.fault.map_or(Ok(()), |code| Err(code.into()))
    }

    pub(crate) fn device_of(&self, context: usize) -> usize {
        self.contexts.get(&context).map_or(0, |context| context.device)
    }

    /// A fault: all later calls on the context return it, and what was pending on its streams is dropped.
    pub(crate) fn poison(&mut self, handle: usize, code: Code) {
        let Some(context) = self.contexts.get_mut(&handle) else { return };
        context.fault.get_or_insert(code);
        self.drop_pending(handle);
    }

    /// Ends a context and all that was made in it.
    pub(crate) fn destroy_context(&mut self, handle: usize) {
        let Some(context) = self.contexts.get_mut(&handle) else { return };
        context.is_alive = false;
        self.drop_pending(handle);
        self.streams.retain(|_, stream| stream.context != handle);
        self.events.retain(|_, event| event.context != handle);
        self.modules.retain(|_, module| module.context != handle);
        let modules = &self.modules;
        self.functions.retain(|_, function| modules.contains_key(&function.module));
        self.free_all_of(handle);
        self.host.forget_all_of(handle);
        self.trim_pools();
        self.moved();
    }

    fn drop_pending(&mut self, context: usize) {
        let mut freed = Vec::new();
        let now = Instant::now();
        for (handle, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.context == context) {
            for operation in stream.queue.drain(..) {
                match operation.work {
                    // Streams of other contexts may wait for it.
                    Work::Record(record) => record.finish(now),
                    Work::Free(address) => freed.push(address),
                    _ => {}
                }
            }
            stream.completed = stream.enqueued;
            stream.is_running = false;
            self.busy.remove(handle);
        }
        for address in freed {
            self.release(address);
        }
        self.streams.retain(|_, stream| stream.context != context || stream.is_kept());
        self.moved();
    }
}
