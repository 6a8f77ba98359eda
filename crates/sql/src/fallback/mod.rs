//! The fallback lane: plans that are not native run on DataFusion's operators over our scans.
//!
//! ```text
//!   session task                             |  tokio pool
//!   pin every table of the plan (snapshot)   |
//!   start ---------------------------------> |  physical plan; per partition: a morsel (a pinned segment or a batch of
//!                                            |  open rows) from the scan's queue, filtered natively, as Arrow batches
//!   next <-- bounded channel --------------- |  result batches
//! ```
//! A pin needs no latch, so a long query never holds a partition. The lane is outside of what the simulator can replay.

mod execution;
mod interrupt;
mod lane;
mod memory;
mod padded;
mod rows;
mod sample;
mod scan;
mod statistics;

pub use execution::{FallbackExecution, scans_of};
pub use lane::Lane;
pub use memory::AccountedMemory;
pub use padded::PaddedSides;
pub use rows::{FallbackRows, explain};
pub use sample::SampledFilters;
