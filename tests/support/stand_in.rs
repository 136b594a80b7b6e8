//! [`StandIn`]: the driver library that stands in for CUDA's where there is no GPU, and the controls of it.
//!
//! Loaded before the first use of CUDA, it is what the process then finds as `libcuda.so`. One a process: tests that share
//! it take turns.
#![allow(unsafe_code, reason = "opens a library and calls its functions")]
#![allow(dead_code, reason = "not each test uses all controls")]

use std::env;
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::time::Duration;

use libloading::Library;

#[cfg(target_os = "macos")]
const FILE: &str = "libinflight_stand_in.dylib";
#[cfg(not(target_os = "macos"))]
const FILE: &str = "libinflight_stand_in.so";

macro_rules! controls {
    ($($name:ident($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The loaded library.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct StandIn {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl StandIn {
            fn find(library: &Library) -> Option<Self> {
                Some(Self {
                    $(
                        // SAFETY: the library's functions have these signatures.
                        $name: *unsafe { library.get(concat!("stand_in_", stringify!($name)).as_bytes()) }.ok()?,
                    )*
                })
            }
        }
    };
}

controls! {
    reset();
    manual(i32);
    link(f64, u64);
    advance(u64) -> u64;
    advance_stream(usize, u64) -> u64;
    fail(*const c_char, u64, i32, i32);
    fail_operation(u64, i32);
    faults_left() -> u64;
    calls(*const c_char) -> u64;
    log(i32);
    log_take(*mut u8, u64) -> u64;
    counter(*const c_char) -> u64;
    violations(*mut u8, u64) -> u64;
    attribute(i32, i32, i32);
    memory(u64);
}

impl StandIn {
    /// Loads the library for as long as the process lives; `None` where it was not built, or this is not Linux.
    pub(crate) fn load() -> Option<Self> {
        let library = open(&Self::path()?)?;
        let found = Self::find(&library);
        // Never closed: it has threads.
        let _ = std::mem::ManuallyDrop::new(library);
        found
    }

    /// Where the library is: at `INFLIGHT_STAND_IN`, or where Cargo puts it for this test.
    pub(crate) fn path() -> Option<PathBuf> {
        if let Some(path) = env::var_os("INFLIGHT_STAND_IN") {
            return Some(path.into());
        }
        let test = env::current_exe().ok()?;
        let beside = test.parent()?;
        let above = beside.parent()?;
        [beside.to_owned(), above.join("deps"), above.to_owned(), beside.join("deps")]
            .into_iter()
            .map(|folder| folder.join(FILE))
            .find(|path| path.is_file())
    }

    /// Settings, faults, log and counters as in the beginning. What lives stays.
    pub(crate) fn reset(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.reset)() }
    }

    /// Whether operations complete by [`advance`](Self::advance) only, and not by the clock.
    pub(crate) fn manual(&self, on: bool) {
        // SAFETY: takes a number.
        unsafe { (self.manual)(i32::from(on)) }
    }

    /// How fast copies go by the clock, each way, and what each takes besides.
    pub(crate) fn link(&self, bytes_per_second: f64, latency: Duration) {
        // SAFETY: takes numbers.
        unsafe { (self.link)(bytes_per_second, u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)) }
    }

    /// Completes up to so many operations, in rounds over the streams, oldest first; the answer is how many it were.
    pub(crate) fn advance(&self, most: u64) -> u64 {
        // SAFETY: takes a number.
        unsafe { (self.advance)(most) }
    }

    /// The same for the stream of that handle alone.
    pub(crate) fn advance_stream(&self, stream: usize, most: u64) -> u64 {
        // SAFETY: takes numbers; any is allowed.
        unsafe { (self.advance_stream)(stream, most) }
    }

    /// The `kth` call from now on (1 is the next), of a function or of any, does nothing but return `code`.
    pub(crate) fn fail(&self, function: Option<&str>, kth: u64, code: i32) {
        self.set_fault(function, kth, code, false);
    }

    /// The same, and the caller's current context fails with it.
    pub(crate) fn fail_for_good(&self, function: Option<&str>, kth: u64, code: i32) {
        self.set_fault(function, kth, code, true);
    }

    fn set_fault(&self, function: Option<&str>, kth: u64, code: i32, sticky: bool) {
        // SAFETY: a text that ends with a 0, or null.
        with_text(function, |function| unsafe { (self.fail)(function, kth, code, i32::from(sticky)) });
    }

    /// The `kth` operation from now on that would complete makes its context fail instead.
    pub(crate) fn fail_operation(&self, kth: u64, code: i32) {
        // SAFETY: takes numbers.
        unsafe { (self.fail_operation)(kth, code) }
    }

    /// How many faults have been set that have not happened.
    pub(crate) fn faults_left(&self) -> u64 {
        // SAFETY: takes nothing.
        unsafe { (self.faults_left)() }
    }

    /// Calls of a function, or of all, since the last reset or start of the log.
    pub(crate) fn calls(&self, function: Option<&str>) -> u64 {
        // SAFETY: a text that ends with a 0, or null.
        with_text(function, |function| unsafe { (self.calls)(function) })
    }

    /// Starts a log and counts calls anew; or ends it.
    pub(crate) fn log(&self, on: bool) {
        // SAFETY: takes a number.
        unsafe { (self.log)(i32::from(on)) }
    }

    /// Takes the log: a line for each call that has returned, with its function, arguments and code.
    pub(crate) fn log_take(&self) -> Vec<String> {
        // SAFETY: the buffer has that room.
        lines(|buffer, capacity| unsafe { (self.log_take)(buffer, capacity) })
    }

    /// A counter: `violations`, `pending`, `peak_pending`, `blocked_calls`, `device_bytes`, `device_blocks`, `host_bytes`,
    /// `host_blocks`, `events`, `streams`, `contexts`, `modules`, `pageable_copies` or `unrecorded_queries`.
    ///
    /// # Panics
    ///
    /// If there is none of that name.
    #[track_caller]
    pub(crate) fn counter(&self, name: &str) -> u64 {
        // SAFETY: a text that ends with a 0.
        let value = with_text(Some(name), |name| unsafe { (self.counter)(name) });
        assert_ne!(value, u64::MAX, "there is no counter {name}");
        value
    }

    /// Which rules of the driver were broken, and by which calls: a line each, the first 64.
    pub(crate) fn violations(&self) -> Vec<String> {
        // SAFETY: the buffer has that room.
        lines(|buffer, capacity| unsafe { (self.violations)(buffer, capacity) })
    }

    /// Sets an attribute, by the driver's number, of one device or of all.
    pub(crate) fn attribute(&self, device: Option<usize>, attribute: i32, value: i32) {
        let device = device.map_or(-1, |device| i32::try_from(device).unwrap_or(i32::MAX));
        // SAFETY: takes numbers.
        unsafe { (self.attribute)(device, attribute, value) }
    }

    /// How many bytes of memory each device has.
    pub(crate) fn memory(&self, bytes: u64) {
        // SAFETY: takes a number.
        unsafe { (self.memory)(bytes) }
    }
}

/// Opens it by its full path, for all that later asks for the SONAME it has: the driver's.
#[cfg(target_os = "linux")]
fn open(path: &std::path::Path) -> Option<Library> {
    use libloading::os::unix::{Library as Unix, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: the library does nothing when it is loaded.
    unsafe { Unix::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.ok().map(Library::from)
}

#[cfg(not(target_os = "linux"))]
fn open(_: &std::path::Path) -> Option<Library> {
    None
}

/// Calls with the address of a text, or null.
fn with_text<R>(text: Option<&str>, call: impl FnOnce(*const c_char) -> R) -> R {
    let text = text.map(|text| CString::new(text).unwrap_or_default());
    call(text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr()))
}

/// Asks for a text until there is room for it.
fn lines(mut ask: impl FnMut(*mut u8, u64) -> u64) -> Vec<String> {
    let mut text = vec![0; 1 << 16];
    loop {
        let length = usize::try_from(ask(text.as_mut_ptr(), text.len() as u64)).unwrap_or(0);
        if length <= text.len() {
            text.truncate(length);
            return String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
        }
        text.resize(2 * length, 0);
    }
}
