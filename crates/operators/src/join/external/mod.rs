//! Joins whose build side does not fit: both sides are divided by the hash of their keys and joined part by part.
//!
//! ```text
//!   build rows ── no room ──> | part 0 | part 1 | ... | part 31 |       the rest, too, when all input was given
//!   probe rows ────────────── | part 0 | part 1 | ... | part 31 |       a sink in place of the step that looks them up
//!   part 0 of both ──> rows of the join, part 1 of both ──> ...         as they are asked for
//! ```
//! A part is built and probed as a join in memory is, by the same code; what it has to know of the others, whether
//! there were rows and NULLs among the keys, it is told. Rows that have to be remembered as met are a bit each.
//! The scheme is that of Grace (Kitsuregawa, Tanaka, Moto-oka, *Application of Hash to Data Base Machine and Its
//! Architecture*, 1983).

mod blocks;
mod build;
mod collector;
mod divide;
mod part;
mod pass;
mod probe_parts;
mod stream;

pub(super) use build::ExternalBuild;
pub use collector::SpillingCollector;
pub(super) use part::BuildInFiles;
pub use probe_parts::ProbeParts;
