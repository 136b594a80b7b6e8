//! What the process holds, as the system tells: memory, threads, open files.

/// What the process holds at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Resident memory in bytes.
    pub(crate) resident: u64,
    pub(crate) threads: usize,
    pub(crate) files: usize,
}

impl Held {
    pub(crate) fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
        let resident = kilobytes.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) << 10;
        Self { resident, threads: entries("/proc/self/task"), files: entries("/proc/self/fd") }
    }

    /// As [`now`](Self::now), after the allocator has given back what nobody uses.
    pub(crate) fn trimmed() -> Self {
        trim();
        Self::now()
    }
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Has the allocator give large blocks back to the system at once. Its arenas keep them otherwise, and resident memory
/// tells nothing: glibc raises the size from which on it does so up to 32 MiB, unless it was set.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "asks the allocator")]
pub(crate) fn be_plain() {
    const LARGE: i32 = 64 << 10;
    // SAFETY: sets a number.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}

/// Has it give back the pages that are free within its arenas.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "asks the allocator")]
fn trim() {
    // SAFETY: only gives back what is free.
    unsafe { libc::malloc_trim(0) };
}

/// There is nothing to ask.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) const fn be_plain() {}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn trim() {}
