//! How close to the link this crate comes: each job beside its limit in the same run, the raw driver's loop on a GPU,
//! `memcpy` on the host. `--help` tells the options.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program tells what it measures")]

#[path = "link/both.rs"]
mod both;
#[path = "link/early.rs"]
mod early;
#[path = "link/lateness.rs"]
mod lateness;
#[path = "link/pinned.rs"]
mod pinned;
#[path = "link/raw.rs"]
mod raw;
#[path = "link/rig.rs"]
mod rig;
#[path = "link/seed.rs"]
mod seed;

use std::process::ExitCode;

use rig::{Outcome, Rig};

const HELP: &str = "Measures transfers against their limit in the same run.

  --device auto|host|cuda:N  where to send [auto]
  --job NAME                 pinned, lateness, seed, both or early; may be given again [all]
  --json                     a line of JSON for each row, and no table
  --help                     prints this";

type Job = fn(&mut Rig) -> Outcome<()>;

/// The jobs, in the order in which they run.
const JOBS: [(&str, Job); 5] = [
    ("pinned", pinned::run),
    ("lateness", lateness::run),
    ("both", both::run),
    ("early", early::run),
    ("seed", seed::run),
];

fn main() -> ExitCode {
    let (mut device, mut jobs, mut json) = ("auto".to_owned(), Vec::new(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), JOBS.map(|(name, _)| name)) {
            // What cargo adds.
            ("--bench", _) => {}
            ("--json", _) => json = true,
            ("--device", _) => device = arguments.next().unwrap_or_default(),
            ("--job", names) => match arguments.next() {
                Some(job) if names.contains(&job.as_str()) => jobs.push(job),
                other => return refuse(&format!("--job is one of {names:?}, not {other:?}")),
            },
            ("--help", _) => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            (other, _) => return refuse(&format!("there is no option \"{other}\"")),
        }
    }
    let mut rig = match Rig::new(&device, json) {
        Ok(rig) => rig,
        Err(error) => return refuse(&format!("--device {device}: {error}")),
    };
    for (name, run) in JOBS {
        if !jobs.is_empty() && !jobs.iter().any(|job| job == name) {
            continue;
        }
        if let Err(error) = run(&mut rig) {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("{message}\n\n{HELP}");
    ExitCode::from(2)
}
