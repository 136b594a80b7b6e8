//! Which CUDA driver the tests of this machine run on: that of a GPU, the stand-in, or none.

use std::io::Write;
use std::sync::OnceLock;

use inflight::Device;

#[path = "stand_in.rs"]
mod stand_in;
pub(crate) use stand_in::StandIn;

/// A driver.
pub(crate) enum Driver {
    /// The machine's own.
    Gpu,
    /// The fake one in `tests/stand-in`.
    StandIn(StandIn),
    /// None: what needs one is left out, and that is said.
    None,
}

/// The driver of this process.
///
/// `INFLIGHT_TEST_DRIVER` may be `gpu`, `stand-in` or `none`; else it is the stand-in where it was built, or the machine's.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let asked = std::env::var("INFLIGHT_TEST_DRIVER").unwrap_or_default();
        let stand_in = if matches!(asked.as_str(), "gpu" | "none") { None } else { StandIn::load() };
        match (stand_in, asked.as_str()) {
            (Some(stand_in), _) => Driver::StandIn(stand_in),
            (None, "stand-in") => panic!("the stand-in driver was asked for and is not there"),
            (None, "none") => Driver::None,
            (None, asked) => match Device::cuda(0) {
                Ok(_) => Driver::Gpu,
                Err(error) if asked == "gpu" => panic!("a GPU was asked for: {error}"),
                Err(error) => {
                    // Not by a macro: what those print is shown for failed tests only.
                    let _ = writeln!(std::io::stderr(), "!!! NO GPU, NO STAND-IN: nothing runs on CUDA here ({error})");
                    Driver::None
                }
            },
        }
    })
}
