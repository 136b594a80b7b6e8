//! An array of f64 with its axes in another order, the innermost first.

use super::check::check;
use super::job::Job;
use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig};

const AXES: [usize; 4] = [3, 1, 2, 0];

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let shape = rig.size([128, 128, 128, 64], [32, 32, 32, 16]);
    let array = rig.doubles().array(0, &shape)?.permuted_axes(AXES)?;
    rig.title(&format!("{shape:?} of f64 from pageable memory, axes {AXES:?}"));
    // Each batch may need twice its bytes, for a rearrangement on the device.
    let device = rig.device_with(20 << 30)?;
    let job = Job { reaches: &[Reach::OfLink(0.80)], ..Job::new("transposed", &device, 4, array.bytes()) };
    job.run(rig, &|_| Ok(array.clone()), |last| {
        check(rig, last, &AXES.map(|axis| shape[axis]), |at| {
            f64::at(((at[3] * shape[1] + at[1]) * shape[2] + at[2]) * shape[3] + at[0])
        })
    })
}
