//! Mapped files: what is in them arrives, registered or not, and what can't be mapped or is not in them is refused.
#![expect(unsafe_code, reason = "maps files")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use inflight::{Dtype, Error, HostArray, MappedFile};
use ndarray::{Array2, Array3, ArrayView3, Axis, s};
use ndarray_npy::{ViewNpyExt, WriteNpyExt};

use crate::bed::{eventually, on_each, on_host};

/// A folder of its own for a test, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("inflight-mapped-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder
    }

    /// A file with those bytes.
    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("file");
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn open(path: &Path) -> Result<MappedFile, Error> {
    // SAFETY: the file is a test's own, which does not change it while it is mapped.
    unsafe { MappedFile::open(path) }
}

#[test]
fn a_mapped_npy_arrives_registered_or_not_with_rows_and_crops_b91() {
    let volume = Array3::from_shape_fn((20, 33, 41), |(z, y, x)| (z * 10_000 + y * 100 + x) as f32 / 3.0);
    let folder = Folder::new();
    let mut npy = Vec::new();
    volume.write_npy(&mut npy).unwrap();
    let file = open(&folder.file(&npy)).unwrap();
    let seen = ArrayView3::<f32>::view_npy(&file).unwrap();
    let offset = seen.as_ptr().addr() - file.as_ptr().addr();
    let array = file.array(Dtype::F32, seen.raw_dim(), offset).unwrap();
    assert_eq!(array.as_ptr(), seen.as_ptr().cast(), "nothing is copied");
    let rows = [19, 0, 7, 7];
    for registered in [false, true] {
        on_each(
            |builder| builder,
            |bed| {
                let (array, volume) = (array.clone(), volume.clone());
                async move {
                    let array = match registered {
                        true => {
                            let registered = bed.device.register(array).await.unwrap();
                            assert!(registered.is_direct());
                            HostArray::from(registered)
                        }
                        false => array,
                    };
                    let crops = array.crops([[3, 4, 5], [0, 30, 9]], [4, 3, 2]).unwrap();
                    let fields = inflight::HostBatch::new().with("all", array.clone());
                    let fields = fields.with("rows", array.select_rows(rows).unwrap()).with("crops", crops);
                    let batch = bed.device.transfer(fields).await.unwrap().await.unwrap();
                    assert_eq!(on_host::<f32>(&batch, "all").await, volume.clone().into_dyn());
                    assert_eq!(on_host::<f32>(&batch, "rows").await, volume.select(Axis(0), &rows).into_dyn());
                    let crops = [volume.slice(s![3..7, 4..7, 5..7]), volume.slice(s![..4, 30..33, 9..11])];
                    assert_eq!(
                        on_host::<f32>(&batch, "crops").await,
                        ndarray::stack(Axis(0), &crops).unwrap().into_dyn()
                    );
                }
            },
        );
    }
}

#[test]
fn arrays_begin_anywhere_and_outlive_their_file() {
    let folder = Folder::new();
    let file: Vec<u8> = (0..5000).map(|n| (n * 7 % 251) as u8).collect();
    let path = folder.file(&file);
    let arrays: Vec<_> = {
        let mapped = open(&path).unwrap();
        assert_eq!((mapped.len(), &mapped[..], mapped.as_ref()), (5000, &file[..], &file[..]));
        (0..9).map(|offset| mapped.clone().array(Dtype::I64, (20, 31), 31 + offset).unwrap()).collect()
    };
    std::fs::remove_file(&path).unwrap();
    for (array, offset) in arrays.into_iter().zip(31..) {
        let number = |(i, j)| i64::from_ne_bytes(*file[offset + 8 * (31 * i + j)..].first_chunk().unwrap());
        let expected = Array2::from_shape_fn((20, 31), number);
        assert_eq!(array.to_array::<i64>().unwrap(), expected.clone().into_dyn());
        let turned = array.permuted_axes([1, 0]).unwrap().slice(s![..;-2, ..]).unwrap();
        on_each(
            |builder| builder,
            |bed| {
                let (sent, expected) = (turned.clone(), expected.t().slice(s![..;-2, ..]).to_owned());
                async move {
                    let batch = bed.device.transfer(("x", sent)).await.unwrap().await.unwrap();
                    assert_eq!(on_host::<i64>(&batch, "x").await, expected.into_dyn());
                }
            },
        );
    }
}

#[test]
fn what_is_not_in_the_file_is_refused_and_what_is_empty_passes() {
    let folder = Folder::new();
    let file = open(&folder.file(&[0, 1, 1, 2, 5, 6, 7, 8, 9, 10])).unwrap();
    let said = |dtype, shape: &[usize], offset| file.array(dtype, shape.to_vec(), offset).unwrap_err().to_string();
    assert_eq!(said(Dtype::U16, &[2, 2], 3), "the shape asks for 8 bytes, the data has 7");
    assert_eq!(said(Dtype::U8, &[1], 10), "the shape asks for 1 bytes, the data has 0");
    assert_eq!(said(Dtype::U8, &[0], 11), "index 11 is out of range for axis 0 of length 10");
    assert_eq!(
        said(Dtype::U8, &[1], usize::MAX),
        format!("index {} is out of range for axis 0 of length 10", usize::MAX)
    );
    assert!(matches!(file.array(Dtype::F64, (usize::MAX / 4, 2), 0), Err(Error::ShapeOverflow { .. })));
    assert_eq!(said(Dtype::Bool, &[3], 1), "element 2 is byte 2, a bool is 0 or 1");
    assert_eq!(
        file.array(Dtype::Bool, 3, 0).unwrap().to_array::<bool>().unwrap().as_slice(),
        Some(&[false, true, true][..])
    );
    assert_eq!(file.array(Dtype::F32, (0, 3), 10).unwrap().shape(), [0, 3]);
    let one = file.array(Dtype::U32, (), 6).unwrap().to_array::<u32>().unwrap();
    assert_eq!(one.as_slice(), Some(&[u32::from_ne_bytes([7, 8, 9, 10])][..]));
}

#[test]
fn a_file_without_bytes_is_an_array_without_elements() {
    let folder = Folder::new();
    let file = open(&folder.file(&[])).unwrap();
    assert!(file.is_empty());
    on_each(
        |builder| builder,
        |bed| {
            let array = file.array(Dtype::F32, (0, 4), 0).unwrap();
            async move {
                let registered = bed.device.register(array).await.unwrap();
                let batch = bed.device.transfer(("x", registered)).await.unwrap().await.unwrap();
                assert_eq!(batch.field("x").unwrap().shape(), [0, 4]);
            }
        },
    );
    assert!(matches!(file.array(Dtype::U8, 1, 0), Err(Error::LengthMismatch { expected: 1, found: 0 })));
}

#[test]
fn what_is_no_file_is_named() {
    let folder = Folder::new();
    let missing = folder.0.join("missing");
    let error = open(&missing).unwrap_err();
    assert!(error.to_string().starts_with(&format!("the file {} can't be used: ", missing.display())), "{error}");
    let said = |error: Error| match error {
        Error::File { path, error } => (path, error.kind()),
        other => panic!("{other}"),
    };
    assert_eq!(said(error), (missing, std::io::ErrorKind::NotFound));
    let directory = open(&folder.0).unwrap_err();
    let text = format!("the file {} can't be used: it is not a regular file", folder.0.display());
    assert_eq!(directory.to_string(), text);
    assert!(std::error::Error::source(&directory).is_some());
    // A device file would never end.
    #[cfg(unix)]
    assert_eq!(said(open(Path::new("/dev/zero")).unwrap_err()).1, std::io::ErrorKind::InvalidInput);
}

#[test]
#[ignore = "the child of another test"]
fn child_that_shortens_its_file() {
    let Some(path) = std::env::var_os("INFLIGHT_SHORTENED_FILE") else { return };
    let device = inflight::Device::host().unwrap();
    let array = open(Path::new(&path)).unwrap().array(Dtype::U8, 1 << 20, 0).unwrap();
    // Against the contract: that is what is shown.
    std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    println!("it is shortened");
    let batch = futures::executor::block_on(async { device.transfer(("x", array)).await?.await });
    println!("it goes on with {batch:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_is_shortened_ends_the_process_as_documented_b91() {
    let folder = Folder::new();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mapped::child_that_shortens_its_file", "--ignored", "--nocapture"])
        .env("INFLIGHT_SHORTENED_FILE", folder.file(&vec![1; 1 << 20]))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(!output.status.success() && said.contains("it is shortened"), "{}: {said}", output.status);
    assert!(!said.contains("it goes on") && !said.contains("panicked"), "{said}");
}

#[test]
fn a_file_stays_mapped_until_the_last_that_reads_it_is_gone() {
    let folder = Folder::new();
    let path = folder.file(&[3; 10_000]);
    let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(path.to_str().unwrap());
    if !std::fs::exists("/proc/self/maps").unwrap() {
        return;
    }
    let sim = crate::bed::by_hand(1 << 20);
    let registered = {
        use futures::FutureExt;
        let array = open(&path).unwrap().array(Dtype::U8, 10_000, 0).unwrap();
        sim.device().register(array).now_or_never().unwrap().unwrap()
    };
    let transfer = sim.device().try_transfer(("x", registered)).unwrap();
    drop(transfer);
    assert!(is_mapped(), "the copy is pending");
    while sim.complete_next() {}
    eventually("it is unmapped", || !is_mapped());
}
