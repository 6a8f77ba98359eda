//! Why a statement or a session ends before it is done, and what its client is told.

use crate::errors::{SqlError, SqlState};

/// Why a session is interrupted from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interruption {
    /// Its client, or `pg_cancel_backend`: the statement ends.
    UserRequest,
    /// `statement_timeout`: the statement ends.
    StatementTimeout,
    /// `pg_terminate_backend`: the session ends.
    Administrator,
    /// `idle_in_transaction_session_timeout`: the session ends.
    IdleInTransaction,
    /// `idle_session_timeout`: the session ends.
    IdleSession,
    /// `transaction_timeout`: the session ends.
    TransactionTimeout,
}

impl Interruption {
    /// Whether the session ends; else only its statement.
    pub fn ends_session(self) -> bool {
        match self {
            Self::UserRequest | Self::StatementTimeout => false,
            Self::Administrator | Self::IdleInTransaction | Self::IdleSession | Self::TransactionTimeout => true,
        }
    }

    /// What the client is told, in PostgreSQL's words.
    pub fn error(self) -> SqlError {
        let (state, message) = match self {
            Self::UserRequest => return SqlError::cancelled(),
            Self::StatementTimeout => (SqlState::CANCELED, "canceling statement due to statement timeout"),
            Self::Administrator => (SqlState::SHUTDOWN, "terminating connection due to administrator command"),
            Self::IdleInTransaction => {
                (SqlState::IDLE_IN_TRANSACTION_TIMEOUT, "terminating connection due to idle-in-transaction timeout")
            }
            Self::IdleSession => (SqlState::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout"),
            Self::TransactionTimeout => {
                (SqlState::TRANSACTION_TIMEOUT, "terminating connection due to transaction timeout")
            }
        };
        SqlError::new(state, message)
    }
}
