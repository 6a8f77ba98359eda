//! What the memory gives at best: the same threads read the same number of bytes, with nothing in between.

use std::hint::black_box;
use std::time::Instant;

/// What a probe measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    pub bytes: u64,
    pub threads: usize,
    /// The best of the passes.
    pub bytes_per_s: f64,
}

/// Reads `bytes` in `threads` equal parts, each by a thread of its own, `passes` times.
pub fn probe_bandwidth(bytes: u64, threads: usize, passes: usize) -> Bandwidth {
    assert!(threads > 0 && passes > 0, "a probe reads something");
    let words = (bytes as usize / size_of::<u64>() / threads).max(1);
    let parts: Vec<Vec<u64>> = std::thread::scope(|scope| {
        // Each thread writes its own part first: that is what places it.
        let fill = |part: usize| move || (0..words).map(|word| (word ^ part) as u64).collect::<Vec<u64>>();
        let filling: Vec<_> = (0..threads).map(|part| scope.spawn(fill(part))).collect();
        filling.into_iter().filter_map(|part| part.join().ok()).collect()
    });
    let read = (words * parts.len() * size_of::<u64>()) as f64;
    let mut best = f64::INFINITY;
    for _ in 0..passes {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in &parts {
                scope.spawn(move || black_box(sum(part)));
            }
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    Bandwidth { bytes: read as u64, threads: parts.len(), bytes_per_s: read / best }
}

/// Eight sums side by side, so that additions do not wait for each other.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 8];
    let chunks = words.chunks_exact(8);
    let rest: u64 = chunks.remainder().iter().fold(0, |sum, word| sum.wrapping_add(*word));
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.into_iter().fold(rest, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_reads_every_word() {
        assert_eq!(sum(&(0..1_003).collect::<Vec<u64>>()), 1_002 * 1_003 / 2);
        let found = probe_bandwidth(1 << 20, 2, 1);
        assert_eq!((found.bytes, found.threads), (1 << 20, 2));
        assert!(found.bytes_per_s > 0.0);
    }
}
