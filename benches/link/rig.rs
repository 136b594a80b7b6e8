//! What the jobs stand on: a device, the raw loop beside it, and the rows that they print.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use inflight::cudarc::driver::CudaContext;
use inflight::{ComputeStream, Device, DeviceBuilder, DeviceKind, HostArray};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

/// What a job answers.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Where the jobs run.
pub(crate) struct Rig {
    pub(crate) device: Device,
    /// The GPU's context; `None` on the host.
    pub(crate) context: Option<Arc<CudaContext>>,
    pub(crate) runtime: Runtime,
    /// The device's memory or link is a model.
    modelled: bool,
    json: bool,
}

/// One measurement, and its limit in the same run.
pub(crate) struct Row<'a> {
    pub(crate) job: String,
    pub(crate) bytes: usize,
    pub(crate) seconds: f64,
    pub(crate) limit_seconds: f64,
    pub(crate) sha256: &'a str,
    /// What else is worth a word.
    pub(crate) note: String,
}

impl Rig {
    pub(crate) fn new(asked: &str, json: bool) -> Outcome<Self> {
        let first = match asked {
            "auto" => Device::auto()?,
            "host" => Device::host()?,
            other => match other.strip_prefix("cuda:").map(str::parse) {
                Some(Ok(ordinal)) => Device::cuda(ordinal)?,
                _ => return Err("it is auto, host or cuda:N".into()),
            },
        };
        let hardware = first.stats().hardware;
        let context = match &hardware {
            Some(hardware) => Some(CudaContext::new(hardware.ordinal)?),
            None => None,
        };
        let modelled = hardware.as_ref().is_some_and(|hardware| hardware.model.to_lowercase().contains("stand-in"));
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let mut rig = Self { device: first, context, runtime, modelled, json };
        rig.device = rig.builder().memory_bytes(1 << 30).build()?;
        if !json {
            let hardware = hardware.map(|hardware| format!("{hardware:?}")).unwrap_or_default();
            let what = match (modelled, rig.is_host()) {
                (true, _) => ", MODELLED, with fewer bytes than on a GPU",
                (_, true) => ", with fewer bytes than on a GPU, against memcpy",
                _ => "",
            };
            println!("on {}{what} {hardware}", rig.device.name());
        }
        Ok(rig)
    }

    /// Settings for a further device of the same kind.
    pub(crate) fn builder(&self) -> DeviceBuilder<'static> {
        match &self.context {
            Some(context) => Device::builder().context(context),
            None => Device::builder().host(),
        }
    }

    pub(crate) fn is_host(&self) -> bool {
        self.device.kind() == DeviceKind::Host
    }

    /// A share of what a GPU does, where memory is copied by a processor or a model.
    pub(crate) fn fewer(&self, count: usize) -> usize {
        if self.is_host() || self.modelled { (count / 20).max(10) } else { count }
    }

    pub(crate) fn compute_stream(&self) -> Outcome<ComputeStream> {
        Ok(self.device.compute_stream()?)
    }

    /// Page-locked arrays whose bytes tell which one they are.
    pub(crate) fn pinned_arrays(&self, device: &Device, count: usize, bytes: usize) -> Outcome<Vec<HostArray>> {
        let array = |number: usize| {
            let mut array = self.runtime.block_on(device.pinned::<u8, _>(bytes))?;
            let pattern = (0..bytes).map(|place| (number * 31 + place * 7 + place / 251) as u8);
            array.iter_mut().zip(pattern).for_each(|(to, from)| *to = from);
            Ok(array.share())
        };
        (0..count).map(array).collect()
    }

    /// A title, above the rows of a table.
    pub(crate) fn title(&self, text: &str) {
        if !self.json {
            println!("\n{text}");
        }
    }

    pub(crate) fn row(&self, row: &Row<'_>) {
        let Row { job, bytes, seconds, limit_seconds, sha256, note } = row;
        if self.json {
            println!(
                "{{\"job\": \"{job}\", \"bytes\": {bytes}, \"seconds\": {seconds:e}, \"limit_seconds\": \
                 {limit_seconds:e}, \"device\": \"{}\", \"modelled\": {}, \"sha256\": \"{sha256}\"}}",
                self.device.name(),
                self.modelled
            );
            return;
        }
        let rate = |seconds: f64| *bytes as f64 / seconds / 1e9;
        println!(
            "{job:44} {:9.3} GB/s, limit {:9.3}: {:.3} of it  {note}",
            rate(*seconds),
            rate(*limit_seconds),
            limit_seconds / seconds
        );
    }
}

/// How long it takes, in seconds.
pub(crate) fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
    let begun = Instant::now();
    let result = work()?;
    Ok((begun.elapsed().as_secs_f64(), result))
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Processor time of the whole process so far, in seconds.
#[expect(unsafe_code, reason = "asks the system")]
pub(crate) fn processor_time() -> f64 {
    // SAFETY: all bits zero are a value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is written.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
