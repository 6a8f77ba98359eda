//! What the machine can do at most with the same memory and threads: the figures beside the benchmark's.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Physical limits, measured in the same run over as many bytes by as many threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limits {
    /// Independent reads of 8 bytes at random places, a second, all threads.
    pub random_reads_per_s: f64,
    /// Bytes read one after the other, a second, all threads.
    pub sequential_bytes_per_s: f64,
    pub footprint_bytes: u64,
}

/// Reads between two looks at the clock.
const READS_PER_ROUND: usize = 1 << 16;
/// Words between two looks at the clock.
const WORDS_PER_ROUND: usize = 1 << 18;

/// Measures both limits, for so long each.
pub fn measure(footprint_bytes: u64, threads: usize, time: Duration) -> Limits {
    // A power of two, so that drawing a place costs one instruction; the next one below is at least half as large.
    let words = 1_usize << (footprint_bytes / 8).max(1).ilog2();
    let memory: Vec<u64> = (0..words as u64).map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let reads = on_threads(threads, |thread| {
        let mut state = 0x2545_F491_4F6C_DD1D_u64 ^ (thread as u64 + 1) << 32;
        let (mut count, mut sum) = (0_u64, 0_u64);
        let start = Instant::now();
        while start.elapsed() < time {
            for _ in 0..READS_PER_ROUND {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                sum = sum.wrapping_add(memory[state as usize & (words - 1)]);
            }
            count += READS_PER_ROUND as u64;
        }
        black_box(sum);
        count as f64 / start.elapsed().as_secs_f64()
    });
    let bytes = on_threads(threads, |thread| {
        let mut at = words / threads * thread;
        let (mut count, mut sum) = (0_u64, 0_u64);
        let start = Instant::now();
        while start.elapsed() < time {
            let end = words.min(at + WORDS_PER_ROUND);
            sum = memory[at..end].iter().fold(sum, |sum, word| sum.wrapping_add(*word));
            count += (end - at) as u64 * 8;
            at = if end == words { 0 } else { end };
        }
        black_box(sum);
        count as f64 / start.elapsed().as_secs_f64()
    });
    Limits { random_reads_per_s: reads, sequential_bytes_per_s: bytes, footprint_bytes: words as u64 * 8 }
}

/// The sum of what the threads say.
pub(crate) fn on_threads<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> f64
where
    f64: From<T>,
{
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).map(f64::from).sum()
    })
}
