//! What tests steer the stand-in with. These calls are not counted as the driver's.

mod advancing;
mod faults;
mod reading;
mod settings;
mod text;

pub use self::advancing::*;
pub use self::faults::*;
pub use self::reading::*;
pub use self::settings::*;
