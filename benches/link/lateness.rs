//! How late a completion is noticed, and what noticing costs.

use std::time::Duration;

use futures::{TryStreamExt, stream};
use inflight::{BatchStreamExt, Stats};

use super::raw::{Raw, memcpy};
use super::rig::{Outcome, Rig, timed};

const BYTES: usize = 38_535_168;
const SINGLES: usize = 300;

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let (device, count) = (&rig.device, rig.fewer(SINGLES));
    let (bytes, limit) = if rig.is_host() { (BYTES / 8, "memcpy") } else { (BYTES, "a spinning query") };
    rig.title(&format!("{count} copies of {bytes} bytes one at a time: from call to result, against {limit}"));
    let arrays = rig.pinned_arrays(device, 2, bytes)?;
    let raw = rig.context.as_ref().map(|context| Raw::new(context, bytes, 1)).transpose()?;
    let (mut ours, mut spun, mut noticed) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..count {
        let (array, before) = (arrays[number % 2].clone(), device.stats());
        ours.push(timed(|| Ok(futures::executor::block_on(async { device.transfer(("x", array)).await?.await })?))?.0);
        noticed.push(mean_lateness(&before, &device.stats()));
        spun.push(match &raw {
            Some(raw) => raw.uploads(1)?,
            None => memcpy(bytes, 1)?,
        });
    }
    for times in [&mut ours, &mut spun, &mut noticed] {
        times.sort_by(f64::total_cmp);
    }
    let at = |share: usize| count * share / 100;
    let late = |share: usize| (ours[at(share)] - spun[at(share)]) * 1e6;
    rig.title(&format!(
        "  noticed by the reactor at most {:.1} µs late p50, {:.1} p90, {:.1} p99 (from its last question before)\n  the \
         future resolved later than {limit}: {:.1} µs p50, {:.1} p90 (of {:.1} µs p50): a parked thread wakes",
        noticed[at(50)],
        noticed[at(90)],
        noticed[at(99)],
        late(50),
        late(90),
        spun[at(50)] * 1e6,
    ));

    let before = device.stats();
    let (seconds, ()) = timed(|| {
        Ok(rig.runtime.block_on(async {
            let source = stream::iter((0..count * 3).map(|number| ("x", arrays[number % 2].clone())));
            let batches = futures::StreamExt::buffered(source.to_device(device), 4);
            batches.try_for_each(|_| std::future::ready(Ok(()))).await
        })?)
    })?;
    let after = device.stats();
    let busy = cpu(&after).saturating_sub(cpu(&before)).as_secs_f64() / seconds;
    rig.title(&format!(
        "  at depth 4, where the next copy keeps the link busy: last asked {:.1} µs before it was noticed, in the mean; reactor \
         {:.1} % of a core, {:.1} questions a copy",
        mean_lateness(&before, &after),
        busy * 100.0,
        (after.polls - before.polls) as f64 / (after.completions - before.completions).max(1) as f64
    ));

    pause(Duration::from_millis(100));
    let before = device.stats();
    pause(Duration::from_secs(1));
    let after = device.stats();
    rig.title(&format!(
        "  idle for 1 s: {} questions, {:?} of the reactor's processor time",
        after.polls - before.polls,
        cpu(&after).saturating_sub(cpu(&before))
    ));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the idle time is what is measured")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn cpu(stats: &Stats) -> Duration {
    stats.reactor_cpu.unwrap_or_default()
}

/// In microseconds.
fn mean_lateness(before: &Stats, after: &Stats) -> f64 {
    let completions = (after.completions - before.completions).max(1);
    (after.lateness - before.lateness).as_secs_f64() * 1e6 / completions as f64
}
