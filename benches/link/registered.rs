//! The shuffled images again, from a registered array: on an idle GPU, and while compute fills it; and by kernels.

use inflight::{Device, FetchKernels};

use super::compute::Compute;
use super::reach::Reach;
use super::rig::{Outcome, Rig};
use super::rows::Images;

const REACHES: [Reach; 2] = [Reach::OfLink(0.90), Reach::Cores(0.1)];

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let images = Images::new(rig)?;
    rig.title(&format!("the same from a registered array of {} bytes", images.array.bytes()));
    let device = rig.device_with(1 << 30)?;
    images.registered(rig, &device)?.measure_idle_and_beside(rig, ("registered rows", &device))?;
    if rig.context.is_none() {
        rig.left_out("registered rows by kernels", "they are a GPU's");
        return Ok(());
    }
    rig.runtime.block_on(device.drain())?;
    drop(device);
    let device = rig.builder().memory_bytes(1 << 30).fetch_kernels(FetchKernels::Always).build()?;
    images.registered(rig, &device)?.measure(rig, ("registered rows by kernels", &device), None, &REACHES)
}

impl Images {
    /// The same images, registered.
    fn registered(&self, rig: &Rig, device: &Device) -> Outcome<Self> {
        let registered = rig.runtime.block_on(device.register(self.array.clone()))?;
        if registered.is_direct() {
            Ok(Self::of(rig, registered.into()))
        } else {
            Err("the array is not registered".into())
        }
    }

    /// Sends all, shuffled, on an idle GPU and beside compute.
    pub(crate) fn measure_idle_and_beside(&self, rig: &Rig, (name, device): (&str, &Device)) -> Outcome<()> {
        self.measure(rig, (name, device), None, &REACHES)?;
        let Some(context) = &rig.context else {
            rig.left_out(&format!("{name} beside compute"), "it is a GPU's");
            return Ok(());
        };
        let compute = Compute::new(context)?;
        self.measure(rig, (&format!("{name} beside compute"), device), Some(&compute), &REACHES)
    }
}
