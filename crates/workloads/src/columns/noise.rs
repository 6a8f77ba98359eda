//! What the machine does to latencies on its own: arrivals by the clock at threads that do nothing but wait for them.
//! They are late whenever somebody else has the processor: the kernel, another process, the host of a virtual machine.

use crate::histogram::Histogram;
use std::time::{Duration, Instant};

/// The latencies of arrivals at `threads` threads, at each of them one every `between`.
pub fn machine_noise(threads: usize, between: Duration, duration: Duration) -> Histogram {
    let wait = || {
        let mut latency = Histogram::default();
        let begin = Instant::now();
        let mut due = Duration::ZERO;
        while due < duration {
            if let Some(late) = begin.elapsed().checked_sub(due) {
                latency.record(late.as_nanos() as u64);
                due += between;
            }
        }
        latency
    };
    let mut all = Histogram::default();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..threads).map(|_| scope.spawn(wait)).collect();
        for latency in waiting.into_iter().filter_map(|thread| thread.join().ok()) {
            all.merge(&latency);
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrival_counts_however_late_it_is() {
        let latency = machine_noise(2, Duration::from_micros(10), Duration::from_millis(5));
        assert_eq!(latency.count(), 1_000);
        assert!(latency.max_ns() >= latency.quantile_ns(0.5));
    }
}
