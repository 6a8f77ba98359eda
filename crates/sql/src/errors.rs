//! The one error type of the SQL layer, and the one place where a cause gets its SQLSTATE and wording.
//!
//! Wording follows PostgreSQL where PostgreSQL has the case, because people search for it. Every refusal says what to
//! do instead, in `hint`.

use std::fmt;
use std::io;

use eris_platform::NotRegular;

pub use crate::sqlstate::SqlState;

/// What a client is told when a statement fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SqlError {
    /// The code clients branch on.
    pub sqlstate: SqlState,
    /// One sentence without a full stop.
    pub message: String,
    /// More about this case: the key, the row.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the statement's text, in characters from one.
    pub position: Option<usize>,
    /// What was going on: for COPY, line and column.
    pub context: Option<Box<str>>,
    /// The name that is wrong, part by part: what [`crate::front::locate`] looks for in the text.
    pub(crate) about: Option<Box<Name>>,
}

/// A name, part by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub Vec<String>);

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "; {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        if let Some(context) = &self.context {
            write!(f, " [{context}]")?;
        }
        write!(f, " [SQLSTATE {}]", self.sqlstate)
    }
}

impl SqlError {
    /// An error of this code.
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None, position: None, context: None, about: None }
    }

    /// What a snapshot saw may be gone.
    pub fn snapshot_too_old() -> Self {
        Self::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old")
            .detail("It was the oldest in use, and the old versions that were kept for it had too much memory.")
            .hint(
                "Run the transaction again, and end it sooner; or raise --old-version-memory-limit. eris.transactions \
                 shows who has which snapshot.",
            )
    }

    /// The same with a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with a place in the text, in characters from one.
    #[must_use]
    pub fn at(mut self, position: Option<usize>) -> Self {
        self.position = position;
        self
    }

    /// The same with what was going on.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into().into());
        self
    }

    /// The same with the name that it is about, part by part.
    #[must_use]
    pub(crate) fn about(mut self, parts: &[&str]) -> Self {
        self.about = Some(Box::new(Name(parts.iter().map(|part| (*part).to_string()).collect())));
        self
    }

    /// A clause that is understood but not built: 0A000 and what to do.
    pub fn unsupported(what: impl fmt::Display, hint: impl Into<String>) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported")).hint(hint)
    }

    /// Something in this layer that must not happen.
    pub fn internal(what: impl fmt::Display) -> Self {
        Self::new(SqlState::INTERNAL, format!("internal error: {what}"))
    }

    /// A syntax error in PostgreSQL's words.
    pub fn syntax(near: &str, position: Option<usize>) -> Self {
        let message = if near.is_empty() || near == "EOF" {
            "syntax error at end of input".to_string()
        } else {
            format!("syntax error at or near \"{near}\"")
        };
        Self::new(SqlState::SYNTAX, message).at(position)
    }

    /// 22P02: text that is not a value of the type.
    pub fn invalid_text(type_name: &str, text: &str) -> Self {
        Self::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type {type_name}: \"{text}\""))
    }

    /// 22003 for a type.
    pub fn out_of_range(type_name: &str) -> Self {
        Self::new(SqlState::OUT_OF_RANGE, format!("{type_name} out of range"))
    }

    /// 22003 for a numeric that does not fit its precision.
    pub fn numeric_overflow(precision: u8, scale: u8) -> Self {
        Self::new(SqlState::OUT_OF_RANGE, "numeric field overflow").detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than {}.",
            if precision == scale { "1".to_string() } else { format!("10^{}", precision - scale) }
        ))
    }

    /// 22012.
    pub fn division_by_zero() -> Self {
        Self::new(SqlState::DIVISION_BY_ZERO, "division by zero")
    }

    /// 57014.
    pub fn cancelled() -> Self {
        Self::new(SqlState::CANCELED, "canceling statement due to user request")
    }

    /// 40001.
    pub fn serialization() -> Self {
        Self::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
            .hint("The transaction might succeed if retried.")
    }

    /// 25P02.
    pub fn failed_transaction() -> Self {
        Self::new(
            SqlState::FAILED_TRANSACTION,
            "current transaction is aborted, commands ignored until end of transaction block",
        )
    }

    /// 42P01 with suggestions.
    pub fn no_such_table(name: &str, suggestions: &[String]) -> Self {
        let error = Self::new(SqlState::NO_SUCH_TABLE, format!("relation \"{name}\" does not exist")).about(&[name]);
        match suggest(suggestions) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// 42703 with suggestions.
    pub fn no_such_column(name: &str, relation: Option<&str>, suggestions: &[String]) -> Self {
        let message = match relation {
            Some(relation) => format!("column \"{name}\" of relation \"{relation}\" does not exist"),
            None => format!("column \"{name}\" does not exist"),
        };
        let error = Self::new(SqlState::NO_SUCH_COLUMN, message).about(&[name]);
        match suggest(suggestions) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// 23502.
    pub fn not_null(column: &str, relation: &str) -> Self {
        Self::new(
            SqlState::NOT_NULL,
            format!("null value in column \"{column}\" of relation \"{relation}\" violates not-null constraint"),
        )
    }

    /// 53200, naming who asked.
    pub fn out_of_memory(what: impl fmt::Display) -> Self {
        Self::new(SqlState::OUT_OF_MEMORY, "out of memory")
            .detail(what.to_string())
            .hint("Raise --memory-limit, or reduce what the statement holds at once.")
    }

    /// True if the same statement may succeed when it is run again.
    pub fn is_retryable(&self) -> bool {
        [SqlState::SERIALIZATION_FAILURE, SqlState::DEADLOCK_DETECTED].contains(&self.sqlstate)
    }
}

fn suggest(names: &[String]) -> Option<String> {
    match names {
        [] => None,
        [one] => Some(format!("Perhaps you meant \"{one}\".")),
        [head @ .., last] => {
            let head: Vec<String> = head.iter().map(|name| format!("\"{name}\"")).collect();
            Some(format!("Perhaps you meant {} or \"{last}\".", head.join(", ")))
        }
    }
}

/// PostgreSQL's SQLSTATE for an error of the system about a file.
pub(crate) fn file_state(error: &io::Error) -> SqlState {
    if NotRegular::is(error) {
        return SqlState::WRONG_OBJECT;
    }
    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN)) {
        return SqlState::INSUFFICIENT_RESOURCES;
    }
    match error.kind() {
        io::ErrorKind::NotFound => SqlState::NO_SUCH_FILE,
        io::ErrorKind::AlreadyExists => SqlState::DUPLICATE_FILE,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => SqlState::INSUFFICIENT_PRIVILEGE,
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => SqlState::WRONG_OBJECT,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => SqlState::DISK_FULL,
        _ => SqlState::IO_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_the_codes_of_postgres() {
        for (code, state) in [
            (libc::ENOENT, SqlState::NO_SUCH_FILE),
            (libc::EEXIST, SqlState::DUPLICATE_FILE),
            (libc::EACCES, SqlState::INSUFFICIENT_PRIVILEGE),
            (libc::EPERM, SqlState::INSUFFICIENT_PRIVILEGE),
            (libc::EROFS, SqlState::INSUFFICIENT_PRIVILEGE),
            (libc::EISDIR, SqlState::WRONG_OBJECT),
            (libc::ENOTDIR, SqlState::WRONG_OBJECT),
            (libc::ENOSPC, SqlState::DISK_FULL),
            (libc::EDQUOT, SqlState::DISK_FULL),
            (libc::EFBIG, SqlState::DISK_FULL),
            (libc::EMFILE, SqlState::INSUFFICIENT_RESOURCES),
            (libc::ENFILE, SqlState::INSUFFICIENT_RESOURCES),
            (libc::EAGAIN, SqlState::INSUFFICIENT_RESOURCES),
            (libc::EIO, SqlState::IO_ERROR),
            (libc::ELOOP, SqlState::IO_ERROR),
        ] {
            assert_eq!(file_state(&io::Error::from_raw_os_error(code)), state, "{code}");
        }
        let fifo = io::Error::from(NotRegular(eris_platform::FileKind::Fifo));
        assert_eq!(file_state(&fifo), SqlState::WRONG_OBJECT);
    }
}
