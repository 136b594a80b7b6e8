//! Batches that lie in pageable memory as they will on the device.

use inflight::HostArray;
use ndarray::s;

use super::check::check;
use super::copiers::bare_copies;
use super::job::{Bare, Job};
use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig};
use super::rows::{EPOCHS, IMAGE, Images};

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let images = Images::new(rig)?;
    let (each, distinct) = (images.batch, images.len() / images.batch);
    let count = EPOCHS * distinct;
    rig.title(&format!("contiguous batches of {each} × {IMAGE:?} u8 from pageable memory, {count} a run"));
    let device = rig.device_with(1 << 30)?;
    let (copiers, bytes) = (rig.copiers()?, images.bytes() * count);
    let copies = || bare_copies(copiers.as_ref(), &rig.bytes().elements()[..distinct * images.bytes()], bytes);
    let bare: Vec<Bare<'_>> = copiers.iter().map(|copiers| (copiers.name(), &copies as _)).collect();
    let reaches = &[Reach::OfLink(0.92)];
    let job = Job { reaches, bare: &bare, ..Job::new("contiguous", &device, count, images.bytes()) };
    let batch = |number: usize| -> inflight::Result<HostArray> {
        let first = number % distinct * each;
        images.array.slice(s![first..first + each, .., .., ..])
    };
    let before = (distinct - 1) * images.bytes();
    job.run(rig, &batch, |last| check(rig, last, &images.shape(), |at| u8::at(before + images.place(at))))
}
