//! [`MappedFile`]: a file as memory, for arrays that are sent from the page cache.
#![expect(unsafe_code, reason = "maps files")]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use ndarray::{Dimension, IntoDimension};

use super::HostBytes;
use crate::HostArray;
use crate::batch::check_bools;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::staging::pinned::byte_len;

/// A file whose bytes are memory, shared with the system's page cache and read-only; as long as when it was opened.
///
/// Derefs to its bytes; [`array`](Self::array) takes a part of them as an array without copying any. Cheap to clone: the file
/// stays mapped while a clone, an array over it or a copy from it lives. Only what is read is loaded, when it is read.
///
/// [`Device::register`](crate::Device::register) lets copies go straight from the page cache. What it makes known are whole
/// pages, so that of two arrays which share a page without one lying in the pages of the other only the first is sent so. Where
/// a file has many arrays, register all its bytes once, keep that, and register the arrays then: they share it.
///
/// # Examples
///
/// ```
/// use inflight::{Dtype, MappedFile};
///
/// # fn main() -> inflight::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("inflight-mapped-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("numbers");
/// # std::fs::write(&path, [[0; 4], 7_u32.to_ne_bytes(), 8_u32.to_ne_bytes()].concat()).unwrap();
/// // SAFETY: nobody writes to the file or shortens it while it is in use here.
/// let file = unsafe { MappedFile::open(&path) }?;
/// let array = file.array(Dtype::U32, 2, 4)?;
/// assert_eq!(array.to_array::<u32>()?.as_slice(), Some(&[7, 8][..]));
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MappedFile {
    map: Arc<Map>,
}

/// `None` for a file without bytes: not all systems map those.
struct Map(Option<Mmap>);

impl MappedFile {
    /// Maps a file.
    ///
    /// # Safety
    ///
    /// Until the last clone, array over it and copy from it is gone, nobody writes to the file or shortens it, in this process
    /// or another. What is written shows in memory that is taken for unchanging; reading what was cut off ends the process
    /// (`SIGBUS`).
    ///
    /// # Errors
    ///
    /// [`Error::File`] if there is no such regular file, or it can't be opened or mapped.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        // SAFETY: the contract of this function.
        let map = unsafe { map(path) }.map_err(|error| Error::of_file(path, error))?;
        Ok(Self { map: Arc::new(Map(map)) })
    }

    /// The array of that type and shape, in C order, that begins at byte `offset`. It need not be aligned.
    ///
    /// Elements are in this machine's byte order. For `bool` all of its bytes are looked at.
    ///
    /// # Errors
    ///
    /// [`Error::IndexOutOfRange`] for an offset past the end (of the bytes as axis 0), [`Error::LengthMismatch`] if the shape
    /// asks for more bytes than there are from there on, [`Error::ShapeOverflow`], and [`Error::InvalidBool`] for a byte of a
    /// `bool` array that is neither 0 nor 1.
    pub fn array(&self, dtype: Dtype, shape: impl IntoDimension, offset: usize) -> Result<HostArray> {
        let dim = shape.into_dimension();
        let expected = byte_len(dim.slice(), dtype)?;
        let past_end = Error::IndexOutOfRange { axis: 0, index: offset as i128, len: self.len() };
        let rest = self.get(offset..).ok_or(past_end)?;
        let bytes = rest.get(..expected).ok_or(Error::LengthMismatch { expected, found: rest.len() })?;
        check_bools(dtype, bytes)?;
        // SAFETY: the map keeps the bytes, which nobody changes, by the contract of `open`; it is shared and read-only, and
        // begins with a page and ends with one.
        let bytes = unsafe { HostBytes::mapped(bytes.as_ptr(), self.map.clone()) };
        Ok(HostArray::dense(bytes, dtype, dim.slice()))
    }
}

/// Maps a file shared and read-only: what the driver registers without copying it. A private map it copies page by page, or
/// never ends with.
///
/// # Safety
///
/// As for [`MappedFile::open`].
unsafe fn map(path: &Path) -> io::Result<Option<Mmap>> {
    // Before it is opened: a pipe would wait for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { Mmap::map(&file) }.map(Some)
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.0.as_deref().unwrap_or_default()
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedFile").field("len", &self.len()).finish_non_exhaustive()
    }
}
