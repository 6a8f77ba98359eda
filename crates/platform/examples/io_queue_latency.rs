//! How long a job of an I/O queue waits for its start, and what submitting it costs: when the queue has just been at
//! work, and when its thread sleeps.

use std::hint;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use eris_platform::{Env, IoQueue, RealEnv};

const JOBS: usize = 5_000;

/// Nanoseconds.
struct Latencies(Vec<u64>);

impl Latencies {
    fn print(mut self, of: &str) {
        self.0.sort_unstable();
        let at = |share: f64| self.0[((self.0.len() - 1) as f64 * share) as usize] as f64 / 1_000.0;
        println!("{of}: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us", at(0.5), at(0.9), at(0.99));
    }
}

fn measure(env: &dyn Env, queue: &Arc<dyn IoQueue>, what: &str, pause: impl Fn()) {
    let (mut starts, mut submits) = (Vec::new(), Vec::new());
    for _ in 0..JOBS {
        pause();
        let started = Arc::new(AtomicU64::new(0));
        let begin = env.now();
        let (job, at) = (Arc::clone(&started), Instant::now());
        queue.submit(Box::new(move |_| job.store(1 + at.elapsed().as_nanos() as u64, Ordering::Release)));
        submits.push(env.now().since(begin).as_nanos() as u64);
        while started.load(Ordering::Acquire) == 0 {
            hint::spin_loop();
        }
        starts.push(started.load(Ordering::Acquire) - 1);
    }
    Latencies(starts).print(&format!("{what}, submit to start"));
    Latencies(submits).print(&format!("{what}, submit returns"));
}

fn main() -> io::Result<()> {
    let env = RealEnv::new();
    let queue = env.io_queue("latency")?;
    measure(&env, &queue, "one job after the other", || ());
    measure(&env, &queue, "1 us later", || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(1) {}
    });
    measure(&env, &queue, "20 us later", || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(20) {}
    });
    measure(&env, &queue, "1 ms later, both asleep", || thread::sleep(Duration::from_millis(1)));
    Ok(())
}
