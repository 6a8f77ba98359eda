//! What the memory gives at best: the same threads read the same number of bytes, with nothing in between.

use std::hint::black_box;
use std::time::Instant;

/// Memory of its own, read as often as one likes: a machine that others share changes its speed from minute to minute,
/// so the limit is probed between the passes of what is measured.
pub struct BandwidthProbe {
    parts: Vec<Vec<u64>>,
}

impl BandwidthProbe {
    /// `bytes` in `threads` equal parts.
    pub fn new(bytes: u64, threads: usize) -> Self {
        assert!(threads > 0, "somebody reads");
        let words = (bytes as usize / size_of::<u64>() / threads).max(1);
        let parts = std::thread::scope(|scope| {
            // Each thread writes its own part first: that is what places it.
            let fill = |part: usize| move || (0..words).map(|word| (word ^ part) as u64).collect::<Vec<u64>>();
            let filling: Vec<_> = (0..threads).map(|part| scope.spawn(fill(part))).collect();
            filling.into_iter().filter_map(|part| part.join().ok()).collect()
        });
        Self { parts }
    }

    /// Reads everything once, each part by a thread of its own. Returns bytes per second.
    pub fn pass(&self) -> f64 {
        self.passes(1)
    }

    /// The same, so many times in a row: what is read in no time is not measured by how long threads take to start.
    pub fn passes(&self, times: u32) -> f64 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in &self.parts {
                scope.spawn(move || {
                    for _ in 0..times {
                        black_box(sum(black_box(part)));
                    }
                });
            }
        });
        self.bytes() as f64 * f64::from(times) / start.elapsed().as_secs_f64()
    }

    /// What one pass reads.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| size_of_val(part.as_slice()) as u64).sum()
    }
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
        let probe = BandwidthProbe::new(1 << 20, 2);
        assert_eq!((probe.bytes(), probe.parts.len()), (1 << 20, 2));
        assert!(probe.pass() > 0.0);
    }
}
