//! What sequences refuse.

use thiserror::Error as ThisError;

use super::SequenceId;
use crate::commit_log::LogError;

/// Why a sequence gives no value, or cannot be made or set.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum SequenceError {
    /// It has reached its bound and does not cycle (2200H).
    #[error("nextval: reached {} value of sequence \"{name}\" ({limit})", bound(*.ascending))]
    Exhausted { name: Box<str>, limit: i64, ascending: bool },
    /// It cannot be set to a value beyond its bounds (22003).
    #[error("setval: value {value} is out of bounds for sequence \"{name}\" ({minimum}..{maximum})")]
    OutOfBounds { name: Box<str>, value: i64, minimum: i64, maximum: i64 },
    /// Its parts do not fit together (22023).
    #[error("{0}")]
    Invalid(String),
    /// It was dropped, or never existed (42P01).
    #[error("sequence {} does not exist", .0.0)]
    NoSuchSequence(SequenceId),
    /// The log does not take what it has to know before values are given.
    #[error(transparent)]
    Log(#[from] LogError),
}

fn bound(ascending: bool) -> &'static str {
    if ascending { "maximum" } else { "minimum" }
}
