//! What the jobs stand on: a device, the link and the arrays beside it. The rows that they print are in `row.rs`.

use std::cell::OnceCell;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use inflight::cudarc::driver::CudaContext;
use inflight::{ComputeStream, Device, DeviceBuilder, DeviceKind, HostArray};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use super::copiers::Copiers;
use super::limit::Link;
use super::pool::Pool;
pub(crate) use super::row::Row;

/// What a job answers.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) device: String,
    pub(crate) json: bool,
    pub(crate) staging_threads: Option<usize>,
    pub(crate) staging_bytes: Option<usize>,
}

/// Where the jobs run.
pub(crate) struct Rig {
    pub(crate) device: Device,
    /// The GPU's context; `None` on the host.
    pub(crate) context: Option<Arc<CudaContext>>,
    pub(crate) runtime: Runtime,
    /// The device's memory or link is a model.
    pub(super) modelled: bool,
    pub(super) json: bool,
    settings: Settings,
    link: OnceCell<Link>,
    bytes: OnceCell<Pool<u8>>,
    singles: OnceCell<Pool<f32>>,
    doubles: OnceCell<Pool<f64>>,
}

impl Rig {
    pub(crate) fn new(settings: Settings) -> Outcome<Self> {
        let json = settings.json;
        let first = match settings.device.as_str() {
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
        let (link, bytes, singles, doubles) = (OnceCell::new(), OnceCell::new(), OnceCell::new(), OnceCell::new());
        let mut rig = Self { device: first, context, runtime, modelled, json, settings, link, bytes, singles, doubles };
        rig.device = rig.device_with(1 << 30)?;
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
        let builder = match &self.context {
            Some(context) => Device::builder().context(context),
            None => Device::builder().host(),
        };
        let builder = match self.settings.staging_threads {
            Some(threads) => builder.staging_threads(threads),
            None => builder,
        };
        match self.settings.staging_bytes {
            Some(bytes) => builder.staging_bytes(bytes),
            None => builder,
        }
    }

    /// A further device of the same kind that may use so many bytes, with read-backs of 1 GiB.
    pub(crate) fn device_with(&self, bytes: usize) -> Outcome<Device> {
        Ok(self.builder().memory_bytes(bytes).readback_bytes((1 << 30) + (1 << 20)).build()?)
    }

    /// The bare loop that staging is held against, where there is a GPU.
    pub(crate) fn copiers(&self) -> Outcome<Option<Copiers>> {
        self.context.as_ref().map(|context| Copiers::new(context, self.settings.staging_threads)).transpose()
    }

    pub(crate) fn is_host(&self) -> bool {
        self.device.kind() == DeviceKind::Host
    }

    /// Whether there is a GPU, and no model of one.
    pub(crate) fn is_gpu(&self) -> bool {
        self.context.is_some() && !self.modelled
    }

    /// A share of what a GPU does, where memory is copied by a processor or a model.
    pub(crate) fn fewer(&self, count: usize) -> usize {
        if self.is_gpu() { count } else { (count / 20).max(10) }
    }

    /// One size for a GPU, another where memory is copied by a processor or a model.
    pub(crate) fn size<T>(&self, on_gpu: T, elsewhere: T) -> T {
        if self.is_gpu() { on_gpu } else { elsewhere }
    }

    pub(crate) fn compute_stream(&self) -> Outcome<ComputeStream> {
        Ok(self.device.compute_stream()?)
    }

    /// How long the link alone takes for so many bytes now, in seconds.
    pub(crate) fn link(&self, bytes: usize) -> Outcome<f64> {
        let link = match self.link.get() {
            Some(link) => link,
            None => {
                let link = Link::new(self)?;
                self.link.get_or_init(|| link)
            }
        };
        link.seconds(bytes)
    }

    /// Pageable bytes, 2.47 GB on a GPU: 16 384 images of 3 × 224 × 224.
    pub(crate) fn bytes(&self) -> &Pool<u8> {
        self.bytes.get_or_init(|| Pool::new(self.size(16_384, 512) * 3 * 224 * 224))
    }

    /// 512 MiB on a GPU: a volume of 512³.
    pub(crate) fn singles(&self) -> &Pool<f32> {
        self.singles.get_or_init(|| Pool::new(self.size(1 << 27, 1 << 23)))
    }

    /// 1 GiB on a GPU.
    pub(crate) fn doubles(&self) -> &Pool<f64> {
        self.doubles.get_or_init(|| Pool::new(self.size(1 << 27, 1 << 21)))
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

    /// Says that a job was left out.
    pub(crate) fn left_out(&self, job: &str, why: &str) {
        eprintln!("!!! NOT MEASURED: {job}: {why}");
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
pub(crate) fn processor_time() -> f64 {
    used_by(libc::RUSAGE_SELF)
}

/// Processor time of this thread so far, in seconds, where the system tells.
pub(crate) fn processor_time_of_thread() -> f64 {
    #[cfg(target_os = "linux")]
    return used_by(libc::RUSAGE_THREAD);
    #[cfg(not(target_os = "linux"))]
    0.0
}

#[expect(unsafe_code, reason = "asks the system")]
fn used_by(who: libc::c_int) -> f64 {
    // SAFETY: all bits zero are a value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is written.
    unsafe { libc::getrusage(who, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
