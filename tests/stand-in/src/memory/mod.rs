//! Memory: blocks of the devices, pools of them, and page-locked memory of the host.

mod device;
mod host;
mod pool;
mod rights;

pub(crate) use self::device::{DEVICE_ADDRESSES, DeviceMemory};
pub(crate) use self::host::HostMemory;
pub(crate) use self::pool::{Pool, USED_HIGH};

/// What fresh memory is full of.
pub(crate) const FRESH: u8 = 0xCD;
/// What freed memory is full of.
pub(crate) const FREED: u8 = 0xDD;
