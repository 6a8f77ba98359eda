//! The settings that say how transactions begin, and the words for their values.

use eris_engine::IsolationLevel;

/// The level of transactions that are told none.
pub const DEFAULT_ISOLATION: &str = "default_transaction_isolation";
/// The level of the open transaction.
pub const TRANSACTION_ISOLATION: &str = "transaction_isolation";
/// Whether transactions that are told nothing of it may write.
pub const DEFAULT_READ_ONLY: &str = "default_transaction_read_only";
/// The same of the open transaction.
pub const TRANSACTION_READ_ONLY: &str = "transaction_read_only";
/// The levels by their names.
pub const LEVELS: &str = "serializable, repeatable read, read committed, read uncommitted";

/// The level in effect where this one is asked for.
pub fn level_named(name: &str) -> Option<IsolationLevel> {
    let is = |level: &str| name.trim().eq_ignore_ascii_case(level);
    if is("serializable") {
        return Some(IsolationLevel::Serializable);
    }
    let snapshot = ["repeatable read", "read committed", "read uncommitted"].into_iter().any(is);
    snapshot.then_some(IsolationLevel::RepeatableRead)
}

/// The name of a level in effect.
pub fn level_name(level: IsolationLevel) -> &'static str {
    match level {
        IsolationLevel::Serializable => "serializable",
        IsolationLevel::RepeatableRead | IsolationLevel::ReadCommitted => "repeatable read",
    }
}

/// A truth value as PostgreSQL's clients write it.
pub fn truth_named(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// As it is shown.
pub fn truth_name(truth: bool) -> &'static str {
    if truth { "on" } else { "off" }
}
