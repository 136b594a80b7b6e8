//! The thread that prints a sample every few seconds, and ends the program where nothing happens any more.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use inflight::Stats;

use super::process::Held;
use super::site::Site;

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(5);
/// Without a batch for so long, something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The samples of a run; the thread ends when this is dropped.
pub(crate) struct Watch {
    samples: Arc<Mutex<Vec<Held>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn new(sites: [Site; 2]) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let samples = Arc::<Mutex<Vec<Held>>>::default();
        let kept = samples.clone();
        let watch = move || {
            let begun = Instant::now();
            let (mut seen, mut since, mut sampled) = (0, begun, begun);
            while stopped.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
                let progress = sites[0].tally.progress.now();
                if progress != seen {
                    (seen, since) = (progress, Instant::now());
                }
                if since.elapsed() > PATIENCE {
                    hung(&sites);
                }
                if sampled.elapsed() >= INTERVAL {
                    sampled = Instant::now();
                    let held = Held::now();
                    println!("{:7.1} s: {}", begun.elapsed().as_secs_f64(), sample(&sites, held));
                    if let Ok(mut kept) = kept.lock() {
                        kept.push(held);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(watch)?;
        Ok(Self { samples, stop: Some(stop), thread: Some(thread) })
    }

    /// What the process held while it worked.
    pub(crate) fn samples(&self) -> Vec<Held> {
        self.samples.lock().map(|samples| samples.clone()).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn sample(sites: &[Site; 2], held: Held) -> String {
    let tally = &sites[0].tally;
    let (batches, cancelled) = (tally.verified.now(), tally.cancelled());
    let devices = sites.each_ref().map(|site| brief(&site.device.stats())).join("; ");
    let Held { resident, threads, files } = held;
    let resident = resident >> 20;
    format!("{batches} verified, {cancelled} cancelled, {resident} MiB, {threads} threads, {files} files; {devices}")
}

fn brief(stats: &Stats) -> String {
    let mebibytes = |bytes: usize| bytes >> 20;
    format!(
        "used {} idle {} pinned {}+{}+{} MiB, limbo {}, operations {}, events {}",
        mebibytes(stats.device_used),
        mebibytes(stats.device_idle),
        mebibytes(stats.pinned_used),
        mebibytes(stats.readback_used),
        mebibytes(stats.pinned_idle),
        stats.limbo_blocks,
        stats.operations,
        stats.events_made
    )
}

/// Says all that is known, and ends the program.
fn hung(sites: &[Site; 2]) -> ! {
    eprintln!("soak: HANGS: no batch for {PATIENCE:?}");
    for (task, phase) in sites[0].tally.phases().iter().enumerate() {
        eprintln!("task {task} {phase}");
    }
    for site in sites {
        eprintln!("{:#?}", site.device.stats());
    }
    std::process::exit(1)
}
