//! The PTX beside each `.cu` was made of it, for the oldest driver and GPU that the crate works on, and has the kernels
//! that Rust code asks for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Kernels, and the folder of the Rust code that launches them.
const KERNELS: [(&str, &str); 6] = [
    ("benches/kernels/link", "benches/link"),
    ("examples/digits/perceptron", "examples/digits"),
    ("examples/work/rows", "examples/work"),
    ("src/backend/cuda/kernels/fetch", "src/backend/cuda/kernels"),
    ("src/backend/cuda/kernels/rearrange", "src/backend/cuda/kernels"),
    ("tests/kernels/basic", "tests/cuda"),
];

/// How Rust code asks for one.
const ASKS: [&str; 4] = ["load_function(\"", "kernel(\"", " c\"", "[c\""];

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands behind each `mark`, up to the first character that is in no name.
fn names_behind<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = String> + 'a {
    let is_of_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    text.split(mark).skip(1).map(move |rest| rest.chars().take_while(is_of_name).collect())
}

#[test]
fn each_ptx_was_made_of_its_source() {
    for (kernels, _) in KERNELS {
        let source = fs::read(file(&format!("{kernels}.cu"))).unwrap();
        let digest: String = Sha256::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
        let ptx = text(&format!("{kernels}.ptx"));
        let said = ptx.lines().next().and_then(|line| line.rsplit(' ').next());
        assert_eq!(said, Some(digest.as_str()), "{kernels}.ptx is of another source: run .ci/ptx");
    }
}

#[test]
fn each_ptx_is_for_cuda_12_0_and_sm_75() {
    for (kernels, _) in KERNELS {
        let ptx = text(&format!("{kernels}.ptx"));
        let directive = |name: &str| ptx.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
        assert_eq!(directive(".version"), Some("8.0"), "{kernels}");
        assert_eq!(directive(".target"), Some("sm_75"), "{kernels}");
        assert_eq!(directive(".address_size"), Some("64"), "{kernels}");
    }
}

#[test]
fn each_kernel_that_is_asked_for_exists() {
    for folder in KERNELS.map(|(_, folder)| folder) {
        let of_folder = KERNELS.iter().filter(|(_, launched)| *launched == folder);
        let ptx: String = of_folder.map(|(kernels, _)| text(&format!("{kernels}.ptx"))).collect();
        let entries: BTreeSet<_> = names_behind(&ptx, ".visible .entry ").collect();
        let mut asked = BTreeSet::new();
        for found in fs::read_dir(file(folder)).unwrap() {
            let path = found.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let code = fs::read_to_string(path).unwrap();
                ASKS.iter().for_each(|mark| asked.extend(names_behind(&code, mark)));
            }
        }
        assert!(!asked.is_empty(), "nothing in {folder} asks for a kernel");
        assert!(asked.is_subset(&entries), "{folder} has {entries:?}, asked for are {asked:?}");
    }
}
