//! The tasks, round by round: each round ends with everything dropped, drained and looked at.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use rand::Rng;

use super::bank::generator;
use super::epoch::Epoch;
use super::process::Held;
use super::site::Site;
use super::work::Wrong;

/// Two on each device.
const TASKS: usize = 4;
/// Memory that shrinks by less in a tenth of a second has been given back.
const STEADY: u64 = 1 << 20;

/// What there is when a round is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    pub(crate) held: Held,
    /// Events that the devices have made so far.
    pub(crate) events: u64,
}

/// Runs rounds for that long; what there was after each.
pub(crate) async fn run(sites: &[Site; 2], seed: u64, time: Duration) -> Result<Vec<Quiet>, Wrong> {
    let end = Instant::now() + time;
    let length = (time / 24).clamp(Duration::from_secs(1), Duration::from_secs(30));
    let mut quiet: Vec<Quiet> = Vec::new();
    while Instant::now() < end {
        let until = end.min(Instant::now() + length);
        let place = quiet.len() as u64;
        let tasks = (0..TASKS).map(|task| {
            let seed = generator(seed, place, 10 + task as u64).random();
            let running = tokio::spawn(epochs(sites[task % 2].clone(), task, seed, until));
            async move { running.await? }
        });
        try_join_all(tasks).await?;
        for site in sites {
            site.settle().await?;
            site.device.trim();
        }
        let held = quiet_now(quiet.first().map(|first| first.held)).await?;
        quiet.push(Quiet { held, events: sites.iter().map(|site| site.device.stats().events_made).sum() });
    }
    Ok(quiet)
}

/// One epoch after the other; one in twenty is aborted.
async fn epochs(site: Site, task: usize, seed: u64, until: Instant) -> Result<(), Wrong> {
    let mut random = generator(seed, 0, 7);
    while Instant::now() < until {
        let epoch = Epoch::random(&site, task, random.random(), until);
        let running = tokio::spawn(epoch.clone().run());
        if random.random_bool(0.05) {
            // If it has ended by then, this does nothing.
            tokio::time::sleep(Duration::from_micros(random.random_range(0..300_000))).await;
            running.abort();
        }
        match running.await {
            Ok(done) => done?,
            Err(error) if error.is_cancelled() => site.tally.epochs_aborted.one(),
            Err(error) => return Err(format!("{epoch}: {error}").into()),
        }
        epoch.close();
    }
    site.tally.phase(task, "has done its round".to_owned());
    Ok(())
}

/// What the process holds once blocks are given back and streams' threads have ended: as many threads and files as after
/// the first round.
async fn quiet_now(first: Option<Held>) -> Result<Held, Wrong> {
    let begun = Instant::now();
    let mut last = Held::trimmed();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let held = Held::trimmed();
        let is_settled = held.resident + STEADY >= last.resident;
        let (is_as_first, patience) = match first {
            Some(first) => ((held.threads, held.files) == (first.threads, first.files), Duration::from_secs(10)),
            // Nothing to compare with: they get time to end.
            None => (begun.elapsed() > Duration::from_secs(1), Duration::from_secs(20)),
        };
        if is_settled && is_as_first {
            return Ok(held);
        }
        if begun.elapsed() > patience {
            return Err(format!("threads or files are not as after the first round: {held:?}, {first:?}").into());
        }
        last = held;
    }
}
