//! [`Bed`]: a context of a test's own, with the driver's calls as methods that panic when one fails.
#![expect(unsafe_code, reason = "makes driver calls")]
#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use inflight_stand_in::*;

static TURN: Mutex<()> = Mutex::new(());

/// A turn with the library, and a context of device 0 that is current on this thread.
pub(crate) struct Bed {
    pub(crate) context: usize,
    _turn: MutexGuard<'static, ()>,
}

/// A code that must be 0.
#[track_caller]
pub(crate) fn ok(code: i32) {
    assert_eq!(code, 0, "{}", violations());
}

/// Makes a driver call.
macro_rules! cu {
    ($call:expr) => {{
        #[allow(unused_unsafe, reason = "some calls are nested")]
        // SAFETY: the test passes what the driver's manual asks for, or a number that is checked.
        unsafe {
            $call
        }
    }};
}
pub(crate) use cu;

impl Bed {
    /// Nothing completes but by hand.
    pub(crate) fn by_hand() -> Self {
        let bed = Self::by_clock();
        stand_in_manual(1);
        bed
    }

    pub(crate) fn by_clock() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        stand_in_reset();
        ok(cu!(cuInit(0)));
        let mut context = 0;
        ok(cu!(cuCtxCreate_v4(&raw mut context, std::ptr::null_mut(), 0, 0)));
        Self { context, _turn: turn }
    }

    pub(crate) fn stream(&self) -> usize {
        let mut stream = 0;
        ok(cu!(cuStreamCreate(&raw mut stream, 1)));
        stream
    }

    pub(crate) fn event(&self) -> usize {
        let mut event = 0;
        ok(cu!(cuEventCreate(&raw mut event, 0)));
        event
    }

    pub(crate) fn recorded(&self, stream: usize) -> usize {
        let event = self.event();
        ok(cu!(cuEventRecord(event, stream)));
        event
    }

    pub(crate) fn device(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok(cu!(cuMemAlloc_v2(&raw mut address, bytes)));
        address
    }

    pub(crate) fn host(&self, content: &[u8]) -> Host {
        let mut address = 0;
        ok(cu!(cuMemHostAlloc(&raw mut address, content.len(), 0)));
        let host = Host { address, bytes: content.len() };
        host.fill(content);
        host
    }

    /// A kernel of the stand-in's, with parameters of those types.
    pub(crate) fn kernel(&self, name: &str, params: &[&str]) -> usize {
        let params: Vec<String> = params.iter().map(|of| format!(".param .{of} p")).collect();
        let text = format!(".version 8.0\n.target sm_75\n.visible .entry {name}({}) {{ ret; }}", params.join(","));
        let (text, name) = (CString::new(text).unwrap(), CString::new(name).unwrap());
        let (mut module, mut function) = (0, 0);
        ok(cu!(cuModuleLoadData(&raw mut module, text.as_ptr())));
        ok(cu!(cuModuleGetFunction(&raw mut function, module, name.as_ptr())));
        function
    }

    /// What is in device memory now.
    pub(crate) fn content(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        ok(cu!(cuMemcpyDtoH_v2(content.as_mut_ptr() as usize, address, bytes)));
        content
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        stand_in_reset();
        let _ = cu!(cuCtxDestroy_v2(self.context));
    }
}

/// Page-locked memory; it ends with its context.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub(crate) address: usize,
    bytes: usize,
}

impl Host {
    pub(crate) fn fill(&self, content: &[u8]) {
        assert_eq!(content.len(), self.bytes);
        // SAFETY: so many bytes were allocated.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.address as *mut u8, self.bytes) }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        // SAFETY: so many bytes were allocated.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }.to_vec()
    }
}

/// Launches a kernel with arguments of 64 bits; one of 32 bits is the low half of its own.
pub(crate) fn launch(function: usize, stream: usize, arguments: &[u64]) -> i32 {
    let addresses: Vec<_> = arguments.iter().map(|argument| (&raw const *argument).cast()).collect();
    cu!(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, addresses.as_ptr(), std::ptr::null()))
}

pub(crate) fn counter(name: &str) -> u64 {
    let name = CString::new(name).unwrap();
    cu!(stand_in_counter(name.as_ptr()))
}

pub(crate) fn violations() -> String {
    text(|buffer, capacity| cu!(stand_in_violations(buffer, capacity)))
}

pub(crate) fn text(take: impl Fn(*mut u8, u64) -> u64) -> String {
    let mut text = vec![0; 1 << 16];
    let length = take(text.as_mut_ptr(), text.len() as u64);
    text.truncate(usize::try_from(length).unwrap());
    String::from_utf8(text).unwrap()
}

pub(crate) fn fail(function: &str, kth: u64, code: i32, sticky: i32) {
    let function = CString::new(function).unwrap();
    cu!(stand_in_fail(function.as_ptr(), kth, code, sticky));
}
