//! How much of its load a test runs: all of it, or a part where every step costs a multiple.
//!
//! Under valgrind a test takes thirty to a hundred times as long. `ERIS_TEST_PARTS=8` leaves an eighth of the seeds,
//! rounds or rows of those tests that would then take more than a few minutes. They keep what they check.

/// As much of the load of a test as is wanted, and never nothing.
///
/// # Panics
/// If `ERIS_TEST_PARTS` is not a number of parts.
pub fn test_load(full: u64) -> u64 {
    let Ok(text) = std::env::var("ERIS_TEST_PARTS") else { return full };
    let parts: u64 = text.parse().unwrap_or(0);
    assert!(parts > 0, "ERIS_TEST_PARTS is a whole number of parts above zero, not {text:?}");
    full.div_ceil(parts)
}
