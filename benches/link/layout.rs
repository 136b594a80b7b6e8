//! Images whose channels lie together, sent as planes: as they are, and normalized, by source bytes.

use super::check::check;
use super::job::Job;
use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig};

const REACHES: [Reach; 1] = [Reach::OfLink(0.85)];
const PLANES: [usize; 4] = [0, 3, 1, 2];
/// Of 0 to 1, as ImageNet's are given.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];
const SCALE: f32 = 1.0 / 255.0;

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let shape @ [images, height, width, channels] = rig.size([256, 224, 224, 3], [32, 224, 224, 3]);
    rig.title(&format!("{shape:?} images from pageable memory, channels first on the device, by source bytes"));
    let (elements, planes) = (images * height * width * channels, [images, channels, height, width]);
    let place = |at: &[usize]| ((at[0] * height + at[2]) * width + at[3]) * channels + at[1];
    let device = rig.device_with(16 << 30)?;

    let arrays = (0..rig.singles().len() / elements)
        .map(|number| Ok(rig.singles().array(number * elements, &shape)?.permuted_axes(PLANES)?))
        .collect::<Outcome<Vec<_>>>()?;
    let count = rig.fewer(24);
    let job = Job { reaches: &REACHES, ..Job::new("layout f32", &device, count, elements * 4) };
    job.run(rig, &|number| Ok(arrays[number % arrays.len()].clone()), |last| {
        let before = (count - 1) % arrays.len() * elements;
        check(rig, last, &planes, |at| f32::at(before + place(at)))
    })?;

    let count = rig.bytes().len() / elements;
    let images = |number: usize| rig.bytes().array(number * elements, &shape);
    let arrays = (0..count)
        .map(|number| Ok(images(number)?.normalized::<f32>(SCALE, MEAN, STD)?.permuted_axes(PLANES)?))
        .collect::<Outcome<Vec<_>>>()?;
    let job = Job { reaches: &REACHES, ..Job::new("layout u8 normalized", &device, count, elements) };
    job.run(rig, &|number| Ok(arrays[number].clone()), |last| {
        let value = |at: &[usize]| f32::from(u8::at((count - 1) * elements + place(at)));
        check(rig, last, &planes, |at| (value(at) * SCALE - MEAN[at[1]]) / STD[at[1]])
    })
}
