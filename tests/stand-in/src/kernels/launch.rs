//! [`Launch`]: what a kernel sees: its grid and its arguments; and [`Outcome`], what it gives.

use std::cell::Cell;
use std::time::Duration;

use super::Kernel;
use super::memory::Memory;
use super::value::Value;
use crate::code::Code;

/// What a kernel is launched with. Memory is reached through it: an address that is not valid is a fault of the launch,
/// whatever the kernel makes of it.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    #[allow(dead_code, reason = "not each kernel looks at it")]
    pub(crate) grid: [u32; 3],
    #[allow(dead_code, reason = "not each kernel looks at it")]
    pub(crate) block: [u32; 3],
    params: &'a [Vec<u8>],
    memory: Memory,
    is_invalid: Cell<bool>,
}

/// What a kernel gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How long it is on the device, whatever the CPU took.
    pub(crate) took: Duration,
    /// The code that its context fails with.
    pub(crate) fault: Option<i32>,
}

impl Outcome {
    /// Done at once.
    pub(crate) fn done() -> Self {
        Self::default()
    }

    /// Done after that time.
    pub(crate) fn after(took: Duration) -> Self {
        Self { took, fault: None }
    }

    pub(crate) fn fault(code: i32) -> Self {
        Self { took: Duration::ZERO, fault: Some(code) }
    }
}

impl<'a> Launch<'a> {
    pub(super) const fn new(grid: [u32; 3], block: [u32; 3], params: &'a [Vec<u8>], memory: Memory) -> Self {
        Self { grid, block, params, memory, is_invalid: Cell::new(false) }
    }

    pub(super) fn run(&self, kernel: Kernel) -> Outcome {
        let outcome = kernel(self);
        if self.is_invalid.get() { Outcome::fault(Code::ILLEGAL_ADDRESS.0) } else { outcome }
    }

    /// The bytes of the argument at that place; none if it has none there.
    pub(crate) fn bytes_at(&self, place: usize) -> &[u8] {
        self.params.get(place).map_or(&[], Vec::as_slice)
    }

    /// The argument at that place; 0 if it has none there.
    pub(crate) fn at<T: Value>(&self, place: usize) -> T {
        T::from_bytes(self.bytes_at(place))
    }

    pub(crate) fn u32_at(&self, place: usize) -> u32 {
        self.at(place)
    }

    pub(crate) fn u64_at(&self, place: usize) -> u64 {
        self.at(place)
    }

    #[allow(dead_code, reason = "not each set of kernels has such an argument")]
    pub(crate) fn f32_at(&self, place: usize) -> f32 {
        self.at(place)
    }

    /// An argument that is a length.
    pub(crate) fn usize_at(&self, place: usize) -> usize {
        usize::try_from(self.u64_at(place)).unwrap_or(usize::MAX)
    }

    /// So many values from that address on.
    pub(crate) fn read<T: Value>(&self, address: u64, len: usize) -> Option<Vec<T>> {
        let bytes = len.checked_mul(T::BYTES).and_then(|bytes| self.memory.read(address, bytes));
        self.is_invalid.set(self.is_invalid.get() || bytes.is_none());
        Some(bytes?.chunks_exact(T::BYTES).map(T::from_bytes).collect())
    }

    /// Copies bytes, if all of them are valid.
    #[allow(dead_code, reason = "not each set of kernels copies bytes")]
    pub(crate) fn copy(&self, from: u64, to: u64, bytes: usize) -> bool {
        let copied = self.memory.read(from, bytes).is_some_and(|bytes| self.memory.write(to, &bytes));
        self.is_invalid.set(self.is_invalid.get() || !copied);
        copied
    }

    /// Writes values from that address on, if all of it is valid.
    pub(crate) fn write<T: Value>(&self, address: u64, values: &[T]) -> bool {
        let mut bytes = Vec::with_capacity(size_of_val(values));
        values.iter().for_each(|value| value.put(&mut bytes));
        let written = self.memory.write(address, &bytes);
        self.is_invalid.set(self.is_invalid.get() || !written);
        written
    }
}
