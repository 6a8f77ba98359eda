//! What can go wrong while rows are computed.

use std::error::Error;
use std::sync::Arc;

use eris_engine::EngineError;
use eris_platform::{MemoryExceeded, TempFileError};
use thiserror::Error as ThisError;

/// An error of an expression or an aggregate.
#[derive(Clone, Debug, ThisError)]
pub enum OperatorError {
    /// A divisor was zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A result does not fit its type.
    #[error("{type_name} out of range")]
    Overflow {
        /// The type, as SQL names it.
        type_name: &'static str,
    },
    /// A date lies beyond all timestamps.
    #[error("date out of range for timestamp")]
    DateOverflow,
    /// A number that a window function is given is zero or negative.
    #[error("argument of {function} must be greater than zero")]
    NotPositive {
        /// The function, as SQL names it.
        function: &'static str,
    },
    /// More memory would be needed than `memory_limit` leaves.
    #[error(transparent)]
    Memory(#[from] MemoryExceeded),
    /// What does not fit into memory could not be kept in files.
    #[error(transparent)]
    TempFile(TempFileError),
    /// Somebody asked the statement to stop.
    #[error("the statement was cancelled")]
    Cancelled,
    /// An expression of the layer above failed.
    #[error("{0}")]
    Foreign(Arc<dyn Error + Send + Sync>),
    /// The plan does not fit the data: a mistake of the planner.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<OperatorError> for EngineError {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Memory(error) => Self::Memory(error),
            OperatorError::Cancelled => Self::Cancelled,
            error => Self::Foreign(Arc::new(error)),
        }
    }
}
