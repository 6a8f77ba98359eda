//! Errors of the layers below, as SQL errors.

use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use eris_engine::{EngineError, ForeignKeyError, ForeignKeyViolation, LogError, SequenceError};
use eris_operators::OperatorError;
use eris_platform::TempFileError;
use eris_storage::StorageError;

use crate::catalog::{Table, suggestions};
use crate::errors::{SqlError, SqlState, file_state};
use crate::pg_format::value_text;
use crate::plan::sentences::{known_refusal, known_sentence};

/// An error of the engine; `table` is the one that was written or read, for names in messages.
pub fn engine_error(error: &EngineError, table: Option<&Table>) -> SqlError {
    match error {
        EngineError::Storage(error) => storage_error(error, table),
        EngineError::Cancelled => SqlError::cancelled(),
        EngineError::Unserializable { reason } => SqlError::new(SqlState::SERIALIZATION_FAILURE, error.to_string())
            .detail(*reason)
            .hint("The transaction might succeed if retried."),
        EngineError::ReadOnly => SqlError::new(SqlState::READ_ONLY_TRANSACTION, error.to_string()),
        EngineError::Deadlock => SqlError::new(SqlState::DEADLOCK_DETECTED, error.to_string())
            .hint("The transaction might succeed if retried."),
        EngineError::LockTimeout => {
            SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
        }
        EngineError::LockNotAvailable => SqlError::new(SqlState::LOCK_NOT_AVAILABLE, error.to_string()),
        EngineError::TableLockNotAvailable(_) => {
            let name = table.map_or_else(
                || error.to_string(),
                |table| format!("could not obtain lock on relation \"{}\"", table.name),
            );
            SqlError::new(SqlState::LOCK_NOT_AVAILABLE, name)
        }
        EngineError::ContainerReplaced(_) => {
            SqlError::serialization().detail("A table was truncated or dropped after the transaction's snapshot.")
        }
        EngineError::SnapshotTooOld => SqlError::snapshot_too_old(),
        EngineError::TooManyStatements => SqlError::new(SqlState::LIMIT_EXCEEDED, error.to_string()),
        EngineError::NoSuchSavepoint => SqlError::new(SqlState::NO_SUCH_SAVEPOINT, error.to_string()),
        EngineError::ForeignKeyViolation(violation) => foreign_key_violation(violation),
        EngineError::ForeignKey(error) => foreign_key_error(error),
        EngineError::Sequence(error) => sequence_error(error),
        EngineError::Log(error) => log_error(error),
        EngineError::Memory(error) => SqlError::out_of_memory(error),
        EngineError::NoSuchContainer(_) | EngineError::SchemaMoved => SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "the table was changed or dropped while the statement was running",
        ),
        EngineError::OperatorPanicked(what) => SqlError::internal(what),
        EngineError::Start(what) => SqlError::internal(what),
        EngineError::ShuttingDown => {
            SqlError::new(SqlState::SHUTDOWN, "terminating connection due to administrator command")
        }
        EngineError::Foreign(source) => {
            if let Some(error) = source.downcast_ref::<OperatorError>() {
                operator_error(error)
            } else if let Some(error) = source.downcast_ref::<SqlError>() {
                error.clone()
            } else {
                SqlError::internal(source)
            }
        }
    }
}

fn foreign_key_violation(violation: &ForeignKeyViolation) -> SqlError {
    let detail = violation.detail_with(|value| value_text(value).unwrap_or_else(|| "null".to_string()));
    SqlError::new(SqlState::FOREIGN_KEY, violation.to_string()).detail(detail)
}

/// A foreign key that cannot be made, or stands in the way.
fn foreign_key_error(error: &ForeignKeyError) -> SqlError {
    let state = match error {
        ForeignKeyError::DifferentNumbers | ForeignKeyError::NoUniqueKey { .. } => SqlState::INVALID_FOREIGN_KEY,
        ForeignKeyError::DifferentTypes { .. } => SqlState::TYPE_MISMATCH,
        ForeignKeyError::NoSuchAttribute { .. } => SqlState::NO_SUCH_COLUMN,
        ForeignKeyError::Exists { .. } => SqlState::DUPLICATE_OBJECT,
        ForeignKeyError::NoSuchConstraint { .. } => SqlState::NO_SUCH_OBJECT,
        ForeignKeyError::Referenced { .. } => SqlState::DEPENDENT_OBJECTS,
    };
    SqlError::new(state, error.to_string())
}

/// What a sequence refuses.
fn sequence_error(error: &SequenceError) -> SqlError {
    let state = match error {
        SequenceError::Exhausted { .. } => SqlState::SEQUENCE_EXHAUSTED,
        SequenceError::OutOfBounds { .. } => SqlState::OUT_OF_RANGE,
        SequenceError::Invalid(_) => SqlState::INVALID_PARAMETER_VALUE,
        SequenceError::NoSuchSequence(_) => SqlState::NO_SUCH_TABLE,
        SequenceError::Log(error) => return log_error(error),
    };
    SqlError::new(state, error.to_string())
}

/// A log that does not take a commit.
fn log_error(error: &LogError) -> SqlError {
    let text = error.to_string();
    match error {
        LogError::Full { .. } => SqlError::new(SqlState::DISK_FULL, text)
            .hint("The transaction was rolled back. Make room on the disk of the database, then run it again."),
        LogError::Failed { is_over: false, .. } => SqlError::new(SqlState::IO_ERROR, text)
            .hint("The transaction was rolled back. See to the disk of the database, then run it again."),
        LogError::Failed { is_over: true, .. } => SqlError::new(SqlState::IO_ERROR, text).hint(
            "Whether commits under way are durable is known when the database is opened again: see to the disk, then \
             restart the server.",
        ),
        LogError::TooLong { .. } => {
            SqlError::new(SqlState::LIMIT_EXCEEDED, text).hint("Write less in one transaction, or load in bulk.")
        }
    }
}

/// An error of a partition.
pub fn storage_error(error: &StorageError, table: Option<&Table>) -> SqlError {
    match error {
        StorageError::DuplicateKey { index_name, key, .. } => {
            let names: Vec<&str> = key.iter().map(|(name, _)| &**name).collect();
            let values: Vec<String> =
                key.iter().map(|(_, value)| value_text(value).unwrap_or_else(|| "null".to_string())).collect();
            SqlError::new(SqlState::UNIQUE, format!("duplicate key value violates unique constraint \"{index_name}\""))
                .detail(format!("Key ({})=({}) already exists.", names.join(", "), values.join(", ")))
        }
        StorageError::NotNull { name, .. } => SqlError::not_null(name, table.map_or("?", |table| &table.name)),
        StorageError::Conflict { .. } => SqlError::serialization(),
        StorageError::Memory(error) => SqlError::out_of_memory(error),
        StorageError::RowTooLarge { .. } => SqlError::new(SqlState::LIMIT_EXCEEDED, error.to_string()),
        StorageError::Layout { .. } => SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()),
        StorageError::SchemaMoved | StorageError::Busy { .. } => {
            SqlError::new(SqlState::SERIALIZATION_FAILURE, error.to_string())
        }
        StorageError::InvalidRequest { .. } | StorageError::Corrupted { .. } | StorageError::Foreign { .. } => {
            SqlError::internal(error)
        }
    }
}

/// An error of a micro-operator.
pub fn operator_error(error: &OperatorError) -> SqlError {
    match error {
        OperatorError::DivisionByZero => SqlError::division_by_zero(),
        OperatorError::Overflow { type_name } => SqlError::out_of_range(type_name),
        OperatorError::DateOverflow => SqlError::new(SqlState::DATETIME_OVERFLOW, error.to_string()),
        OperatorError::NotPositive { function } => {
            let state = if *function == "ntile" { SqlState::INVALID_NTILE } else { SqlState::INVALID_NTH_VALUE };
            SqlError::new(state, error.to_string())
        }
        OperatorError::Memory(error) => SqlError::out_of_memory(error),
        OperatorError::TempFile(error) => temp_file_error(error),
        OperatorError::Cancelled => SqlError::cancelled(),
        OperatorError::Foreign(source) => {
            source.downcast_ref::<SqlError>().cloned().unwrap_or_else(|| SqlError::internal(source))
        }
        OperatorError::Internal(what) => SqlError::internal(what),
    }
}

/// An error of a temporary file: the statement fails, and nothing else does.
fn temp_file_error(error: &TempFileError) -> SqlError {
    let text = error.to_string();
    match error {
        TempFileError::Limit { .. } => SqlError::new(SqlState::CONFIGURATION_LIMIT, text)
            .hint("Raise temp_file_limit, work_mem or --memory-limit, or reduce what is sorted, grouped or joined."),
        TempFileError::Full { .. } => SqlError::new(SqlState::DISK_FULL, text).hint(
            "Make room on that disk and let the server write large files (ulimit -f), choose another one with \
             --temp-dir, or give the database more memory with --memory-limit.",
        ),
        TempFileError::Io { os_error: Some(code), .. } => {
            let state = file_state(&io::Error::from_raw_os_error(*code));
            SqlError::new(state, text).hint(temp_file_hint(state))
        }
        TempFileError::Io { os_error: None, .. } | TempFileError::Short { .. } => {
            SqlError::new(SqlState::IO_ERROR, text).hint(temp_file_hint(SqlState::IO_ERROR))
        }
        TempFileError::Damaged { .. } => SqlError::new(SqlState::CORRUPTED, text)
            .hint("That disk gives other bytes than were written to it: choose another one with --temp-dir."),
    }
}

/// What helps when the system refuses a temporary file with an error of this state.
fn temp_file_hint(state: SqlState) -> &'static str {
    match state {
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "Let the user who runs the server write to that directory, or choose another one with --temp-dir."
        }
        SqlState::NO_SUCH_FILE => "Make the directory that it is in again, or choose another one with --temp-dir.",
        SqlState::WRONG_OBJECT => "Choose a directory with --temp-dir.",
        SqlState::INSUFFICIENT_RESOURCES => {
            "Run fewer statements at once, or let the server have more descriptors and threads (ulimit -n and -u)."
        }
        _ => "See to that disk, or choose another one with --temp-dir; then run the statement again.",
    }
}

/// An error of an Arrow kernel.
pub fn arrow_error(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::division_by_zero(),
        ArrowError::ArithmeticOverflow(_) => overflow(&error.to_string()),
        ArrowError::ExternalError(source) => match source.downcast_ref::<DataFusionError>() {
            Some(error) => datafusion_error(error),
            None => source.downcast_ref::<SqlError>().cloned().unwrap_or_else(|| SqlError::internal(source)),
        },
        ArrowError::MemoryError(what) => SqlError::out_of_memory(what),
        ArrowError::CastError(text) | ArrowError::ParseError(text) => cast_error(text),
        ArrowError::InvalidArgumentError(text) if text.contains("to store in a Decimal") => overflow(text),
        ArrowError::ComputeError(text) if text.contains("overflow") => overflow(text),
        ArrowError::InvalidArgumentError(text) | ArrowError::ComputeError(text) => {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, text.clone())
        }
        ArrowError::NotYetImplemented(what) => SqlError::unsupported(what, "Rewrite the expression."),
        other => SqlError::internal(other),
    }
}

fn overflow(text: &str) -> SqlError {
    let type_name = match text {
        text if text.contains("Decimal") => "numeric",
        text if text.contains("Int16") => "smallint",
        text if text.contains("Int32") => "integer",
        text if text.contains("Date") => "date",
        text if text.contains("imestamp") => "timestamp",
        // Arrow multiplies days by the microseconds of one.
        text if text.contains("86400000000") => "timestamp",
        _ => "bigint",
    };
    if matches!(type_name, "date" | "timestamp") {
        return SqlError::new(SqlState::DATETIME_OVERFLOW, format!("{type_name} out of range"));
    }
    SqlError::out_of_range(type_name).detail(text.to_string())
}

/// Arrow's `Cannot cast string 'x' to value of Int32 type` and its relatives, in PostgreSQL's words.
fn cast_error(text: &str) -> SqlError {
    let quoted = text.split('\'').nth(1);
    let type_name = [
        ("Int16", "smallint"),
        ("Int32", "integer"),
        ("Int64", "bigint"),
        ("Float32", "real"),
        ("Float64", "double precision"),
        ("Decimal", "numeric"),
        ("decimal", "numeric"),
        ("Boolean", "boolean"),
        ("Date32", "date"),
        ("Timestamp", "timestamp"),
        ("timestamp", "timestamp"),
        ("nterval", "interval"),
    ]
    .into_iter()
    .find(|(arrow, _)| text.contains(arrow))
    .map_or("value", |(_, sql)| sql);
    match quoted {
        Some(value) if text.contains("string") || text.contains("parsing") || text.contains("Parser") => {
            if matches!(type_name, "date" | "timestamp" | "interval") {
                SqlError::new(
                    SqlState::INVALID_DATETIME,
                    format!("invalid input syntax for type {type_name}: \"{value}\""),
                )
            } else {
                SqlError::invalid_text(type_name, value)
            }
        }
        _ if text.contains("an't cast value") || text.contains("overflow") || text.contains("out of range") => {
            SqlError::out_of_range(type_name).detail(text.to_string())
        }
        _ if text.contains("type interval") => SqlError::new(SqlState::INVALID_DATETIME, text.to_string()),
        _ => SqlError::new(SqlState::INVALID_TEXT, text.to_string()),
    }
}

/// An error of DataFusion.
pub fn datafusion_error(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::ArrowError(error, _) => arrow_error(error),
        DataFusionError::SchemaError(error, _) => schema_error(error),
        DataFusionError::External(source) => {
            if let Some(error) = source.downcast_ref::<SqlError>() {
                error.clone()
            } else if let Some(error) = source.downcast_ref::<DataFusionError>() {
                datafusion_error(error)
            } else if let Some(error) = source.downcast_ref::<ArrowError>() {
                arrow_error(error)
            } else {
                SqlError::internal(source)
            }
        }
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => datafusion_error(inner),
        DataFusionError::Shared(inner) => datafusion_error(inner),
        DataFusionError::Collection(list) => {
            list.first().map_or_else(|| SqlError::internal("an empty list of errors"), datafusion_error)
        }
        DataFusionError::NotImplemented(text) => {
            known_refusal(text).unwrap_or_else(|| SqlError::unsupported(text, "Rewrite the statement."))
        }
        DataFusionError::ResourcesExhausted(text) => SqlError::out_of_memory(text),
        DataFusionError::Plan(text) => plan_error(text),
        DataFusionError::SQL(error, _) => SqlError::new(SqlState::SYNTAX, error.to_string()),
        DataFusionError::Execution(text) => execution_error(text),
        DataFusionError::ExecutionJoin(error) if error.is_cancelled() => SqlError::cancelled(),
        other => SqlError::internal(other),
    }
}

fn schema_error(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::AmbiguousReference { field } => {
            SqlError::new(SqlState::AMBIGUOUS_COLUMN, format!("column reference \"{}\" is ambiguous", field.name))
                .about(&[&field.name])
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::new(SqlState::DUPLICATE_ALIAS, format!("name \"{name}\" specified more than once"))
        }
        SchemaError::FieldNotFound { field, valid_fields } => {
            let known: Vec<&str> = valid_fields.iter().map(|field| field.name.as_str()).collect();
            let close = suggestions(&field.name, known);
            if let Some(relation) = &field.relation {
                let relations: Vec<String> =
                    valid_fields.iter().filter_map(|field| Some(field.relation.as_ref()?.to_string())).collect();
                if !relations.contains(&relation.to_string()) {
                    let error = SqlError::new(
                        SqlState::NO_SUCH_TABLE,
                        format!("missing FROM-clause entry for table \"{relation}\""),
                    )
                    .about(&[relation.table()]);
                    let close = suggestions(relation.table(), relations.iter().map(String::as_str));
                    return match close.first() {
                        Some(close) => error.hint(format!("Perhaps you meant the table \"{close}\".")),
                        None => error,
                    };
                }
                let mut error = SqlError::no_such_column(&field.name, None, &close);
                error.message = format!("column {relation}.{} does not exist", field.name);
                return error.about(&[relation.table(), &field.name]);
            }
            SqlError::no_such_column(&field.name, None, &close)
        }
    }
}

/// Planning errors come as sentences; the ones people meet are recognised by them.
fn plan_error(text: &str) -> SqlError {
    let text = text.trim();
    if let Some(error) = known_sentence(text) {
        return error;
    }
    let lower = text.to_lowercase();
    if let Some(error) = subquery_error(&lower) {
        return error;
    }
    let state = if lower.contains("invalid function") || lower.contains("function not found") {
        let name = text.split('\'').nth(1).unwrap_or("?");
        let close = text.split("Did you mean '").nth(1).and_then(|rest| rest.split('\'').next());
        if ["to_char", "to_date", "to_timestamp"].contains(&name) {
            return SqlError::unsupported(format!("function {name}"), "Cast, or use extract() and date_trunc().");
        }
        let error = SqlError::new(SqlState::NO_SUCH_FUNCTION, format!("function {name} does not exist")).about(&[name]);
        return match close {
            Some(close) => error.hint(format!("Perhaps you meant \"{close}\".")),
            None => error,
        };
    } else if lower.contains("no function matches")
        || lower.contains("failed to coerce arguments")
        || lower.contains("error during planning: ") && lower.contains("signature")
        || lower.contains("candidate functions")
    {
        SqlState::NO_SUCH_FUNCTION
    } else if let Some(missing) = missing_operator(text) {
        return missing;
    } else if lower.contains("non-boolean predicate") {
        return SqlError::new(SqlState::TYPE_MISMATCH, "argument of WHERE must be type boolean")
            .detail(first_sentence(text));
    } else if lower.starts_with("limit must be") {
        return SqlError::new(SqlState::NEGATIVE_LIMIT, "LIMIT must not be negative");
    } else if lower.starts_with("offset must be") {
        return SqlError::new(SqlState::NEGATIVE_OFFSET, "OFFSET must not be negative");
    } else if lower.contains("cannot coerce")
        || lower.contains("cannot infer common")
        || lower.contains("type mismatch")
        || lower.contains("not supported for type")
        || lower.contains("incompatible")
        || lower.contains("requires a boolean expression")
        || lower.contains("cannot get result type")
    {
        SqlState::TYPE_MISMATCH
    } else if lower.contains("group by") || lower.contains("aggregate") {
        SqlState::GROUPING
    } else if lower.contains("unique expression names") || lower.contains("ambiguous") {
        SqlState::AMBIGUOUS_COLUMN
    } else {
        SqlState::SYNTAX
    };
    SqlError::new(state, first_sentence(text))
}

/// What DataFusion says about subqueries that it has no plan for, or that are none.
fn subquery_error(lower: &str) -> Option<SqlError> {
    if lower.contains("should only return one column") || lower.contains("single expression required") {
        return Some(SqlError::new(SqlState::SYNTAX, "subquery must return only one column"));
    }
    let unplanned = [
        "subquery can only be used in",
        "correlated scalar subquery",
        "scalar correlated subquery",
        "outer reference columns is not allowed",
        "unsupported subquery plan",
        "correlated column",
    ];
    unplanned.iter().any(|known| lower.contains(known)).then(|| {
        SqlError::unsupported(
            "a subquery that refers to columns outside in this way",
            "Write a join with an aggregate.",
        )
    })
}

/// "Cannot coerce arithmetic expression Boolean + Int64 to valid types" and its relatives, in PostgreSQL's words.
fn missing_operator(text: &str) -> Option<SqlError> {
    let heads = [
        "Cannot coerce arithmetic expression ",
        "Cannot infer common argument type for comparison operation ",
        "Cannot infer common argument type for logical boolean operation ",
        "Cannot infer common string type for string concat operation ",
        "Cannot infer common argument type for regex operation ",
        "Cannot infer common type for bitwise operation ",
        "Invalid comparison operation: ",
    ];
    let (_, rest) = heads.iter().find_map(|head| text.split_once(head))?;
    let rest = first_sentence(rest);
    let rest = rest.strip_suffix(" to valid types").unwrap_or(&rest);
    // The operator is the one word that is no part of a type's name.
    let words: Vec<&str> = rest.split(' ').collect();
    let is_operator = |word: &&str| !word.is_empty() && word.chars().all(|c| "+-*/%=<>!~|&#^".contains(c));
    let at = words.iter().position(|word| is_operator(word) || ["AND", "OR"].contains(word))?;
    let name = |words: &[&str]| sql_name_of(&words.join(" "));
    if ["AND", "OR"].contains(&words[at]) {
        let wrong = [name(&words[..at]), name(&words[at + 1..])].into_iter().find(|name| name != "boolean");
        let message = format!("argument of {} must be type boolean, not type {}", words[at], wrong.unwrap_or_default());
        return Some(SqlError::new(SqlState::TYPE_MISMATCH, message));
    }
    let message = format!("operator does not exist: {} {} {}", name(&words[..at]), words[at], name(&words[at + 1..]));
    Some(
        SqlError::new(SqlState::NO_SUCH_FUNCTION, message)
            .hint("No operator matches the given argument types. You might need to add explicit type casts."),
    )
}

/// What SQL calls one of Arrow's types.
fn sql_name_of(arrow: &str) -> String {
    let known = [
        ("Boolean", "boolean"),
        ("Int16", "smallint"),
        ("Int32", "integer"),
        ("Int64", "bigint"),
        ("Float32", "real"),
        ("Float64", "double precision"),
        ("Decimal", "numeric"),
        ("Utf8", "text"),
        ("Date32", "date"),
        ("Timestamp", "timestamp"),
        ("Interval", "interval"),
        ("Binary", "bytea"),
    ];
    match known.iter().find(|(name, _)| arrow.starts_with(name)) {
        Some((_, sql)) => (*sql).to_string(),
        None => arrow.to_string(),
    }
}

fn first_sentence(text: &str) -> String {
    text.lines().next().unwrap_or(text).to_string()
}

fn execution_error(text: &str) -> SqlError {
    let lower = text.to_lowercase();
    if lower.contains("more than one row") {
        SqlError::new(SqlState::CARDINALITY_VIOLATION, "more than one row returned by a subquery used as an expression")
    } else if lower.contains("divide by zero") || lower.contains("division by zero") {
        SqlError::division_by_zero()
    } else if lower.contains("overflow") || lower.contains("out of range") {
        overflow(text)
    } else if lower.contains("exceeds the representable") {
        SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range for timestamp")
    } else if lower.contains("does not support escape_char") {
        SqlError::unsupported("LIKE with another escape character", "Escape with a backslash.")
    } else if lower.contains("error parsing") || lower.contains("cannot cast string") {
        cast_error(text)
    } else {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, first_sentence(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_temporary_files_have_the_codes_of_postgres() {
        let of_system = |code| TempFileError::Io {
            action: "create",
            directory: "/temp".into(),
            reason: io::Error::from_raw_os_error(code).to_string(),
            os_error: Some(code),
        };
        let directory = || "/temp".into();
        for (error, state) in [
            (of_system(libc::EACCES), "42501"),
            (of_system(libc::EPERM), "42501"),
            (of_system(libc::EROFS), "42501"),
            (of_system(libc::EMFILE), "53000"),
            (of_system(libc::ENFILE), "53000"),
            (of_system(libc::EAGAIN), "53000"),
            (of_system(libc::ENOENT), "58P01"),
            (of_system(libc::ENOTDIR), "42809"),
            (of_system(libc::EIO), "58030"),
            (of_system(libc::ESTALE), "58030"),
            (
                TempFileError::Io { action: "use", directory: directory(), reason: String::new(), os_error: None },
                "58030",
            ),
            (TempFileError::Short { directory: directory() }, "58030"),
            (TempFileError::Limit { limit_bytes: 0 }, "53400"),
            (TempFileError::Full { directory: directory(), reason: String::new() }, "53100"),
            (TempFileError::Damaged { directory: directory(), reason: String::new() }, "XX001"),
        ] {
            let told = temp_file_error(&error);
            assert_eq!(told.sqlstate.as_str(), state, "{error:?}");
            assert!(told.hint.is_some(), "{error:?}");
        }
    }
}
