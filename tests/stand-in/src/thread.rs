//! What belongs to a thread: the contexts it has pushed, its capture mode, and whether it runs a host function.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// The thread's number, never used again.
pub(crate) fn number() -> u64 {
    NUMBER.with(|number| *number)
}

/// The current context; 0 where there is none, and in destructors of the thread's own variables.
pub(crate) fn context() -> usize {
    CONTEXTS.try_with(|stack| stack.borrow().last().copied()).ok().flatten().unwrap_or(0)
}

/// Replaces the top of the stack. 0 takes it off.
pub(crate) fn set_context(context: usize) {
    pop_context();
    if context != 0 {
        push_context(context);
    }
}

pub(crate) fn push_context(context: usize) {
    let _ = CONTEXTS.try_with(|stack| stack.borrow_mut().push(context));
}

pub(crate) fn pop_context() -> Option<usize> {
    CONTEXTS.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

pub(crate) fn capture_mode() -> i32 {
    CAPTURE_MODE.get()
}

/// Sets the capture mode; the answer is the one before.
pub(crate) fn exchange_capture_mode(mode: i32) -> i32 {
    CAPTURE_MODE.replace(mode)
}

pub(crate) fn is_in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Runs a host function, in which calls of the driver are refused.
pub(crate) fn in_host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}
