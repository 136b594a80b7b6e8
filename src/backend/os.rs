//! What the operating system is asked for: exact sleeps, a thread's CPU time, and whether this process was forked.
//!
//! Each has a portable fallback.

#![cfg_attr(unix, expect(unsafe_code, reason = "calls into the C library"))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between the first process that asked and this one.
#[cfg(unix)]
pub(crate) fn fork_generation() -> u64 {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static REGISTERED: std::sync::Once = std::sync::Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler lives in static memory and does one relaxed atomic addition, which a child of a fork may do.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// There is no fork here.
#[cfg(not(unix))]
pub(crate) fn fork_generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Lets this thread's timed waits end when they are due, and not up to 50 µs later.
pub(crate) fn sleep_exactly() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets the calling thread's timer slack; no memory is passed.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1)
    };
}

/// CPU time of the calling thread, where the system tells it.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(crate) fn thread_cpu_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and outlives the call.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The system does not tell.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn thread_cpu_time() -> Option<Duration> {
    None
}
