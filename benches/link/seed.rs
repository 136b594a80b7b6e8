//! The benchmark that this crate began with: a volume of f64, there and back, compared byte for byte.

use inflight::{ComputeStream, Device, HostArray, Overlap};

use super::raw::{Raw, memcpy};
use super::rig::{Outcome, Rig, Row, median, sha256, timed};

const ITERATIONS: usize = 10;

/// The volume's edge lengths: 2.15 GB on a GPU, 16.8 MB elsewhere.
const fn shape(is_gpu: bool) -> [usize; 4] {
    if is_gpu { [128; 4] } else { [16, 16, 64, 128] }
}

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let shape = shape(rig.context.is_some() && rig.fewer(100) == 100);
    let elements: usize = shape.iter().product();
    let bytes = elements * size_of::<f64>();
    rig.title(&format!("{shape:?} of f64, {bytes} bytes, {ITERATIONS} times there and back, medians"));
    let (there, back) = match &rig.context {
        Some(context) => Raw::new(context, bytes, 1)?.there_and_back()?,
        None => (memcpy(bytes, 1)?, memcpy(bytes, 1)?),
    };
    for streams in [2, 1] {
        let single = if streams == 1 { Some(rig.compute_stream_of_its_own()?) } else { None };
        let room = 3 * bytes + (64 << 20);
        let mut builder = rig.builder().memory_bytes(room).pinned_bytes(room).readback_bytes(room);
        if let Some(stream) = &single {
            builder = builder.overlap(Overlap::Off(stream));
        }
        let device = builder.build()?;
        for kind in ["page-locked", "pageable"] {
            let values = (0..elements).map(|place| place as f64 * 0.5);
            let array: HostArray = if kind == "pageable" {
                ndarray::Array4::from_shape_vec(shape, values.collect())?.into_shared().into()
            } else {
                let mut pinned = rig.runtime.block_on(device.pinned::<f64, _>(shape))?;
                pinned.iter_mut().zip(values).for_each(|(to, from)| *to = from);
                pinned.share()
            };
            measure(rig, &device, &array, &format!("seed, {streams} streams, {kind}"), (there, back))?;
        }
    }
    Ok(())
}

fn measure(rig: &Rig, device: &Device, array: &HostArray, job: &str, limits: (f64, f64)) -> Outcome<()> {
    let sent = array.to_array::<f64>()?;
    let (mut there, mut back, mut arrived) = (Vec::new(), Vec::new(), String::new());
    for iteration in 0..ITERATIONS {
        let (seconds, batch) =
            timed(|| Ok(rig.runtime.block_on(async { device.transfer(("x", array.clone())).await?.await })?))?;
        there.push(seconds);
        let (seconds, shown) = timed(|| Ok(rig.runtime.block_on(batch.field("x")?.read_back::<f64>()?)?))?;
        back.push(seconds);
        if shown.as_slice().map(bytes_of) != sent.as_slice().map(bytes_of) {
            return Err("what came back is not what was sent".into());
        }
        if iteration == 0 {
            arrived = sha256(bytes_of(shown.as_slice().ok_or("not contiguous")?));
        }
    }
    for (way, seconds, limit_seconds) in [("to the device", there, limits.0), ("back", back, limits.1)] {
        rig.row(&Row {
            job: format!("{job}, {way}"),
            bytes: array.bytes(),
            seconds: median(seconds),
            limit_seconds,
            sha256: &arrived,
            ..Row::default()
        });
    }
    Ok(())
}

#[expect(unsafe_code, reason = "compares bytes and not values")]
fn bytes_of(values: &[f64]) -> &[u8] {
    // SAFETY: any f64 is eight bytes, and there are so many of them.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

impl Rig {
    /// A compute stream that copies can share.
    fn compute_stream_of_its_own(&self) -> Outcome<ComputeStream> {
        Ok(match &self.context {
            Some(context) => ComputeStream::Cuda(context.new_stream()?),
            None => ComputeStream::Host(inflight::HostStream::new()?),
        })
    }
}
