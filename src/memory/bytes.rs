//! [`HostBytes`]: memory of the host that somebody owns, kept for as long as anything may read it.
#![expect(unsafe_code, reason = "addresses of owned memory go between threads")]

use std::any::Any;
use std::sync::Arc;

use ndarray::{ArcArray, Dimension};

use crate::dtype::Element;
use crate::error::{Error, Result};

/// What keeps memory of the user's, or of a pool, as long as it lives.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// An address in memory that `owner` keeps readable and unchanged.
#[derive(Clone)]
pub(crate) struct HostBytes {
    ptr: *const u8,
    /// Bytes from the owner's slice, where that is how it was made.
    len: usize,
    page_locked: Option<u64>,
    /// Its pages are those of a file, mapped shared and read-only, from the first to the last.
    of_file: bool,
    /// Keeps the memory.
    owner: Owner,
}

// SAFETY: the memory is only read, through shared access to an owner that may be used from any thread.
unsafe impl Send for HostBytes {}
// SAFETY: as above.
unsafe impl Sync for HostBytes {}

/// Keeps a guard beside an owner.
#[expect(dead_code, reason = "the fields keep something alive")]
struct Both(Arc<dyn Any + Send + Sync>, Arc<dyn Any + Send + Sync>);

impl HostBytes {
    /// The slice that `owner` gives, from its place in an `Arc` that never moves.
    ///
    /// The slice is borrowed from shared access to the owner, which lasts as long as the `Arc`: nobody gets at the owner in
    /// any other way.
    pub(crate) fn owned<T: Element, O: AsRef<[T]> + Send + Sync + 'static>(owner: O) -> Self {
        let owner = Arc::new(owner);
        let slice: &[T] = (*owner).as_ref();
        let (ptr, len) = (slice.as_ptr().cast(), size_of_val(slice));
        Self { ptr, len, page_locked: None, of_file: false, owner }
    }

    /// The same for bytes, with what `look` says of them.
    pub(crate) fn inspected<O, R>(owner: O, look: impl FnOnce(&[u8]) -> R) -> (Self, R)
    where
        O: AsRef<[u8]> + Send + Sync + 'static,
    {
        let owner = Arc::new(owner);
        let slice: &[u8] = (*owner).as_ref();
        let (ptr, len, said) = (slice.as_ptr(), slice.len(), look(slice));
        (Self { ptr, len, page_locked: None, of_file: false, owner }, said)
    }

    /// The memory of a shared array, from its first element.
    pub(crate) fn shared_array<T: Element, D: Dimension + 'static>(array: ArcArray<T, D>) -> Self {
        let ptr = array.as_ptr().cast();
        Self { ptr, len: 0, page_locked: None, of_file: false, owner: Arc::new(array) }
    }

    /// Memory that `owner` keeps.
    ///
    /// # Safety
    ///
    /// What is read from `ptr` on stays readable and unchanged while `owner` lives.
    pub(crate) unsafe fn kept(ptr: *const u8, owner: Arc<dyn Any + Send + Sync>, page_locked: Option<u64>) -> Self {
        Self { ptr, len: 0, page_locked, of_file: false, owner }
    }

    /// Memory of a file, which `map` keeps.
    ///
    /// # Safety
    ///
    /// As for [`kept`](Self::kept); and the whole pages that the memory has a part in are mapped shared and read-only.
    pub(crate) unsafe fn mapped(ptr: *const u8, map: Arc<dyn Any + Send + Sync>) -> Self {
        Self { ptr, len: 0, page_locked: None, of_file: true, owner: map }
    }

    /// From so many elements further on.
    pub(crate) const fn advanced<T: Element>(mut self, elements: usize) -> Self {
        self.ptr = self.ptr.wrapping_add(elements * size_of::<T>());
        self
    }

    /// From so many bytes further on, or back.
    pub(crate) const fn moved(mut self, bytes: isize) -> Self {
        self.ptr = self.ptr.wrapping_offset(bytes);
        self
    }

    /// The same memory, known to a device as long as `guard` lives.
    pub(crate) fn locked_for(self, device: u64, guard: Arc<dyn Any + Send + Sync>) -> Self {
        Self { page_locked: Some(device), owner: Arc::new(Both(self.owner, guard)), ..self }
    }

    pub(crate) const fn ptr(&self) -> *const u8 {
        self.ptr
    }

    pub(crate) const fn page_locked(&self) -> Option<u64> {
        self.page_locked
    }

    pub(crate) const fn is_of_file(&self) -> bool {
        self.of_file
    }

    /// What keeps the memory.
    pub(crate) const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether the owner's slice has so many bytes.
    pub(crate) const fn expect_len(&self, expected: usize) -> Result<()> {
        if self.len == expected { Ok(()) } else { Err(Error::LengthMismatch { expected, found: self.len }) }
    }
}
