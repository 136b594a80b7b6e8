//! The shuffled images again, from a registered array: on an idle GPU, and while compute fills it.

use super::compute::Compute;
use super::reach::Reach;
use super::rig::{Outcome, Rig};
use super::rows::Images;

const REACHES: [Reach; 2] = [Reach::OfLink(0.90), Reach::Cores(0.1)];

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let mut images = Images::new(rig)?;
    rig.title(&format!("the same from a registered array of {} bytes", images.array.bytes()));
    let device = rig.device_with(1 << 30)?;
    let registered = rig.runtime.block_on(device.register(images.array.clone()))?;
    if !registered.is_direct() {
        return Err("the array is not registered".into());
    }
    images.array = registered.into();
    images.measure_idle_and_beside(rig, ("registered rows", &device))
}

impl Images {
    /// Sends all, shuffled, on an idle GPU and beside compute.
    pub(crate) fn measure_idle_and_beside(&self, rig: &Rig, (name, device): (&str, &inflight::Device)) -> Outcome<()> {
        self.measure(rig, (name, device), None, &REACHES)?;
        let Some(context) = &rig.context else {
            rig.left_out(&format!("{name} beside compute"), "it is a GPU's");
            return Ok(());
        };
        let compute = Compute::new(context)?;
        self.measure(rig, (&format!("{name} beside compute"), device), Some(&compute), &REACHES)
    }
}
