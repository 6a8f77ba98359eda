//! Joins: a sink that keeps one side by its keys, a step that looks the other side up in it.
//!
//! The build side is kept by columns. When it is complete, the table is chosen by what the keys are:
//!
//! | keys | table |
//! |---|---|
//! | integers and ids of texts, whose combinations are at most a few times the rows | array: code -> first row |
//! | the same where only existence matters | one bit a code, also when it is much emptier |
//! | the same of fewer than 2^32 combinations | hash table whose entries hold code and row |
//! | the same of fewer than 2^64 combinations | hash table of hash and row, codes beside the columns |
//! | anything else | hash table of hash and row, key columns kept |
//!
//! On request it also makes a small filter of a key ([`KeyFilter`]), for scans of rows that are looked up much later.
//!
//! Rows of equal keys are chained. A probe finds the first row of each key for a whole batch, then makes pairs of rows,
//! at most a batch of them at a time, tests what else the join demands, and gathers columns in the end only. It can
//! stop behind each batch of pairs ([`Probing`]), however many there are.
//!
//! Where memory is refused both sides go to files, and are joined part by part ([`external`]).

mod build;
mod choice;
mod codes;
mod enter;
mod external;
mod kept;
mod key_filter;
mod merging;
mod output;
mod pairs;
mod probe;
mod probing;
mod residual;
mod spilling;
mod table;

#[cfg(test)]
mod pause_tests;
#[cfg(test)]
mod spill_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod text_tests;

use std::sync::Arc;

use eris_storage::DataType;

use crate::expression::Expression;
pub use build::JoinBuild;
pub use external::{ProbeParts, SpillingCollector};
pub use key_filter::KeyFilter;
pub use probe::Probe;
pub(crate) use probe::Probed;
pub(crate) use probing::{Probing, Walked};

/// What a join keeps of its build side.
#[derive(Clone, Debug)]
pub struct BuildSpec {
    /// Over the build input; none: every pair of rows meets.
    pub keys: Arc<[Expression]>,
    /// The columns of the build input that are kept.
    pub columns: Arc<[usize]>,
    /// Their types.
    pub types: Arc<[DataType]>,
    /// Build rows remember whether a probe met them. Also keeps rows whose keys are NULL.
    pub keep_unmatched: bool,
    /// No columns and no residual: only whether a key is there.
    pub existence: bool,
    /// NULL is equal to NULL.
    pub null_equal: bool,
}

/// What becomes of probe rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and probe rows without partner with NULLs for build columns.
    Left,
    /// Probe rows that have a partner.
    Semi,
    /// Probe rows that have none.
    Anti,
    /// Probe rows whose one key is NOT IN the build side: none that might be, were a NULL known.
    NullAwareAnti,
    /// All probe rows, with a boolean behind them.
    Mark {
        /// As IN: NULL where a NULL might have been the partner.
        null_aware: bool,
    },
    /// Nothing: build rows are marked as met.
    Build,
}

impl JoinKind {
    /// Whether it matters that a NULL might be equal to anything.
    fn is_null_aware(self) -> bool {
        match self {
            Self::NullAwareAnti | Self::Mark { null_aware: true } => true,
            Self::Inner | Self::Left | Self::Semi | Self::Anti | Self::Mark { null_aware: false } | Self::Build => {
                false
            }
        }
    }
}
