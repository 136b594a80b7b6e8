//! The shuffled images from a mapped `.npy` that is in the page cache, registered.
#![expect(unsafe_code, reason = "maps a file")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use inflight::{Dtype, MappedFile};
use ndarray::{ArrayView, Ix4};
use ndarray_npy::WriteNpyExt;

use super::rig::{Outcome, Rig};
use super::rows::{IMAGE, Images};

/// A file that is removed with it.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let shape = [rig.size(4096, 256), IMAGE[0], IMAGE[1], IMAGE[2]];
    let bytes: usize = shape.iter().product();
    rig.title(&format!("the same from a mapped .npy of {bytes} bytes in the page cache"));
    let file = Temporary(std::env::temp_dir().join(format!("inflight-link-{}.npy", std::process::id())));
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(&file.0)?);
    ArrayView::<u8, Ix4>::from_shape(shape, &rig.bytes().elements()[..bytes])?.write_npy(&mut writer)?;
    writer.flush()?;
    // An array's bytes end its file.
    let offset = usize::try_from(std::fs::metadata(&file.0)?.len())? - bytes;

    // SAFETY: the file is of this process alone, which writes no more to it.
    let mapped = unsafe { MappedFile::open(&file.0) }?;
    let device = rig.device_with(1 << 30)?;
    let registered = rig.runtime.block_on(device.register(mapped.array(Dtype::U8, shape, offset)?))?;
    if !registered.is_direct() {
        return Err("the file is not registered".into());
    }
    Images::of(rig, registered.into()).measure_idle_and_beside(rig, ("mapped rows", &device))
}
