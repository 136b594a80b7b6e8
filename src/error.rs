//! [`Error`]: everything that can go wrong, in one enum, and the batch that comes back where nothing was sent.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Dtype, HostBatch};

/// The result of what this crate does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error, as sources may raise it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong, with the names, sizes and codes needed to act on it.
///
/// Cheap to clone, and free of device and staging memory: keeping an error keeps nothing else from working. An error
/// about a batch of which no copy was enqueued holds that batch for [`Error::take_batch`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Two fields of a batch have one name.
    DuplicateField {
        /// The name.
        field: String,
        /// The batch.
        batch: Returned,
    },
    /// A shape has more elements or bytes than an address space holds.
    ShapeOverflow {
        /// The field's name, where the array is one of a batch.
        field: Option<String>,
        /// The shape, in elements.
        shape: Vec<usize>,
        /// The element type.
        dtype: Dtype,
        /// The batch, if there was one.
        batch: Returned,
    },
    /// Data and shape disagree about how many bytes there are.
    LengthMismatch {
        /// Bytes that the shape asks for.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A byte that is neither 0 nor 1 where a `bool` was promised.
    InvalidBool {
        /// The element's place.
        index: usize,
        /// The byte.
        byte: u8,
    },
    /// An index past the end of an axis.
    IndexOutOfRange {
        /// The axis.
        axis: usize,
        /// The index, as it was given: of any integer type.
        index: i128,
        /// The axis' length.
        len: usize,
    },
    /// A view that an array of this rank does not have.
    InvalidView {
        /// What is wrong with it.
        reason: String,
    },
    /// A name that the batch does not have.
    UnknownField {
        /// The name.
        field: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// A field asked for as another type than it has.
    DtypeMismatch {
        /// The field's name, where the array is one of a batch.
        field: Option<String>,
        /// The type that was asked for.
        asked: Dtype,
        /// The type that it has.
        found: Dtype,
    },
    /// An output array of another shape than the data.
    ShapeMismatch {
        /// The shape that was asked for.
        asked: Vec<usize>,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// A setting that can't be.
    InvalidSetting {
        /// Its name.
        name: &'static str,
        /// The value given.
        value: String,
        /// What would be right.
        reason: &'static str,
    },
    /// There is no such device.
    NoDevice {
        /// What was asked for, and what was found.
        reason: String,
    },
    /// There is no CUDA driver, or it does not work.
    DriverUnavailable {
        /// The driver's code, if it gave one.
        code: Option<i32>,
        /// What is wrong, and what would help.
        reason: String,
    },
    /// A batch needs more device memory than the device's limit.
    BatchTooLarge {
        /// Bytes that it needs, rounded up to block sizes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
        /// The batch.
        batch: Returned,
    },
    /// The pipelines of a device can't each keep one batch within its memory limit.
    FloorTooLarge {
        /// The pipeline whose batch does not fit beside the others' floors.
        pipeline: String,
        /// Bytes that its batch needs.
        bytes: usize,
        /// Bytes kept for the other pipelines, one batch each.
        others: usize,
        /// The limit in bytes.
        limit: usize,
        /// The batch.
        batch: Returned,
    },
    /// Nothing was freed within the admission timeout.
    AdmissionTimeout {
        /// The pipeline that waited.
        pipeline: String,
        /// Bytes that its batch needs.
        bytes: usize,
        /// How long it waited.
        waited: Duration,
        /// Who holds how many bytes.
        holders: String,
        /// The batch.
        batch: Returned,
    },
    /// No room at this moment.
    Busy {
        /// What there was no room in.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The batch, if there was one.
        batch: Returned,
    },
    /// A field that can't be brought into order where the pipeline's [`Relayout`](crate::Relayout) allows it.
    Relayout {
        /// The field's name.
        field: String,
        /// What is missing, or not allowed.
        reason: &'static str,
        /// The batch.
        batch: Returned,
    },
    /// Memory ran out although nothing of ours could be given back, or more was asked for than its budget.
    OutOfMemory {
        /// Which memory.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The budget in bytes, where that is what is too small.
        limit: Option<usize>,
        /// The device.
        device: String,
        /// The batch, if there was one.
        batch: Returned,
    },
    /// A field's copies are not all enqueued yet.
    NotQueued {
        /// The field's name.
        field: String,
    },
    /// A field has not arrived yet.
    NotArrived {
        /// The field's name.
        field: String,
    },
    /// A batch is in use in a way that excludes this one.
    Borrowed {
        /// What is in the way.
        reason: &'static str,
    },
    /// A compute stream or slice of another device.
    WrongDevice {
        /// Which of the two it is.
        what: &'static str,
        /// The device that was to use it.
        device: String,
        /// What it belongs to.
        owner: String,
    },
    /// A compute stream that batches can't be used on.
    UnusableStream {
        /// What is wrong with it.
        reason: &'static str,
        /// The device.
        device: String,
    },
    /// Something that this backend does not do.
    Unsupported {
        /// What it is.
        what: &'static str,
        /// The device.
        device: String,
    },
    /// A driver call failed for one operation; the device is healthy.
    Driver {
        /// The driver's code.
        code: i32,
        /// The call.
        call: &'static str,
        /// The device.
        device: String,
        /// The batch, if no copy of it was enqueued.
        batch: Returned,
    },
    /// The device is lost: nothing on it will complete.
    DeviceLost {
        /// The driver's code.
        code: i32,
        /// The call that told.
        call: &'static str,
        /// The device.
        device: String,
        /// The batch, if no copy of it was enqueued.
        batch: Returned,
    },
    /// A device used in the child of a `fork`, where its driver and threads are gone.
    Forked {
        /// The device.
        device: String,
        /// The batch, if there was one.
        batch: Returned,
    },
    /// Code that works for a pipeline panicked.
    Panicked {
        /// Which code.
        what: Cow<'static, str>,
        /// The panic's text.
        message: String,
        /// The batch, if no copy of it was enqueued.
        batch: Returned,
    },
    /// A file that can't be opened or mapped.
    File {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        error: Arc<std::io::Error>,
    },
    /// The source of batches raised an error.
    Source(Arc<dyn std::error::Error + Send + Sync>),
}

/// Matches the variants that have a place for a batch.
macro_rules! place_of_batch {
    ($error:expr, $batch:ident => $there:expr, _ => $not:expr) => {
        match $error {
            Self::DuplicateField { batch: $batch, .. }
            | Self::ShapeOverflow { batch: $batch, .. }
            | Self::BatchTooLarge { batch: $batch, .. }
            | Self::FloorTooLarge { batch: $batch, .. }
            | Self::AdmissionTimeout { batch: $batch, .. }
            | Self::Busy { batch: $batch, .. }
            | Self::Relayout { batch: $batch, .. }
            | Self::OutOfMemory { batch: $batch, .. }
            | Self::Driver { batch: $batch, .. }
            | Self::DeviceLost { batch: $batch, .. }
            | Self::Forked { batch: $batch, .. }
            | Self::Panicked { batch: $batch, .. } => $there,
            _ => $not,
        }
    };
}

impl Error {
    /// Wraps an error of the source.
    pub fn source(error: impl Into<BoxError>) -> Self {
        let error = error.into();
        match error.downcast::<Self>() {
            Ok(ours) => *ours,
            Err(theirs) => Self::Source(Arc::from(theirs)),
        }
    }

    /// Whether the device is lost: every other operation on it fails too.
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::DeviceLost { .. } | Self::Forked { .. })
    }

    /// The source's error as its own type.
    pub fn source_as<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Source(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Takes the batch out, where no copy of it was enqueued and nobody took it before.
    ///
    /// Clones of an error share the batch: it is taken once.
    pub fn take_batch(&self) -> Option<HostBatch> {
        place_of_batch!(self, batch => batch.take(), _ => None)
    }

    /// The error for an array that no memory holds.
    pub(crate) fn shape_overflow(shape: &[usize], dtype: Dtype) -> Self {
        Self::ShapeOverflow { field: None, shape: shape.to_vec(), dtype, batch: Returned::default() }
    }

    /// The error for a file.
    pub(crate) fn of_file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), error: Arc::new(error) }
    }

    /// The same error, telling which field of a batch it is about.
    pub(crate) fn of_field(mut self, name: &str) -> Self {
        if let Self::ShapeOverflow { field, .. } = &mut self {
            *field = Some(name.to_owned());
        }
        self
    }

    /// The error for memory of the host that the system does not give.
    pub(crate) fn out_of_host_memory(bytes: usize) -> Self {
        let (device, batch) = ("the host".to_owned(), Returned::default());
        Self::OutOfMemory { what: "memory", bytes, limit: None, device, batch }
    }

    /// The same error, holding `given` where its variant has a place for it.
    pub(crate) fn with_batch(mut self, given: HostBatch) -> Self {
        place_of_batch!(&mut self, batch => *batch = Returned::new(given), _ => {});
        self
    }

    /// The error for a panic caught in `what`.
    pub(crate) fn panicked(what: impl Into<Cow<'static, str>>, payload: &(dyn std::any::Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a value that is not text".to_owned());
        Self::Panicked { what: what.into(), message, batch: Returned::default() }
    }
}

/// A batch on its way back to its owner, inside an [`Error`].
#[derive(Clone, Default)]
pub struct Returned(Option<Arc<Mutex<Option<HostBatch>>>>);

impl Returned {
    fn new(batch: HostBatch) -> Self {
        Self(Some(Arc::new(Mutex::new(Some(batch)))))
    }

    fn take(&self) -> Option<HostBatch> {
        self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl std::fmt::Debug for Returned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Returned(batch)" } else { "Returned(none)" })
    }
}

/// What the driver says that a code means, in brackets; nothing where no driver was opened.
fn meaning(code: i32) -> String {
    #[cfg(feature = "cuda")]
    if let Some(text) = crate::backend::cuda::describe(code) {
        return format!(" ({text})");
    }
    let _ = code;
    String::new()
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DuplicateField { field, .. } => write!(f, "two fields of the batch are named {field:?}"),
            Self::ShapeOverflow { field, shape, dtype, .. } => {
                if let Some(field) = field {
                    write!(f, "field {field:?}: ")?;
                }
                write!(f, "shape {shape:?} of {dtype} has more bytes than an address space holds")
            }
            Self::LengthMismatch { expected, found } => {
                write!(f, "the shape asks for {expected} bytes, the data has {found}")
            }
            Self::InvalidBool { index, byte } => write!(f, "element {index} is byte {byte}, a bool is 0 or 1"),
            Self::IndexOutOfRange { axis, index, len } => {
                write!(f, "index {index} is out of range for axis {axis} of length {len}")
            }
            Self::InvalidView { reason } => f.write_str(reason),
            Self::UnknownField { field, names } => {
                write!(f, "the batch has no field {field:?}; its fields are {names:?}")
            }
            Self::DtypeMismatch { field: Some(field), asked, found } => {
                write!(f, "field {field:?} is {found}, not {asked}")
            }
            Self::DtypeMismatch { field: None, asked, found } => write!(f, "the array is {found}, not {asked}"),
            Self::ShapeMismatch { asked, found } => write!(f, "the data has shape {found:?}, not {asked:?}"),
            Self::InvalidSetting { name, value, reason } => write!(f, "{name} can't be {value:?}: {reason}"),
            Self::NoDevice { reason } => write!(f, "no such device: {reason}"),
            Self::DriverUnavailable { reason, .. } => write!(f, "the CUDA driver can't be used: {reason}"),
            Self::BatchTooLarge { bytes, limit, .. } => {
                write!(
                    f,
                    "the batch needs {bytes} bytes of device memory, the limit is {limit}: send less at once, or raise \
                     memory_bytes"
                )
            }
            Self::FloorTooLarge { pipeline, bytes, others, limit, .. } => write!(
                f,
                "pipeline {pipeline:?} needs {bytes} bytes for one batch, beside {others} kept for one batch of each \
                 other pipeline: more than the limit of {limit}; send less at once, or raise memory_bytes"
            ),
            Self::AdmissionTimeout { pipeline, bytes, waited, holders, .. } => {
                write!(f, "pipeline {pipeline:?} waited {waited:?} for {bytes} bytes of device memory; held: {holders}")
            }
            Self::Busy { what, bytes, .. } => write!(f, "no room for {bytes} bytes in the {what} right now"),
            Self::Relayout { field, reason, .. } => write!(f, "field {field:?} is not sent: {reason}"),
            Self::OutOfMemory { what, bytes, limit: None, device, .. } => {
                write!(f, "out of {what} on {device}: {bytes} bytes were asked for")
            }
            Self::OutOfMemory { what, bytes, limit: Some(limit), device, .. } => {
                write!(f, "out of {what} on {device}: {bytes} bytes were asked for, the limit is {limit}")
            }
            Self::NotQueued { field } => {
                write!(f, "the copies of field {field:?} are not all enqueued yet: await `queued` of the lease")
            }
            Self::NotArrived { field } => write!(f, "field {field:?} has not arrived yet: await its `ready`"),
            Self::Borrowed { reason } => f.write_str(reason),
            Self::WrongDevice { what, device, owner } => write!(f, "the {what} belongs to {owner}, not to {device}"),
            Self::UnusableStream { reason, device } => write!(f, "{device} can't work on this stream: {reason}"),
            Self::Unsupported { what, device } => write!(f, "{device} has no {what}"),
            Self::Driver { code, call, device, .. } => {
                write!(f, "{call} failed with code {code}{} on {device}", meaning(*code))
            }
            Self::DeviceLost { code, call, device, .. } => {
                write!(f, "{device} is lost: {call} failed with code {code}{}", meaning(*code))
            }
            Self::Forked { device, .. } => {
                write!(f, "{device} was opened before a fork and can't be used in the child: open one there")
            }
            Self::Panicked { what, message, .. } => write!(f, "{what} panicked: {message}"),
            Self::File { path, error } => write!(f, "the file {} can't be used: {error}", path.display()),
            Self::Source(error) => write!(f, "the source failed: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { error, .. } => Some(error.as_ref()),
            Self::Source(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}
