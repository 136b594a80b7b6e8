//! What a run came to: what must hold, and the line that says so.

use super::process::Held;
use super::rounds::Quiet;
use super::site::Site;
use super::tally::Tally;

/// By so much the resident memory may grow from the first to the last quarter, with everything dropped and given back:
/// the allocator's own book-keeping, and stacks that were touched deeper.
const GROWTH: u64 = 16 << 20;
/// So much may stay when the devices are gone.
const REMAINS: u64 = 16 << 20;
/// So many events may be made after the first quarter: a load that is rarer than others needs more at once.
const EVENTS: u64 = 256;

/// All that was measured.
pub(crate) struct Measured {
    pub(crate) minutes: f64,
    pub(crate) devices: String,
    pub(crate) waits: u64,
    pub(crate) before: Held,
    /// After each round.
    pub(crate) quiet: Vec<Quiet>,
    /// While it worked.
    pub(crate) busy: Vec<Held>,
    pub(crate) after: Held,
    pub(crate) is_host: bool,
}

/// The first and the last quarter after the first tenth, medians.
fn quarters(samples: &[u64]) -> Option<(u64, u64)> {
    let warm = samples.get(samples.len().div_ceil(10)..)?;
    let quarter = warm.len().div_ceil(4);
    Some((median(warm.get(..quarter)?)?, median(warm.get(warm.len() - quarter..)?)?))
}

fn median(samples: &[u64]) -> Option<u64> {
    let mut samples = samples.to_vec();
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied()
}

/// How often pipelines waited for memory.
pub(crate) fn waits(sites: &[Site; 2]) -> u64 {
    let rows = sites.iter().flat_map(|site| site.device.stats().pipelines);
    rows.map(|row| row.waits).sum()
}

impl Measured {
    fn at_rest(&self) -> Option<(u64, u64)> {
        quarters(&self.quiet.iter().map(|quiet| quiet.held.resident).collect::<Vec<_>>())
    }

    fn at_work(&self) -> Option<(u64, u64)> {
        quarters(&self.busy.iter().map(|held| held.resident).collect::<Vec<_>>())
    }

    fn events(&self) -> Option<(u64, u64)> {
        quarters(&self.quiet.iter().map(|quiet| quiet.events).collect::<Vec<_>>())
    }

    /// What is wrong, a sentence each.
    pub(crate) fn wrong(&self, tally: &Tally) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, text: String| {
            if !holds {
                wrong.push(text);
            }
        };
        expect(tally.verified.now() > 0 && tally.bytes.now() > 0, "nothing was verified".to_owned());
        let (raised, seen, lost) = (tally.raised.now(), tally.seen.now(), tally.lost.now());
        expect(raised == seen + lost, format!("{raised} errors were raised, {seen} seen and {lost} lost"));
        if self.minutes >= 1.0 {
            expect(tally.cancelled() > 0, "nothing was cancelled".to_owned());
            expect(self.waits > 0, "no pipeline ever waited for memory: no back-pressure".to_owned());
        }
        if let Some((first, last)) = self.at_rest() {
            let text = format!("resident memory grew from {} to {} MiB", first >> 20, last >> 20);
            expect(last <= first + GROWTH, text);
        }
        let (first, last) = self.events().unwrap_or_default();
        expect(last <= first + EVENTS, format!("events went astray: {first} were made, then {last}"));
        // A GPU's driver keeps threads and memory of its own.
        if self.is_host {
            let (before, after) = (self.before, self.after);
            expect(
                (before.threads, before.files) == (after.threads, after.files),
                format!("threads or files remain when all is dropped: {before:?}, {after:?}"),
            );
            expect(
                after.resident <= before.resident + REMAINS,
                format!("memory remains when all is dropped: {before:?}, {after:?}"),
            );
        }
        wrong
    }

    /// The line that tells the run.
    pub(crate) fn summary(&self, tally: &Tally) -> String {
        let mebibytes = |quarters: Option<(u64, u64)>| {
            quarters.map_or("unknown".to_owned(), |(first, last)| format!("{}/{} MiB", first >> 20, last >> 20))
        };
        let events = self.events().unwrap_or_default();
        format!(
            "soak: {:.1} min, {}, 4 tasks, {} epochs, {} batches verified ({:.1} GB), {} written to, {} cancelled \
             (transfers {}, admissions {}, uses {}, streams {}, tasks {}), {} source errors ({} seen, {} lost with their \
             streams), {} waits for memory, rss first/last quarter {} at rest and {} at work, rss before/after {}/{} MiB, \
             threads {} before, {} at rest, {} after, events made first/last quarter {}/{}",
            self.minutes,
            self.devices,
            tally.epochs.now(),
            tally.verified.now(),
            tally.bytes.now() as f64 / 1e9,
            tally.written.now(),
            tally.cancelled(),
            tally.transfers_cancelled.now(),
            tally.admissions_cancelled.now(),
            tally.uses_cancelled.now(),
            tally.epochs_left.now(),
            tally.epochs_aborted.now(),
            tally.raised.now(),
            tally.seen.now(),
            tally.lost.now(),
            self.waits,
            mebibytes(self.at_rest()),
            mebibytes(self.at_work()),
            self.before.resident >> 20,
            self.after.resident >> 20,
            self.before.threads,
            self.quiet.last().map_or(0, |quiet| quiet.held.threads),
            self.after.threads,
            events.0,
            events.1,
        )
    }
}
