//! The driver's functions, by their names in the library. What they do is in NVIDIA's manual of the driver API.
#![expect(missing_docs, reason = "the driver's manual describes its functions")]
#![expect(clippy::missing_safety_doc, reason = "the driver's manual says what each function asks of its caller")]

mod alloc;
mod batch;
mod capture;
mod context;
mod copy;
mod device;
mod event;
mod fill;
mod host;
mod init;
mod launch;
mod lookup;
mod memory;
mod module;
mod pool;
mod shaped;
mod stream;
mod texts;
mod write;

pub use self::alloc::*;
pub use self::batch::*;
pub use self::capture::*;
pub use self::context::*;
pub use self::copy::*;
pub use self::device::*;
pub use self::event::*;
pub use self::fill::*;
pub use self::host::*;
pub use self::init::*;
pub use self::launch::*;
pub use self::lookup::*;
pub use self::memory::*;
pub use self::module::*;
pub use self::pool::*;
pub use self::shaped::*;
pub use self::stream::*;
pub use self::texts::*;
