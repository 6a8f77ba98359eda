//! What a client is told when something goes wrong, or is worth knowing: severity, SQLSTATE, text, and where.

use std::fmt;

/// A five-character SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    pub const WARNING: SqlState = SqlState(*b"01000");
    pub const PROTOCOL_VIOLATION: SqlState = SqlState(*b"08P01");
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState(*b"0A000");
    pub const INVALID_PARAMETER_VALUE: SqlState = SqlState(*b"22023");
    pub const CHARACTER_NOT_IN_REPERTOIRE: SqlState = SqlState(*b"22021");
    pub const IN_FAILED_TRANSACTION: SqlState = SqlState(*b"25P02");
    pub const INVALID_STATEMENT_NAME: SqlState = SqlState(*b"26000");
    pub const INVALID_AUTHORIZATION: SqlState = SqlState(*b"28000");
    pub const INVALID_CURSOR_NAME: SqlState = SqlState(*b"34000");
    pub const INVALID_CATALOG_NAME: SqlState = SqlState(*b"3D000");
    pub const SYNTAX_ERROR: SqlState = SqlState(*b"42601");
    pub const UNDEFINED_PARAMETER: SqlState = SqlState(*b"42P02");
    pub const DUPLICATE_CURSOR: SqlState = SqlState(*b"42P03");
    pub const DUPLICATE_PREPARED_STATEMENT: SqlState = SqlState(*b"42P05");
    pub const OUT_OF_MEMORY: SqlState = SqlState(*b"53200");
    pub const TOO_MANY_CONNECTIONS: SqlState = SqlState(*b"53300");
    pub const PROGRAM_LIMIT_EXCEEDED: SqlState = SqlState(*b"54000");
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: SqlState = SqlState(*b"55000");
    pub const QUERY_CANCELED: SqlState = SqlState(*b"57014");
    pub const ADMIN_SHUTDOWN: SqlState = SqlState(*b"57P01");
    pub const INTERNAL_ERROR: SqlState = SqlState(*b"XX000");

    /// The code from its text; anything that is not five ASCII letters or digits is an internal error.
    pub fn new(code: &str) -> SqlState {
        match <[u8; 5]>::try_from(code.as_bytes()) {
            Ok(bytes) if bytes.iter().all(u8::is_ascii_alphanumeric) => SqlState(bytes),
            _ => SqlState::INTERNAL_ERROR,
        }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How bad it is. `Fatal` ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Fatal,
    Error,
    Warning,
    Notice,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Fatal => "FATAL",
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// The content of an `ErrorResponse` or `NoticeResponse`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub severity: Severity,
    pub sqlstate: SqlState,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// Where in the statement's text, in characters, the first being 1.
    pub position: Option<usize>,
    /// What was going on: for COPY, line and column of the data.
    pub context: Option<String>,
}

impl Report {
    pub fn error(sqlstate: SqlState, message: impl Into<String>) -> Report {
        Report {
            severity: Severity::Error,
            sqlstate,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            context: None,
        }
    }

    pub fn fatal(sqlstate: SqlState, message: impl Into<String>) -> Report {
        Report { severity: Severity::Fatal, ..Report::error(sqlstate, message) }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Report {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Report {
        Report::error(SqlState::PROTOCOL_VIOLATION, message)
    }

    /// A statement that was cancelled on the client's demand.
    pub(crate) fn cancelled() -> Report {
        Report::error(SqlState::QUERY_CANCELED, "canceling statement due to user request")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.severity.as_str(), self.message, self.sqlstate.as_str())
    }
}
