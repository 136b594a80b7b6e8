//! Large contiguous pageable batches through the engine, beside the same bytes copied by hand: by as many threads, chunk by
//! chunk, straight to the destination by `memcpy`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use inflight::{Device, HostArray};

use crate::{median, pipeline};

/// Bytes of a chunk, as the engine has them.
const CHUNK: usize = 4 << 20;
/// Batches of one measurement.
const BATCHES: usize = 48;
/// Batches under way.
const DEPTH: usize = 3;
const RUNS: usize = 9;

/// Places of chunks of a batch, each one thread's at a time.
struct Place(*mut u8);

// SAFETY: a chunk of a destination is written by the one thread that drew its number.
#[expect(unsafe_code, reason = "threads write parts of one vector")]
unsafe impl Sync for Place {}

/// Copies a batch's bytes `BATCHES` times with so many threads; the time of one.
#[expect(unsafe_code, reason = "threads write parts of one vector")]
fn by_hand(src: &[u8], destinations: &mut [Vec<u8>], threads: usize) -> Duration {
    let chunks = src.len().div_ceil(CHUNK);
    let places: Vec<_> = destinations.iter_mut().map(|to| Place(to.as_mut_ptr())).collect();
    let next = AtomicUsize::new(0);
    let copy = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= BATCHES * chunks {
                return;
            }
            let from = number % chunks * CHUNK;
            let chunk = &src[from..src.len().min(from + CHUNK)];
            let to = places[number / chunks % places.len()].0.wrapping_add(from);
            // SAFETY: a chunk of a destination as long as the source; nobody else has its number.
            unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), to, chunk.len()) };
        }
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(copy);
        }
    });
    start.elapsed() / BATCHES as u32
}

pub(crate) fn table(runtime: &tokio::runtime::Runtime) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let device = Device::builder().host().staging_threads(threads).build().unwrap();
    println!("engine: host backend, {threads} threads, pageable batches, depth {DEPTH}; medians of {RUNS}, GB/s");
    println!("{:>9} {:>8} {:>8} {:>7}", "bytes", "engine", "memcpy", "ratio");
    for bytes in [38_535_168, 64 << 20] {
        let source: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
        let array = HostArray::from(source.clone());
        // As many as the pipeline has: those under way, and the one in hand.
        let mut destinations = vec![vec![1_u8; bytes]; DEPTH + 1];
        let [mut ours, mut bare] = [const { Vec::new() }; 2];
        for _ in 0..RUNS {
            ours.push(runtime.block_on(pipeline(&device, &array, BATCHES, DEPTH)));
            bare.push(by_hand(&source, &mut destinations, threads));
        }
        let [ours, bare] = [ours, bare].map(|times| median(times).as_secs_f64());
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!("{bytes:>9} {:>8.2} {:>8.2} {:>7.2}", rate(ours), rate(bare), bare / ours);
    }
}
