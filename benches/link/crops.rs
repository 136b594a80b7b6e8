//! Random cubes out of a volume of f32: of a registered one, on an idle GPU and beside compute, and of a pageable one.

use inflight::{Device, HostArray, Registered};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::check::check;
use super::compute::Compute;
use super::cubes::Cubes;
use super::job::{Bare, Job};
use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig};

/// Crops of a batch, their edge, and how much of the link a registered volume comes to at least.
const SIZES: [(usize, usize, f64); 3] = [(16, 64, 0.71), (128, 32, 0.34), (2, 128, 0.88)];
/// Batches before they come again.
const BATCHES: usize = 32;

/// Where the crops of each batch begin.
pub(crate) struct Crops {
    pub(crate) batches: Vec<Vec<[usize; 3]>>,
    /// Crops of a batch.
    pub(crate) count: usize,
    /// Edge of a crop.
    pub(crate) edge: usize,
    /// Edge of the volume.
    pub(crate) line: usize,
}

impl Crops {
    fn new(count: usize, edge: usize, line: usize) -> Self {
        let mut random = StdRng::seed_from_u64(1);
        let mut corner = || [(); 3].map(|()| random.random_range(0..=line - edge));
        let batches = (0..BATCHES).map(|_| (0..count).map(|_| corner()).collect()).collect();
        Self { batches, count, edge, line }
    }

    pub(crate) fn batch(&self, number: usize) -> &[[usize; 3]] {
        &self.batches[number % self.batches.len()]
    }

    /// Bytes of a batch.
    pub(crate) const fn bytes(&self) -> usize {
        self.count * self.edge * self.edge * self.edge * 4
    }

    /// Shape of a batch.
    pub(crate) const fn shape(&self) -> [usize; 4] {
        [self.count, self.edge, self.edge, self.edge]
    }

    /// What an element of a batch is.
    pub(crate) fn expected(&self, number: usize, at: &[usize]) -> f32 {
        let [z, y, x] = self.batch(number)[at[0]];
        f32::at(((z + at[1]) * self.line + y + at[2]) * self.line + x + at[3])
    }

    fn measure(&self, rig: &Rig, volume: &HostArray, job: &Job<'_>) -> Outcome<()> {
        let batch = |number: usize| volume.crops(self.batch(number), [self.edge; 3]);
        let last = job.count - 1;
        job.run(rig, &batch, |batch| check(rig, batch, &self.shape(), |at| self.expected(last, at)))
    }

    /// From a registered volume, beside the bare loops.
    fn measure_registered(
        &self,
        rig: &Rig,
        (name, device, volume): (&str, &Device, &Registered),
        (compute, least): (Option<&Compute>, f64),
    ) -> Outcome<()> {
        let count = rig.size(128, 4);
        let reaches = [Reach::OfLimit(0.98), Reach::OfLink(least)];
        let job = |name: String| Job { reaches: &reaches, ..Job::new(name, device, count, self.bytes()) };
        let Some(context) = &rig.context else {
            self.measure(rig, volume, &job(name.to_owned()))?;
            rig.left_out(&format!("{name} beside compute, and the bare loops"), "they are a GPU's");
            return Ok(());
        };
        let cubes = Cubes::new(context, self, volume)?;
        let (copies, batches) = (|| cubes.copies(count), || cubes.batches(count));
        let (few, more) = (|| cubes.gather(count, 32), || cubes.gather(count, 64));
        cubes.check(|| cubes.copies(1))?;
        cubes.check(|| cubes.gather(1, 32))?;
        let gather = |blocks: u32| format!("gather kernel of {blocks} blocks");
        let mut bare: Vec<Bare<'_>> = vec![("3-D copies".to_owned(), &copies), (gather(32), &few), (gather(64), &more)];
        match cubes.check(|| cubes.batches(1)) {
            Ok(()) => bare.push(("3-D copies in one call".to_owned(), &batches)),
            Err(error) => rig.left_out(&format!("{name}, 3-D copies in one call"), &error.to_string()),
        }
        self.measure(rig, volume, &Job { bare: &bare, ..job(name.to_owned()) })?;
        let beside = format!("{name} beside compute");
        self.measure(rig, volume, &Job { bare: &bare, beside: compute, ..job(beside) })
    }
}

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let line = rig.size(512, 160);
    let volume = rig.singles().array(0, &[line; 3])?;
    rig.title(&format!("random crops of a registered {line}³ volume of f32, against the link and the best bare loop"));
    let device = rig.device_with(1 << 30)?;
    let registered = rig.runtime.block_on(device.register(volume.clone()))?;
    if !registered.is_direct() {
        return Err("the volume is not registered".into());
    }
    let compute = rig.context.as_ref().map(Compute::new).transpose()?;
    for (count, edge, least) in SIZES {
        let (crops, name) = (Crops::new(count, edge, line), format!("crops {count}x{edge}"));
        crops.measure_registered(rig, (&name, &device, &registered), (compute.as_ref(), least))?;
    }
    rig.title("the same crops of a pageable volume");
    for (count, edge, _) in SIZES {
        let crops = Crops::new(count, edge, line);
        let job = Job::new(format!("crops {count}x{edge} pageable"), &device, rig.size(128, 4), crops.bytes());
        crops.measure(rig, &volume, &Job { reaches: &[Reach::OfLink(0.60)], ..job })?;
    }
    Ok(())
}
