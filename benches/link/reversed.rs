//! Views that run backwards through pageable memory: along each axis, and along the first alone.

use ndarray::s;

use super::check::check;
use super::copiers::bare_copies;
use super::job::{Bare, Job};
use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig};

/// Batches of a run.
const COUNT: usize = 4;

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let shape @ [depth, height, width] = rig.size([64, 1024, 1024], [16, 256, 256]);
    let array = rig.doubles().array(0, &shape)?;
    rig.title(&format!("{shape:?} of f64 from pageable memory, reversed"));
    let device = rig.device_with(16 << 30)?;
    let (copiers, bytes) = (rig.copiers()?, array.bytes() * COUNT);
    let copies = || bare_copies(copiers.as_ref(), &rig.doubles().elements()[..array.len()], bytes);
    let bare: Vec<Bare<'_>> = copiers.iter().map(|copiers| (copiers.name(), &copies as _)).collect();
    let reaches = &[Reach::OfLink(0.85)];
    let job = |name| Job { reaches, bare: &bare, ..Job::new(name, &device, COUNT, array.bytes()) };
    let value = |z: usize, y: usize, x: usize| f64::at((z * height + y) * width + x);

    let reversed = array.slice(s![..;-1, ..;-1, ..;-1])?;
    job("reversed").run(rig, &|_| Ok(reversed.clone()), |last| {
        check(rig, last, &shape, |at| value(depth - 1 - at[0], height - 1 - at[1], width - 1 - at[2]))
    })?;
    let reversed = array.slice(s![..;-1, .., ..])?;
    job("reversed first axis").run(rig, &|_| Ok(reversed.clone()), |last| {
        check(rig, last, &shape, |at| value(depth - 1 - at[0], at[1], at[2]))
    })
}
