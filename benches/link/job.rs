//! [`Job`]: batches of one array each through a pipeline, beside the link and other limits of the same run.

use futures::{StreamExt, TryStreamExt, stream};
use inflight::{BatchStreamExt, Device, DeviceBatch, HostArray};

use super::compute::{Compute, Load};
use super::reach::Reach;
use super::rig::{Outcome, Rig, Row, median, processor_time, timed};

const RUNS: usize = 5;

/// What else could send the same batches, in words, and how long that takes now, in seconds.
pub(crate) type Bare<'a> = (String, &'a dyn Fn() -> Outcome<f64>);

/// How a row is measured.
pub(crate) struct Job<'a> {
    pub(crate) name: String,
    pub(crate) device: &'a Device,
    pub(crate) depth: usize,
    /// Batches of a run.
    pub(crate) count: usize,
    /// Bytes of a batch in the source.
    pub(crate) bytes: usize,
    pub(crate) reaches: &'a [Reach],
    /// What the link is no limit for; the fastest of them is the limit.
    pub(crate) bare: &'a [Bare<'a>],
    /// Fills the GPU meanwhile.
    pub(crate) beside: Option<&'a Compute>,
}

/// What the runs took, in seconds.
#[derive(Default)]
struct Taken {
    ours: Vec<f64>,
    link: Vec<f64>,
    bare: Vec<Vec<f64>>,
    cores: Vec<f64>,
    slower: Vec<f64>,
}

impl<'a> Job<'a> {
    /// A job at depth 4, held against the link alone.
    pub(crate) fn new(name: impl Into<String>, device: &'a Device, count: usize, bytes: usize) -> Self {
        Self { name: name.into(), device, depth: 4, count, bytes, reaches: &[], bare: &[], beside: None }
    }

    /// Sends `batch(0)`, `batch(1)` and so on, and prints the row. A run before, that does not count, gives `check` its last
    /// batch.
    pub(crate) fn run(
        &self,
        rig: &Rig,
        batch: &impl Fn(usize) -> inflight::Result<HostArray>,
        check: impl FnOnce(&DeviceBatch) -> Outcome<()>,
    ) -> Outcome<()> {
        let last = self.once(rig, batch, &mut Taken::default())?;
        let last = last.ok_or("nothing was sent")?;
        check(&last)?;
        let way = way(&last);
        drop(last);
        let mut taken = Taken { bare: vec![Vec::new(); self.bare.len()], ..Taken::default() };
        for _ in 0..RUNS {
            self.once(rig, batch, &mut taken)?;
        }
        self.print(rig, &way, taken);
        Ok(())
    }

    fn once(
        &self,
        rig: &Rig,
        batch: &impl Fn(usize) -> inflight::Result<HostArray>,
        taken: &mut Taken,
    ) -> Outcome<Option<DeviceBatch>> {
        taken.link.push(rig.link(self.bytes * self.count)?);
        for ((_, bare), taken) in self.bare.iter().zip(&mut taken.bare) {
            let load = self.beside.map(Compute::begin).transpose()?;
            taken.push(bare()?);
            load.map(Load::end).transpose()?;
        }

        let load = self.beside.map(Compute::begin).transpose()?;
        let before = processor_time();
        let (seconds, last) = timed(|| rig.runtime.block_on(self.send(batch)))?;
        let burnt = load.map(Load::end).transpose()?;
        let not_ours = burnt.as_ref().map_or(0.0, |burnt| burnt.processor_time);
        taken.cores.push((processor_time() - before - not_ours) / seconds);
        taken.slower.extend(burnt.map(|burnt| burnt.slower));
        taken.ours.push(seconds);
        Ok(last)
    }

    async fn send(&self, batch: &impl Fn(usize) -> inflight::Result<HostArray>) -> Outcome<Option<DeviceBatch>> {
        let source = stream::iter((0..self.count).map(|number| batch(number).map(|array| ("x", array))));
        let mut batches = source.to_device(self.device).buffered(self.depth);
        let mut last = None;
        while let Some(batch) = batches.try_next().await? {
            last = Some(batch);
        }
        Ok(last)
    }

    fn print(&self, rig: &Rig, way: &str, taken: Taken) {
        let (link, bytes) = (median(taken.link), self.bytes * self.count);
        let mut note = format!("{way}, ");
        let mut limit = if self.bare.is_empty() { link } else { f64::INFINITY };
        for ((name, _), seconds) in self.bare.iter().zip(taken.bare) {
            let seconds = median(seconds);
            note += &format!("{name} {:.2} GB/s, ", bytes as f64 / seconds / 1e9);
            limit = limit.min(seconds);
        }
        if !taken.slower.is_empty() {
            note += &format!("compute {:.1} % slower", (median(taken.slower) - 1.0) * 100.0);
        }
        rig.row(&Row {
            job: self.name.clone(),
            bytes,
            seconds: median(taken.ours),
            limit_seconds: limit,
            batches: self.count,
            link_seconds: Some(link),
            cores: Some(median(taken.cores)),
            reaches: self.reaches,
            note: note.trim_end_matches(", ").to_owned(),
            ..Row::default()
        });
    }
}

/// How the batch came, in words.
fn way(batch: &DeviceBatch) -> String {
    let told = batch.explain();
    let words = told.fields.iter().map(|field| {
        let there = if field.is_rearranged { " and rearranged on the device" } else { "" };
        format!("{:?} in {} pieces{there}", field.route, field.pieces)
    });
    words.collect::<Vec<_>>().join(", ")
}
