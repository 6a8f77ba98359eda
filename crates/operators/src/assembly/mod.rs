//! Putting the columns of many batches together, by several workers at a time.
//!
//! ```text
//!   chunks   | 0 | 1 | 2 |  3  | 4 |      batches as they came, of any length
//!   parts    |   0   |     1   | 2 |      consecutive chunks; one job each
//!   column   |-------|---------|---|      filled by the jobs, each its own part
//! ```

mod column;
mod parts;

pub(crate) use column::{ColumnParts, own_texts};
pub(crate) use parts::{Parts, settled, zeros};
