//! [`Stream`]: a queue of operations, and how calls find and fill one.

use std::collections::VecDeque;
use std::time::Instant;

use crate::call::Call;
use crate::capture::Capture;
use crate::code::Code;
use crate::operation::{Operation, Work};
use crate::refusal::Refusal;
use crate::thread;
use crate::world::World;

/// With so many operations pending, a further one blocks the thread that queues it.
pub(crate) const MOST_PENDING: usize = 1020;

/// A stream. One that is destroyed stays until its work is done.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// Calls may name it. The default streams have none that is theirs alone.
    pub(crate) has_handle: bool,
    kind: Kind,
    pub(crate) queue: VecDeque<Operation>,
    /// The number of the newest operation, and of the newest one that completed.
    pub(crate) enqueued: u64,
    pub(crate) completed: u64,
    /// When the last operation completed.
    pub(crate) free_at: Instant,
    /// The head runs now, the world unlocked.
    pub(crate) is_running: bool,
    pub(crate) capture: Capture,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Made,
    Legacy,
    /// The default stream of the thread of that number.
    OfThread(u64),
}

impl Stream {
    fn new(context: usize, flags: u32, priority: i32, kind: Kind) -> Self {
        Self {
            context,
            flags,
            priority,
            has_handle: kind == Kind::Made,
            kind,
            queue: VecDeque::new(),
            enqueued: 0,
            completed: 0,
            free_at: Instant::now(),
            is_running: false,
            capture: Capture::None,
        }
    }

    /// It can be used, or has work to do.
    pub(crate) fn is_kept(&self) -> bool {
        self.has_handle || self.kind != Kind::Made || !self.queue.is_empty()
    }
}

impl World {
    pub(crate) fn make_stream(&mut self, context: usize, flags: u32, priority: i32) -> usize {
        let handle = self.new_handle();
        self.streams.insert(handle, Stream::new(context, flags, priority, Kind::Made));
        handle
    }

    /// The stream of a handle, in a context without fault. 0 and 1 are the context's default stream, 2 is the thread's.
    pub(crate) fn find_stream(&mut self, current: usize, raw: usize) -> Result<usize, Refusal> {
        match raw {
            0 | 1 => Ok(self.default_stream(current, Kind::Legacy)),
            2 => Ok(self.default_stream(current, Kind::OfThread(thread::number()))),
            _ => {
                let stream = self.streams.get(&raw).filter(|stream| stream.has_handle);
                let unknown = || Refusal::misuse(Code::INVALID_HANDLE, format!("{raw:#x} is no stream"));
                self.check_context(stream.ok_or_else(unknown)?.context)?;
                Ok(raw)
            }
        }
    }

    fn default_stream(&mut self, context: usize, kind: Kind) -> usize {
        let found = self.streams.iter().find(|(_, stream)| stream.context == context && stream.kind == kind);
        if let Some((handle, _)) = found {
            return *handle;
        }
        let handle = self.new_handle();
        self.streams.insert(handle, Stream::new(context, 0, 0, kind));
        if kind == Kind::Legacy
            && let Some(context) = self.contexts.get_mut(&context)
        {
            context.legacy = Some(handle);
        }
        handle
    }

    /// A stream that `find_stream` has found and no call has taken away since.
    pub(crate) fn stream(&mut self, handle: usize) -> Result<&mut Stream, Refusal> {
        self.streams.get_mut(&handle).ok_or_else(|| Refusal::misuse(Code::INVALID_HANDLE, "the stream is gone"))
    }

    /// The stream has done all up to the operation of that number.
    pub(crate) fn has_done(&self, stream: usize, number: u64) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.completed >= number)
    }

    pub(crate) fn is_idle(&self, stream: usize) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.queue.is_empty())
    }
}

impl Call {
    /// Queues an operation, once there is room. What is queued on a stream that is being captured is dropped: the answer
    /// is then `None`, else the operation's number.
    ///
    /// `work` is made of that number, last, so that what it does to the world is not done for what is dropped.
    pub(crate) fn enqueue(
        &mut self,
        stream: usize,
        work: impl FnOnce(&mut World, u64) -> Work,
    ) -> Result<Option<u64>, Refusal> {
        match self.stream(stream)?.capture {
            Capture::None => {}
            Capture::Active { .. } => return Ok(None),
            Capture::Invalidated { .. } => return Err(Code::CAPTURE_INVALIDATED.into()),
        }
        let has_room = |world: &World| world.streams.get(&stream).is_none_or(|s| s.queue.len() < MOST_PENDING);
        if !has_room(self) {
            self.counts.blocked_calls += 1;
            self.wait_until(has_room);
        }
        let context = self.stream(stream)?.context;
        self.check_context(context)?;
        let number = self.stream(stream)?.enqueued + 1;
        let work = work(self, number);
        let found = self.stream(stream)?;
        found.enqueued = number;
        found.queue.push_back(Operation::new(number, work));
        self.busy.insert(stream);
        self.counts.peak_pending = self.counts.peak_pending.max(self.pending());
        self.catch_up();
        Ok(Some(number))
    }

    /// Blocks until the stream has done the operation of that number, or its context has a fault.
    pub(crate) fn wait_for(&mut self, stream: usize, number: u64) -> Result<(), Refusal> {
        let context = self.streams.get(&stream).map(|stream| stream.context);
        self.wait_until(|world| world.has_done(stream, number));
        context.map_or(Ok(()), |context| self.check_context(context))
    }
}
