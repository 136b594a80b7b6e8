//! How close to the link this crate comes: each job beside its limit in the same run, the raw driver's loop on a GPU,
//! `memcpy` on the host. `--help` tells the options.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program tells what it measures")]

#[path = "link/batched.rs"]
mod batched;
#[path = "link/both.rs"]
mod both;
#[path = "link/cast.rs"]
mod cast;
#[path = "link/check.rs"]
mod check;
#[path = "link/compute.rs"]
mod compute;
#[path = "link/contiguous.rs"]
mod contiguous;
#[path = "link/copiers.rs"]
mod copiers;
#[path = "link/crops.rs"]
mod crops;
#[path = "link/cubes.rs"]
mod cubes;
#[path = "link/early.rs"]
mod early;
#[path = "link/fields.rs"]
mod fields;
#[path = "link/job.rs"]
mod job;
#[path = "link/lateness.rs"]
mod lateness;
#[path = "link/layout.rs"]
mod layout;
#[path = "link/limit.rs"]
mod limit;
#[path = "link/mapped.rs"]
mod mapped;
#[path = "link/pinned.rs"]
mod pinned;
#[path = "link/pool.rs"]
mod pool;
#[path = "link/raw.rs"]
mod raw;
#[path = "link/reach.rs"]
mod reach;
#[path = "link/registered.rs"]
mod registered;
#[path = "link/reversed.rs"]
mod reversed;
#[path = "link/rig.rs"]
mod rig;
#[path = "link/row.rs"]
mod row;
#[path = "link/rows.rs"]
mod rows;
#[path = "link/seed.rs"]
mod seed;
#[path = "link/small.rs"]
mod small;
#[path = "link/steps.rs"]
mod steps;
#[path = "link/transposed.rs"]
mod transposed;

use std::process::ExitCode;

use rig::{Outcome, Rig, Settings};

const HELP: &str = "Measures transfers against their limit in the same run.

  --device auto|host|cuda:N  where to send [auto]
  --job NAME                 one of those below; may be given again [all]
  --threads N                staging threads [the device's default]
  --staging BYTES            bytes of the staging ring [the device's default]
  --json                     a line of JSON for each row, and no table
  --help                     prints this";

type Job = fn(&mut Rig) -> Outcome<()>;

/// The jobs, in the order in which they run.
const JOBS: [(&str, Job); 17] = [
    ("pinned", pinned::run),
    ("lateness", lateness::run),
    ("both", both::run),
    ("early", early::run),
    ("contiguous", contiguous::run),
    ("rows", rows::run),
    ("registered", registered::run),
    ("mapped", mapped::run),
    ("crops", crops::run),
    ("cast", cast::run),
    ("reversed", reversed::run),
    ("transposed", transposed::run),
    ("layout", layout::run),
    ("small", small::run),
    ("fields", fields::run),
    ("steps", steps::run),
    ("seed", seed::run),
];

fn main() -> ExitCode {
    let mut settings = Settings { device: "auto".to_owned(), json: false, staging_threads: None, staging_bytes: None };
    let mut jobs = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), JOBS.map(|(name, _)| name)) {
            // What cargo adds.
            ("--bench", _) => {}
            ("--json", _) => settings.json = true,
            ("--device", _) => settings.device = arguments.next().unwrap_or_default(),
            ("--threads" | "--staging", _) => match arguments.next().and_then(|number| number.parse().ok()) {
                Some(number) if argument == "--threads" => settings.staging_threads = Some(number),
                Some(number) => settings.staging_bytes = Some(number),
                None => return refuse(&format!("{argument} is a number")),
            },
            ("--job", names) => match arguments.next() {
                Some(job) if names.contains(&job.as_str()) => jobs.push(job),
                other => return refuse(&format!("--job is one of {names:?}, not {other:?}")),
            },
            ("--help", _) => {
                println!("{HELP}\n\njobs: {}", JOBS.map(|(name, _)| name).join(", "));
                return ExitCode::SUCCESS;
            }
            (other, _) => return refuse(&format!("there is no option \"{other}\"")),
        }
    }
    let device = settings.device.clone();
    let mut rig = match Rig::new(settings) {
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
