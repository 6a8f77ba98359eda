//! The key-value micro-benchmark of ERIS (004, section 3.4.6): pairs of 8 bytes each, tasks that look up 1,000 keys at
//! a time, and what the same machine does without living partitions.
//!
//! ```text
//!              by key                                by value
//!   partition  [0 .. n/4) [n/4 .. n/2) ...           ranges of the value
//!   a lookup   goes to the one partition of its key  goes to all partitions
//! ```
//! Keys are 0 to n-1, the value of a key is a function of it ([`value_of`]), so every answer is checked. Keys of a
//! transaction are drawn with replacement.

mod driver;
mod hash_table;
mod limit;
mod options;
mod processor;
mod report;
mod scaling;
mod store;

pub use driver::{Run, drive};
pub(crate) use driver::{columns, look_up_checked};
pub use hash_table::SharedStore;
pub(crate) use limit::on_threads;
pub use limit::{Limits, measure as measure_limits};
pub use options::{Access, Baseline, KvError, KvOptions, Locality, PartitionedBy};
pub use processor::spent_while;
pub use report::{KvReport, Unavailable, run};
pub use scaling::{ByDistance, Configuration, Distance, Modelled, ScalingOptions, ScalingReport, Scans, Step, scaling};
pub(crate) use store::{KEY, VALUE};
pub use store::{KvStore, integers};

/// Lookups of one transaction.
pub const LOOKUPS_PER_TRANSACTION: usize = 1_000;

/// The value of a key: all bits depend on it, and no two keys have the same.
#[inline]
pub fn value_of(key: i64) -> i64 {
    let spread = (key as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((spread ^ spread >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)) as i64
}

/// The sum of the values of some keys spread over the store: what every variant of the benchmark must find.
pub(crate) fn checksum_keys(pairs: u64) -> impl Iterator<Item = i64> {
    let step = (pairs / CHECKED_KEYS).max(1);
    (0..pairs).step_by(step as usize).map(|key| key as i64)
}

/// About so many keys are looked up for the checksum.
const CHECKED_KEYS: u64 = 20_000;
