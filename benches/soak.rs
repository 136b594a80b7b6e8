//! Two devices under load for some minutes: every batch compared, one in twenty cancelled, errors raised; in the end
//! nothing is lost, and memory and threads are what they were. `--help` tells the options.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program tells what it finds")]

#[path = "soak/bank.rs"]
mod bank;
#[path = "soak/cell.rs"]
mod cell;
#[path = "soak/epoch.rs"]
mod epoch;
#[path = "soak/field.rs"]
mod field;
#[path = "soak/options.rs"]
mod options;
#[path = "soak/parcel.rs"]
mod parcel;
#[path = "soak/process.rs"]
mod process;
#[path = "soak/rounds.rs"]
mod rounds;
#[path = "soak/site.rs"]
mod site;
#[path = "soak/tally.rs"]
mod tally;
#[path = "soak/verdict.rs"]
mod verdict;
#[path = "soak/watch.rs"]
mod watch;
#[path = "soak/work.rs"]
mod work;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bank::Bank;
use options::{HELP, Options};
use process::Held;
use site::Site;
use tally::Tally;
use verdict::Measured;
use watch::Watch;
use work::Wrong;

fn main() -> ExitCode {
    let options = match Options::from_arguments() {
        Ok(options) if options.help => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let tally = Arc::<Tally>::default();
    match soak(&options, &tally) {
        Ok(measured) => {
            let wrong = measured.wrong(&tally);
            wrong.iter().for_each(|text| eprintln!("soak: {text}"));
            println!("{}: {}", measured.summary(&tally), if wrong.is_empty() { "OK" } else { "FAILED" });
            if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("soak: FAILED with seed {}: {error}", options.seed);
            ExitCode::FAILURE
        }
    }
}

fn soak(options: &Options, tally: &Arc<Tally>) -> Result<Measured, Wrong> {
    process::be_plain();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build()?;
    let bank = Bank::new(options.seed);
    let before = runtime.block_on(at_rest());
    let mut sites = Vec::new();
    for (place, which) in options.devices.into_iter().enumerate() {
        let device = Site::device(which, place > 0).map_err(|error| format!("--device {which:?}: {error}"))?;
        sites.push(Site { device, bank: bank.clone(), tally: tally.clone(), plant: options.plant });
    }
    let sites: [Site; 2] = sites.try_into().map_err(|_| "two devices are needed")?;
    let devices = sites.each_ref().map(|site| site.device.name().to_owned()).join("+");
    println!("soak: {:?} on {devices}, seed {}", options.time, options.seed);
    let (watch, begun) = (Watch::new(sites.clone())?, Instant::now());
    let quiet = runtime.block_on(rounds::run(&sites, options.seed, options.time))?;
    let (minutes, busy) = (begun.elapsed().as_secs_f64() / 60.0, watch.samples());
    let (waits, is_host) = (verdict::waits(&sites), sites.iter().all(Site::is_host));
    drop((watch, sites));
    let mut after = runtime.block_on(at_rest());
    while after.threads > before.threads && begun.elapsed() < options.time + Duration::from_secs(60) {
        after = runtime.block_on(at_rest());
    }
    Ok(Measured { minutes, devices, waits, before, quiet, busy, after, is_host })
}

/// What the process holds when threads that are about to end, or to begin, have done so.
async fn at_rest() -> Held {
    tokio::time::sleep(Duration::from_millis(300)).await;
    Held::trimmed()
}
