//! Processor time of this process, beside the time by the clock: on a machine that is shared with others, lookups per
//! second of processor time are what compares.

use std::time::Duration;

/// Ticks a second of `/proc/self/stat`, on every Linux that we know.
const TICKS_PER_S: u64 = 100;

/// User and system time so far; none where `/proc` does not tell.
pub(super) fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may have spaces and parentheses; fields are counted from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_S))
}

/// Waits for the measured time and says what the process spent in it.
pub fn spent_while(warm_up: Duration, measured: Duration) -> Option<Duration> {
    std::thread::sleep(warm_up);
    let before = processor_time();
    std::thread::sleep(measured);
    Some(processor_time()?.saturating_sub(before?))
}
