//! No input may take long. The measure is the thread's own processor time: a fuzzer that is stopped for a while, or
//! shares its processor, is not slow. Of an input that never comes back `scripts/fuzz` tells.

use std::time::Duration;

/// A thousand times what a large input takes, with sanitizers on.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Runs `check`.
///
/// # Panics
/// If it takes more processor time than an input may.
pub fn in_time<T>(check: impl FnOnce() -> T) -> T {
    let before = processor_time();
    let result = check();
    let taken = processor_time() - before;
    assert!(taken < TIME_MAX, "one input takes {taken:?}");
    result
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "a thread knows its processor time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
