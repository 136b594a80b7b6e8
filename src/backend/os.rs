//! What the operating system is asked for: exact sleeps, a thread's CPU time, memory, and whether this process was forked.
//!
//! Each has a portable fallback; Miri, which runs tests, knows none of these calls.

#![cfg_attr(all(unix, not(miri)), expect(unsafe_code, reason = "calls into the C library"))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between the first process that asked and this one.
#[cfg(all(unix, not(miri)))]
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
#[cfg(any(not(unix), miri))]
pub(crate) fn fork_generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Lets this thread's timed waits end when they are due, and not up to 50 µs later.
pub(crate) fn sleep_exactly() {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: sets the calling thread's timer slack; no memory is passed.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1)
    };
}

/// CPU time of the calling thread, where the system tells it.
#[cfg(all(any(target_os = "linux", target_os = "macos"), not(miri)))]
pub(crate) fn thread_cpu_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and outlives the call.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The system does not tell.
#[cfg(any(not(any(target_os = "linux", target_os = "macos")), miri))]
pub(crate) fn thread_cpu_time() -> Option<Duration> {
    None
}

/// Bytes of a page of memory.
pub(crate) fn page_size() -> usize {
    #[cfg(all(unix, not(miri)))]
    // SAFETY: asks for a number; no memory is passed.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    #[cfg(any(not(unix), miri))]
    let answer = 4096;
    usize::try_from(answer).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

/// Whether all bytes from an address on can be written to; `None` where the system does not tell.
#[cfg(feature = "cuda")]
pub(crate) fn is_writable(start: usize, bytes: usize) -> Option<bool> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    Some(all_writable(&maps, start, start.checked_add(bytes)?))
}

/// Whether the lines of `/proc/self/maps` (`from-to rights ..`) let one write from `start` to `end`.
#[cfg(feature = "cuda")]
fn all_writable(maps: &str, start: usize, end: usize) -> bool {
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    let line = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        Some((address(from)?, address(to)?, rest.as_bytes().get(1) == Some(&b'w')))
    };
    let locked = maps.lines().filter_map(line).any(|(from, to, writable)| from < end && start < to && !writable);
    !locked
}

/// Bytes of memory that can be had without ending anybody, of the machine and of this process's control group; `None` where
/// the system does not tell.
#[cfg(feature = "cuda")]
pub(crate) fn available_memory() -> Option<usize> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| Some(row(&text, "MemAvailable:")?.saturating_mul(1024)));
    let group = || {
        let number = |name: &str| read(&format!("/sys/fs/cgroup/memory.{name}"))?.trim().parse::<usize>().ok();
        // Pages of files are given up for others.
        let files = read("/sys/fs/cgroup/memory.stat").and_then(|text| row(&text, "file")).unwrap_or(0);
        Some(number("max")?.saturating_sub(number("current")?.saturating_sub(files)))
    };
    machine.into_iter().chain(group()).min()
}

/// The number in the row of that name.
#[cfg(feature = "cuda")]
fn row(text: &str, name: &str) -> Option<usize> {
    let mut words = text.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(name))?;
    words.nth(1)?.parse().ok()
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_not_be_written_to_is_found() {
        let maps = "1000-3000 rw-p 0 00:00 0 \n3000-4000 r--p 0 08:01 7 /lib/x\n4000-5000 rw-s 0 08:01 9 /data\n";
        for (start, end, writable) in
            [(0x1000, 0x3000, true), (0x1000, 0x3001, false), (0x3fff, 0x4001, false), (0x4000, 0x5000, true)]
        {
            assert_eq!(all_writable(maps, start, end), writable, "{start:#x} to {end:#x}");
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            static TEXT: &str = "read-only";
            let vector = vec![1_u8; 10_000];
            assert_eq!(is_writable(vector.as_ptr().addr(), vector.len()), Some(true));
            assert_eq!(is_writable(TEXT.as_ptr().addr(), TEXT.len()), Some(false));
        }
    }

    #[test]
    fn the_rows_of_the_system_are_read() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   23000000 kB\nfile 4096\n";
        assert_eq!(row(text, "MemAvailable:"), Some(23_000_000));
        assert_eq!(row(text, "file"), Some(4096));
        assert_eq!(row(text, "Mem"), None);
        #[cfg(target_os = "linux")]
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
