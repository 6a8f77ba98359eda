//! How much of its load a test runs: all of it, or a part where every step costs a multiple.
//!
//! Under valgrind a test takes thirty to a hundred times as long. `ERIS_TEST_PARTS=8` leaves an eighth of the seeds,
//! rounds or rows of those tests that would then take more than a few minutes. They keep what they check.

/// As much of the load of a test as is wanted, and never nothing.
pub fn test_load(full: u64) -> u64 {
    let parts = std::env::var("ERIS_TEST_PARTS").ok().and_then(|text| text.parse().ok());
    full.div_ceil(parts.unwrap_or(1).max(1))
}
