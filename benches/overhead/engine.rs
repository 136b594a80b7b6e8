//! Large contiguous pageable batches through the engine, beside the same bytes copied by hand.
//!
//! On the host backend bytes are copied twice: from the array into the ring, and from the ring to the device's block. So
//! the limit is as many threads that copy chunks into a ring of their own and from there to the destination; what one copy
//! alone takes is printed as well.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use inflight::{Device, HostArray};

use crate::{median, pipeline};

/// Bytes of a chunk, as the engine has them.
const CHUNK: usize = 4 << 20;
/// Batches of one measurement.
const BATCHES: usize = 48;
/// Batches under way, and destinations that take turns.
const DEPTH: usize = 3;
const RUNS: usize = 9;

/// Places of chunks of a batch, each one thread's at a time.
struct Place(*mut u8);

// SAFETY: a chunk of a destination is written by the one thread that drew its number.
#[expect(unsafe_code, reason = "threads write parts of one vector")]
unsafe impl Sync for Place {}

/// Copies a batch's bytes `BATCHES` times with so many threads, by way of a ring or straight; the time of one.
#[expect(unsafe_code, reason = "threads write parts of one vector")]
fn by_hand(src: &[u8], destinations: &mut [Vec<u8>], rings: &mut [Vec<u8>], staged: bool) -> Duration {
    let chunks = src.len().div_ceil(CHUNK);
    let places: Vec<_> = destinations.iter_mut().map(|to| Place(to.as_mut_ptr())).collect();
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for ring in rings {
            let (next, places) = (&next, &places);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= BATCHES * chunks {
                        return;
                    }
                    let from = number % chunks * CHUNK;
                    let chunk = &src[from..src.len().min(from + CHUNK)];
                    let to = places[number / chunks % places.len()].0.wrapping_add(from);
                    let read = if staged {
                        ring[..chunk.len()].copy_from_slice(chunk);
                        &ring[..chunk.len()]
                    } else {
                        chunk
                    };
                    // SAFETY: a chunk of a destination as long as the source; nobody else has its number.
                    unsafe { std::ptr::copy_nonoverlapping(read.as_ptr(), to, read.len()) };
                }
            });
        }
    });
    start.elapsed() / BATCHES as u32
}

pub(crate) fn table(runtime: &tokio::runtime::Runtime) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let device = Device::builder().host().staging_threads(threads).build().unwrap();
    println!("engine: host backend, {threads} threads, pageable batches, depth {DEPTH}; medians of {RUNS}, GB/s");
    println!("{:>9} {:>8} {:>11} {:>7} {:>9} {:>7}", "bytes", "engine", "two copies", "ratio", "one copy", "ratio");
    for bytes in [38_535_168, 64 << 20] {
        let source: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
        let array = HostArray::from(source.clone());
        let mut destinations = vec![vec![1_u8; bytes]; DEPTH + 1];
        let mut rings = vec![vec![1_u8; CHUNK]; threads];
        let [mut ours, mut two, mut one] = [const { Vec::new() }; 3];
        for _ in 0..RUNS {
            ours.push(runtime.block_on(pipeline(&device, &array, BATCHES, DEPTH)));
            two.push(by_hand(&source, &mut destinations, &mut rings, true));
            one.push(by_hand(&source, &mut destinations, &mut rings, false));
        }
        let [ours, two, one] = [ours, two, one].map(|times| median(times).as_secs_f64());
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!(
            "{bytes:>9} {:>8.2} {:>11.2} {:>7.2} {:>9.2} {:>7.2}",
            rate(ours),
            rate(two),
            two / ours,
            rate(one),
            one / ours
        );
    }
}
