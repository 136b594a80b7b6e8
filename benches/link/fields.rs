//! Eight fields of 512 bytes in a batch, against one field of 4 KiB.

use inflight::{HostArray, HostBatch};

use super::pool::Pattern;
use super::reach::Reach;
use super::rig::{Outcome, Rig, Row, median, timed};
use super::small::send;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const BYTES: usize = 512;
const DEPTHS: [usize; 2] = [8, 64];
const RUNS: usize = 5;

pub(crate) fn run(rig: &mut Rig) -> Outcome<()> {
    let count = rig.fewer(20_000);
    rig.title(&format!(
        "batches of {} fields of {BYTES} bytes, {count} a run, against one field as large",
        NAMES.len()
    ));
    let value = |field: usize, place: usize| u8::at(field * BYTES + place);
    let array = |field: usize| HostArray::from((0..BYTES).map(|place| value(field, place)).collect::<Vec<_>>());
    let parts: Vec<HostArray> = (0..NAMES.len()).map(array).collect();
    let whole = HostArray::from((0..NAMES.len() * BYTES).map(u8::at).collect::<Vec<_>>());
    let one = |_: usize| HostBatch::new().with("x", whole.clone());
    let eight = |_: usize| {
        NAMES.iter().zip(&parts).fold(HostBatch::new(), |batch, (name, part)| batch.with(*name, part.clone()))
    };
    let eight_alone = made_copied_and_dropped(count, &parts, &eight)?;
    let one_alone = made_copied_and_dropped(count, std::slice::from_ref(&whole), &one)?;
    let bare = format!("made, copied and dropped alone {eight_alone:.2} µs, one field {one_alone:.2}");
    for depth in DEPTHS {
        let (mut ours, mut limit) = (Vec::new(), Vec::new());
        for number in 0..=RUNS {
            let alone = timed(|| rig.runtime.block_on(send(&rig.device, depth, count, one)))?.0;
            let (seconds, last) = timed(|| rig.runtime.block_on(send(&rig.device, depth, count, eight)))?;
            if number > 0 {
                limit.push(alone);
                ours.push(seconds);
                continue;
            }
            let last = last.ok_or("nothing was sent")?;
            for (field, name) in NAMES.iter().enumerate() {
                let back = rig.runtime.block_on(last.field(name)?.read_back::<u8>()?)?;
                if back.len() != BYTES || back.iter().enumerate().any(|(place, byte)| *byte != value(field, place)) {
                    return Err(format!("field {name} arrived wrong").into());
                }
            }
        }
        rig.row(&Row {
            job: format!("fields depth {depth}"),
            bytes: NAMES.len() * BYTES * count,
            batches: count,
            note: format!("one field {:.2} µs a batch; {bare}", median(limit.clone()) * 1e6 / count as f64),
            seconds: median(ours),
            limit_seconds: median(limit),
            reaches: &[Reach::Times(1.2)],
            ..Row::default()
        });
    }
    Ok(())
}

/// What a batch of such arrays costs a loop that sends it nowhere, in microseconds.
#[expect(unsafe_code, reason = "reads arrays by address")]
fn made_copied_and_dropped(count: usize, arrays: &[HostArray], batch: &impl Fn(usize) -> HostBatch) -> Outcome<f64> {
    let mut to = vec![0_u8; arrays.iter().map(HostArray::bytes).sum()];
    let mut once = |_| {
        timed(|| {
            for number in 0..count {
                let (batch, mut at) = (batch(number), 0);
                for array in arrays {
                    let next = at + array.bytes();
                    // SAFETY: the array was made of a vector of so many bytes, and lives.
                    to[at..next].copy_from_slice(unsafe { std::slice::from_raw_parts(array.as_ptr(), array.bytes()) });
                    at = next;
                }
                std::hint::black_box((&mut to, batch));
            }
            Ok(())
        })
        .map(|(seconds, ())| seconds * 1e6 / count as f64)
    };
    Ok(median((0..RUNS).map(&mut once).collect::<Outcome<Vec<_>>>()?))
}
