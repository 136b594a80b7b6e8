//! [`Capture`]: a stream that is being captured into a graph, and the calls that this forbids. Nothing is kept of it: the
//! graph stays empty.

use crate::call::Call;
use crate::code::Code;
use crate::refusal::Refusal;
use crate::thread;

pub(crate) const GLOBAL: i32 = 0;
pub(crate) const THREAD_LOCAL: i32 = 1;
pub(crate) const RELAXED: i32 = 2;

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    None,
    /// Begun in that mode by the thread of that number.
    Active {
        mode: i32,
        thread: u64,
    },
    /// A call that is forbidden meanwhile has ended it.
    Invalidated {
        thread: u64,
    },
}

impl Call {
    /// Refuses what could synchronise with a stream that is being captured, and ends that capture: the rule of
    /// `cuThreadExchangeStreamCaptureMode`.
    pub(crate) fn check_captures(&mut self) -> Result<(), Refusal> {
        let (own, this) = (thread::capture_mode(), thread::number());
        let mut refused = false;
        for stream in self.streams.values_mut() {
            let Capture::Active { mode, thread } = stream.capture else { continue };
            let forbids = match own {
                RELAXED => false,
                THREAD_LOCAL => thread == this && mode != RELAXED,
                _ => mode == GLOBAL || (thread == this && mode != RELAXED),
            };
            if forbids {
                stream.capture = Capture::Invalidated { thread };
                refused = true;
            }
        }
        if refused { Err(Code::CAPTURE_UNSUPPORTED.into()) } else { Ok(()) }
    }

    /// Refuses to wait for a stream that is being captured, in whichever mode.
    pub(crate) fn check_not_captured(&mut self, stream: usize) -> Result<(), Refusal> {
        let capture = &mut self.stream(stream)?.capture;
        match *capture {
            Capture::None => Ok(()),
            Capture::Active { thread, .. } => {
                *capture = Capture::Invalidated { thread };
                Err(Code::CAPTURE_UNSUPPORTED.into())
            }
            Capture::Invalidated { .. } => Err(Code::CAPTURE_INVALIDATED.into()),
        }
    }
}
