//! A volume of f64 on the host that is f32 on the device, by source bytes.

use super::check::check;
use super::job::Job;
use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig};

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let shape = rig.size([64, 1024, 1024], [16, 256, 256]);
    let array = rig.doubles().array(0, &shape)?;
    rig.title(&format!("{shape:?} of f64 from pageable memory, f32 on the device, by source bytes"));
    let device = rig.device_with(16 << 30)?;
    let job = Job { reaches: &[Reach::OfLink(1.0)], ..Job::new("cast", &device, 4, array.bytes()) };
    let array = array.cast::<f32>();
    job.run(rig, &|_| Ok(array.clone()), |last| {
        check(rig, last, &shape, |at| f64::at((at[0] * shape[1] + at[1]) * shape[2] + at[2]) as f32)
    })
}
