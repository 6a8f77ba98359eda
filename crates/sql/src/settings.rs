//! The settings of a session: those this crate obeys, and those PostgreSQL's clients ask for.
//!
//! A setting of the second kind may be set only to what is in effect anyway (`client_encoding = 'UTF8'`), or to
//! something that changes nothing but what is shown (`application_name`). Everything else is refused: a client that
//! sets `TimeZone` to something believes it.

mod modes;

use std::borrow::Cow;
use std::time::Duration;

use eris_engine::{Durability, IsolationLevel};
use eris_operators::{AggregationInput, SpillOptions};
use eris_platform::settings::{ByteSize, Scope, SettingDeclaration, SettingError, SettingKind, SettingValues, Timeout};
use eris_storage::{Layout, SEGMENT_ROWS_DEFAULT};

use crate::errors::{SqlError, SqlState};
use crate::front::{BOUNDS_DEFAULT, BOUNDS_MAX, Bounds};

pub use modes::{
    DEFAULT_ISOLATION, DEFAULT_READ_ONLY, LEVELS, TRANSACTION_ISOLATION, TRANSACTION_READ_ONLY, level_name,
    level_named, truth_name, truth_named,
};

eris_platform::settings! {
    /// The settings of the SQL layer.
    pub static SETTINGS;

    /// How rows of new tables are stored: default (open segments as rows, sealed ones as columns), row, column, or
    /// mixed (both, segment by segment).
    pub const LAYOUT: Choice = {
        name: "layout", scope: Session, default: "default", choices: ["default", "row", "column", "mixed"],
    };
    /// Living partitions a new table starts with; 0 starts with one and splits by size.
    pub const PARTITIONS: i64 = { name: "partitions", scope: Session, default: 0, min: 0, max: 65_536 };
    /// Rows of a segment of new tables.
    pub const SEGMENT_ROWS: i64 = {
        name: "segment_rows", scope: Session, default: SEGMENT_ROWS_DEFAULT as i64, min: 8, max: 65_536,
    };
    /// Whether plans that are not native may run on DataFusion's operators; otherwise they are refused.
    pub const FALLBACK: bool = { name: "fallback", scope: Session, default: true };
    /// Whether plans may run on our own operators; otherwise every query runs on DataFusion's, to compare the two.
    pub const NATIVE: bool = { name: "native", scope: Session, default: true };
    /// Whether statements that ERIS's own binder understands are bound by it; otherwise DataFusion binds every
    /// statement, to compare the two.
    pub const OWN_BINDER: bool = { name: "own_binder", scope: Session, default: true };
    /// Workers that the operators of one statement keep busy at the same time at most; 0: all. Plans of the fallback
    /// lane have threads of their own.
    pub const PARALLELISM: i64 = { name: "parallelism", scope: Session, default: 0, min: 0, max: 4_096 };
    /// Whether a commit is told once it is on disk, or, with off, once it is visible: a crash may then lose the last
    /// ones. local, remote_write and remote_apply mean on. Without a directory nothing outlives the process.
    pub const SYNCHRONOUS_COMMIT: Choice = {
        name: "synchronous_commit", scope: Session, default: "on",
        choices: ["on", "off", "local", "remote_write", "remote_apply"],
    };
    /// An operator (sort, group) that holds more than this goes on in temporary files; 0: when the memory limit
    /// refuses more. A number without a unit is one of kB.
    pub const WORK_MEM: ByteSize = {
        name: "work_mem", scope: Session, default: ByteSize(0), min: ByteSize(0), max: ByteSize::MAX,
    };
    /// Bytes that the temporary files of one statement may have together; beyond, it fails. -1: what the disk has. A
    /// number without a unit is one of kB.
    pub const TEMP_FILE_LIMIT: ByteSize = {
        name: "temp_file_limit", scope: Session, default: ByteSize::MAX, min: ByteSize(0), max: ByteSize::MAX,
    };
    /// Memory that versions may have which only old snapshots see; beyond, the transaction with the oldest snapshot
    /// fails (72000), and no writer. 0: as much as there is. The server has --old-version-memory-limit for it.
    pub const OLD_VERSION_MEMORY_LIMIT: ByteSize = {
        name: "old_version_memory_limit", scope: Global, default: ByteSize(0), min: ByteSize(0), max: ByteSize::MAX,
    };
    /// How long a statement may take from when it is asked for to its last row; 0: for ever. The statement ends.
    pub const STATEMENT_TIMEOUT: Timeout = { name: "statement_timeout", scope: Session, default: Timeout::NEVER };
    /// How long a statement waits for each lock; 0: for ever. The statement ends.
    pub const LOCK_TIMEOUT: Timeout = { name: "lock_timeout", scope: Session, default: Timeout::NEVER };
    /// How long a long statement waits in all for memory that others hold, before it fails with 53200; 0: not at all.
    pub const MEMORY_WAIT_TIMEOUT: Timeout = {
        name: "memory_wait_timeout", scope: Session, default: Timeout(60_000),
    };
    /// How long a transaction may take; 0: for ever. The session ends.
    pub const TRANSACTION_TIMEOUT: Timeout = { name: "transaction_timeout", scope: Session, default: Timeout::NEVER };
    /// How long a session may wait for its client in a transaction block; 0: for ever. The session ends.
    pub const IDLE_IN_TRANSACTION_SESSION_TIMEOUT: Timeout = {
        name: "idle_in_transaction_session_timeout", scope: Session, default: Timeout::NEVER,
    };
    /// How long a session may wait for its client outside of transactions; 0: for ever. The session ends.
    pub const IDLE_SESSION_TIMEOUT: Timeout = {
        name: "idle_session_timeout", scope: Session, default: Timeout::NEVER,
    };
    /// How often a single statement outside of a transaction block is run again after a serialization failure.
    pub const RETRIES: i64 = { name: "retries", scope: Session, default: 100, min: 0, max: 1_000_000 };
    /// Bytes of a query text, which is one message; a longer one is refused by its header (54000).
    pub const TEXT_BYTES: ByteSize = {
        name: "max_text_bytes", scope: Session, default: ByteSize(BOUNDS_DEFAULT.text_bytes as u64),
        min: ByteSize(1_000), max: ByteSize(BOUNDS_MAX.text_bytes as u64),
    };
    /// Statements of a query text; more are refused before any runs (54000).
    pub const TEXT_STATEMENTS: i64 = {
        name: "max_text_statements", scope: Session, default: BOUNDS_DEFAULT.statements as i64,
        min: 1, max: BOUNDS_MAX.statements as i64,
    };
    /// Tokens of a statement (54000).
    pub const STATEMENT_TOKENS: i64 = {
        name: "max_statement_tokens", scope: Session, default: BOUNDS_DEFAULT.tokens as i64,
        min: 100, max: BOUNDS_MAX.tokens as i64,
    };
    /// Expressions and queries within each other (54001).
    pub const NESTING: i64 = {
        name: "max_nesting", scope: Session, default: BOUNDS_DEFAULT.nesting as i64,
        min: 10, max: BOUNDS_MAX.nesting as i64,
    };
    /// Items of a list: of IN, of VALUES, of a function's arguments (54000).
    pub const LIST_ITEMS: i64 = {
        name: "max_list_items", scope: Session, default: BOUNDS_DEFAULT.list_items as i64,
        min: 10, max: BOUNDS_MAX.list_items as i64,
    };
    /// Operators, calls and branches of one expression, AND and OR between its conditions aside (54001).
    pub const EXPRESSION_TERMS: i64 = {
        name: "max_expression_terms", scope: Session, default: BOUNDS_DEFAULT.expression_terms as i64,
        min: 10, max: BOUNDS_MAX.expression_terms as i64,
    };
    /// AND and OR of one condition; rows of an IN list count as many (54001).
    pub const CONDITIONS: i64 = {
        name: "max_conditions", scope: Session, default: BOUNDS_DEFAULT.conditions as i64,
        min: 10, max: BOUNDS_MAX.conditions as i64,
    };
    /// Tables and subqueries of a statement, those of WITH as often as they are named (54001).
    pub const RELATIONS: i64 = {
        name: "max_relations", scope: Session, default: BOUNDS_DEFAULT.relations as i64,
        min: 1, max: BOUNDS_MAX.relations as i64,
    };
    /// Columns of a select list and of a table (54011).
    pub const COLUMNS: i64 = {
        name: "max_columns", scope: Session, default: BOUNDS_DEFAULT.columns as i64,
        min: 1, max: BOUNDS_MAX.columns as i64,
    };
    /// Expressions and relations of a statement when everything that is written short is written out (54001).
    pub const PLAN_PARTS: i64 = {
        name: "max_plan_parts", scope: Session, default: BOUNDS_DEFAULT.plan_parts as i64,
        min: 100, max: BOUNDS_MAX.plan_parts as i64,
    };
}

/// All settings of a session that are ours: those of this crate, and those that the operators obey.
pub fn declarations() -> impl Iterator<Item = &'static SettingDeclaration> {
    SETTINGS.iter().chain(eris_operators::SETTINGS).copied()
}

/// The ways that a statement may take: our own binder where it can, and the native lane where it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    pub native: bool,
    pub fallback: bool,
    pub own_binder: bool,
}

impl Lanes {
    /// As a database is set up unless it says otherwise.
    pub const BOTH: Lanes = Lanes { native: true, fallback: true, own_binder: true };
}

/// What clients ask for and what is in effect. `fixed`: setting anything else is refused.
struct Compatibility {
    name: &'static str,
    value: &'static str,
    fixed: bool,
    /// Other spellings of the value in effect.
    same: &'static [&'static str],
    /// Values that are obeyed as well.
    others: &'static [&'static str],
}

const fn fixed(name: &'static str, value: &'static str, same: &'static [&'static str]) -> Compatibility {
    Compatibility { name, value, fixed: true, same, others: &[] }
}

/// The version that clients compare feature lists with.
pub const SERVER_VERSION: &str = "15.0";

const COMPATIBILITY: &[Compatibility] = &[
    Compatibility { name: "application_name", value: "", fixed: false, same: &[], others: &[] },
    fixed("bytea_output", "hex", &[]),
    fixed("client_encoding", "UTF8", &["utf-8", "unicode", "utf_8"]),
    // Nothing below ERROR is sent, so any level is obeyed.
    Compatibility { name: "client_min_messages", value: "notice", fixed: false, same: &[], others: &[] },
    fixed("datestyle", "ISO, MDY", &["iso", "iso, mdy", "iso,mdy", "iso, dmy", "iso, ymd"]),
    Compatibility {
        others: &["serializable"],
        ..fixed(DEFAULT_ISOLATION, "repeatable read", &["read committed", "read uncommitted"])
    },
    Compatibility { others: &["on"], ..fixed(DEFAULT_READ_ONLY, "off", &[]) },
    // Floats are always written with the digits that read back exactly, which is what 1 to 3 ask for.
    fixed("extra_float_digits", "1", &["2", "3"]),
    fixed("in_hot_standby", "off", &[]),
    fixed("integer_datetimes", "on", &[]),
    fixed("intervalstyle", "postgres", &[]),
    fixed("is_superuser", "on", &[]),
    fixed("max_identifier_length", "63", &[]),
    fixed("search_path", "public", &["\"$user\", public", "$user, public", "\"public\"", ""]),
    fixed("server_encoding", "UTF8", &[]),
    fixed("server_version", SERVER_VERSION, &[]),
    fixed("server_version_num", "150000", &[]),
    fixed("session_authorization", "eris", &[]),
    fixed("standard_conforming_strings", "on", &["true", "yes", "1"]),
    fixed("timezone", "UTC", &["etc/utc", "gmt", "0", "utc0"]),
    fixed(TRANSACTION_ISOLATION, "repeatable read", &["read committed", "read uncommitted"]),
    fixed(TRANSACTION_READ_ONLY, "off", &[]),
];

/// The settings of one session.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    defaults: SettingValues,
    own: SettingValues,
    shown: Vec<String>,
    shown_defaults: Vec<String>,
}

impl SessionSettings {
    /// Settings that start from these values of the database.
    pub fn new(defaults: SettingValues, application_name: &str) -> Self {
        let mut shown: Vec<String> = COMPATIBILITY.iter().map(|setting| setting.value.to_string()).collect();
        if let Some(at) = COMPATIBILITY.iter().position(|setting| setting.name == "application_name") {
            shown[at] = application_name.to_string();
        }
        Self { own: defaults.clone(), defaults, shown_defaults: shown.clone(), shown }
    }

    fn declaration(name: &str) -> Option<&'static SettingDeclaration> {
        declarations().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// SET name = text.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), SqlError> {
        // PostgreSQL takes the first for a truth value, too.
        let is_truth = [SYNCHRONOUS_COMMIT.declaration().name, DEFAULT_READ_ONLY].contains(&name);
        let text = match truth_named(text) {
            Some(truth) if is_truth => truth_name(truth),
            _ => text,
        };
        let text = &*with_postgres_unit(name, text);
        if let Some(declaration) = Self::declaration(name) {
            if declaration.scope != Scope::Session {
                return Err(SqlError::new(
                    SqlState::from_text("55P02").unwrap_or(SqlState::WRONG_STATE),
                    format!("parameter \"{name}\" cannot be changed after the server has started"),
                ));
            }
            return self.own.set_text(declaration, text).map_err(|error| refused(declaration, error));
        }
        let Some(at) = COMPATIBILITY.iter().position(|setting| setting.name == name) else {
            return Err(unknown(name));
        };
        let setting = &COMPATIBILITY[at];
        if !setting.fixed {
            self.shown[at] = text.to_string();
            return Ok(());
        }
        let wanted = text.trim().to_lowercase();
        let same = setting.value.eq_ignore_ascii_case(&wanted)
            || setting.same.iter().any(|spelling| spelling.eq_ignore_ascii_case(&wanted));
        if same {
            self.shown[at] = setting.value.to_string();
            return Ok(());
        }
        if setting.others.contains(&wanted.as_str()) {
            self.shown[at] = wanted;
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{text}\""),
        )
        .hint(match setting.others {
            [] => format!("It is always {}.", setting.value),
            others => format!("Available values: {}, {}.", setting.value, others.join(", ")),
        }))
    }

    /// Makes what is in effect what RESET goes back to: the connection asked for it at its start.
    pub fn keep_as_defaults(&mut self) {
        self.defaults.clone_from(&self.own);
        self.shown_defaults.clone_from(&self.shown);
    }

    /// RESET name, or all.
    pub fn reset(&mut self, name: Option<&str>) -> Result<(), SqlError> {
        match name {
            None => {
                self.own = self.defaults.clone();
                self.shown.clone_from(&self.shown_defaults);
            }
            Some(name) => {
                if let Some(declaration) = Self::declaration(name) {
                    self.own.set_text(declaration, &self.defaults.text(declaration)).map_err(SqlError::internal)?;
                } else if let Some(at) = COMPATIBILITY.iter().position(|setting| setting.name == name) {
                    self.shown[at].clone_from(&self.shown_defaults[at]);
                } else {
                    return Err(unknown(name));
                }
            }
        }
        Ok(())
    }

    /// SHOW name.
    pub fn show(&self, name: &str) -> Option<Cow<'_, str>> {
        match Self::declaration(name) {
            Some(declaration) => Some(Cow::Owned(self.own_text(declaration))),
            None => self.shown_as(name).map(Cow::Borrowed),
        }
    }

    fn own_text(&self, declaration: &SettingDeclaration) -> String {
        let is_unbounded =
            declaration.name == TEMP_FILE_LIMIT.declaration().name && self.own.get(TEMP_FILE_LIMIT) == ByteSize::MAX;
        if is_unbounded { UNBOUNDED.to_string() } else { self.own.text(declaration) }
    }

    /// What the operators of a statement may do with temporary files.
    pub fn spill_options(&self) -> SpillOptions {
        let (work_mem, limit) = (self.own.get(WORK_MEM), self.own.get(TEMP_FILE_LIMIT));
        SpillOptions {
            held_bytes_max: (work_mem.0 > 0).then_some(work_mem.0),
            file_bytes_max: (limit < ByteSize::MAX).then_some(limit.0),
        }
    }

    /// The value of a setting for PostgreSQL's clients.
    fn shown_as(&self, name: &str) -> Option<&str> {
        let mut settings = COMPATIBILITY.iter().zip(&self.shown);
        settings.find(|(setting, _)| setting.name.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// SHOW or 42704.
    pub fn show_or_refuse(&self, name: &str) -> Result<String, SqlError> {
        self.show(name).map(Cow::into_owned).ok_or_else(|| unknown(name))
    }

    /// All settings: name, value, description.
    pub fn all(&self) -> Vec<[String; 3]> {
        let mut list: Vec<[String; 3]> = declarations()
            .map(|setting| [setting.name.to_string(), self.own_text(setting), setting.description()])
            .chain(COMPATIBILITY.iter().zip(&self.shown).map(|(setting, value)| {
                [setting.name.to_string(), value.clone(), "For PostgreSQL's clients.".to_string()]
            }))
            .collect();
        list.sort();
        list
    }

    /// The layout for new tables.
    pub fn layout(&self) -> Layout {
        layout_of(self.own.get(LAYOUT).0)
    }

    /// Partitions for new tables, 0: by size.
    pub fn partitions(&self) -> usize {
        self.own.get(PARTITIONS) as usize
    }

    /// Rows of a segment for new tables.
    pub fn segment_rows(&self) -> u32 {
        self.own.get(SEGMENT_ROWS) as u32
    }

    /// The lanes that queries may take.
    pub fn lanes(&self) -> Lanes {
        let native = self.own.get(NATIVE);
        Lanes { native, fallback: self.own.get(FALLBACK), own_binder: native && self.own.get(OWN_BINDER) }
    }

    /// Workers that one statement keeps busy at most; none: all.
    pub fn parallelism(&self) -> Option<usize> {
        usize::try_from(self.own.get(PARALLELISM)).ok().filter(|workers| *workers > 0)
    }

    /// What aggregation works on.
    pub fn aggregation_input(&self) -> AggregationInput {
        AggregationInput::of(&self.own)
    }

    /// When commits are told.
    pub fn durability(&self) -> Durability {
        if self.own.get(SYNCHRONOUS_COMMIT).0 == "off" { Durability::Asynchronous } else { Durability::Synchronous }
    }

    /// The level of transactions that are told none.
    pub fn isolation_level(&self) -> IsolationLevel {
        self.shown_as(DEFAULT_ISOLATION).and_then(level_named).unwrap_or_default()
    }

    /// Whether transactions that are told nothing of it are read-only.
    pub fn read_only(&self) -> bool {
        self.shown_as(DEFAULT_READ_ONLY).and_then(truth_named).unwrap_or_default()
    }

    pub fn statement_timeout(&self) -> Timeout {
        self.own.get(STATEMENT_TIMEOUT)
    }

    /// How long to wait for memory; zero: not at all.
    pub fn memory_wait_timeout(&self) -> Duration {
        self.own.get(MEMORY_WAIT_TIMEOUT).duration().unwrap_or_default()
    }

    pub fn transaction_timeout(&self) -> Timeout {
        self.own.get(TRANSACTION_TIMEOUT)
    }

    pub fn idle_in_transaction_timeout(&self) -> Timeout {
        self.own.get(IDLE_IN_TRANSACTION_SESSION_TIMEOUT)
    }

    pub fn idle_session_timeout(&self) -> Timeout {
        self.own.get(IDLE_SESSION_TIMEOUT)
    }

    /// How long to wait for a lock; none: for ever, where the engine's zero is not to wait at all.
    pub fn lock_timeout(&self) -> Option<Duration> {
        self.own.get(LOCK_TIMEOUT).duration()
    }

    /// What texts and statements may have at most.
    pub fn bounds(&self) -> Bounds {
        let number = |setting| usize::try_from(self.own.get::<i64>(setting)).unwrap_or(0);
        Bounds {
            text_bytes: self.text_bytes_max(),
            statements: number(TEXT_STATEMENTS),
            tokens: number(STATEMENT_TOKENS),
            nesting: number(NESTING),
            list_items: number(LIST_ITEMS),
            expression_terms: number(EXPRESSION_TERMS),
            conditions: number(CONDITIONS),
            relations: number(RELATIONS),
            columns: number(COLUMNS),
            plan_parts: number(PLAN_PARTS),
        }
    }

    /// Bytes of a query text at most.
    pub fn text_bytes_max(&self) -> usize {
        usize::try_from(self.own.get(TEXT_BYTES).0).unwrap_or(usize::MAX)
    }

    /// Silent retries of single statements.
    pub fn retries(&self) -> u64 {
        self.own.get(RETRIES) as u64
    }
}

/// How PostgreSQL writes that there is no bound.
const UNBOUNDED: &str = "-1";

/// PostgreSQL counts these settings in kB where no unit is given.
fn with_postgres_unit<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    let is = |declaration: &SettingDeclaration| declaration.name.eq_ignore_ascii_case(name);
    let limit = TEMP_FILE_LIMIT.declaration();
    if is(limit) && text.trim() == UNBOUNDED {
        return Cow::Owned(ByteSize::MAX.to_string());
    }
    let counts = is(limit) || is(WORK_MEM.declaration());
    let is_bare = !text.trim().is_empty() && text.trim().bytes().all(|byte| byte.is_ascii_digit());
    if counts && is_bare { Cow::Owned(format!("{}kB", text.trim())) } else { Cow::Borrowed(text) }
}

/// A layout by its name.
pub fn layout_of(name: &str) -> Layout {
    match name {
        "row" => Layout::Row,
        "column" => Layout::Column,
        "mixed" => Layout::Mixed,
        _ => Layout::Default,
    }
}

/// The name of a layout.
pub fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Row => "row",
        Layout::Column => "column",
        Layout::Mixed => "mixed",
        Layout::Default => "default",
    }
}

/// A value that a setting cannot take; of timeouts in PostgreSQL's words.
fn refused(declaration: &SettingDeclaration, error: SettingError) -> SqlError {
    let name = declaration.name;
    let error = match (declaration.kind, error) {
        (SettingKind::Timeout, SettingError::Malformed { value, .. }) => {
            return SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{name}\": \"{value}\""),
            )
            .hint("Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".");
        }
        (SettingKind::Timeout, SettingError::OutOfBounds { value, min, max, .. }) => {
            format!("{value} is outside the valid range for parameter \"{name}\" ({min} .. {max})")
        }
        (_, error) => error.to_string(),
    };
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error)
}

fn unknown(name: &str) -> SqlError {
    let error = SqlError::new(SqlState::NO_SUCH_OBJECT, format!("unrecognized configuration parameter \"{name}\""));
    if name.eq_ignore_ascii_case("memory_limit") {
        return error.hint("It is chosen at start, with --memory-limit; the view eris.memory_limit shows it.");
    }
    let names = declarations().map(|setting| setting.name).chain(COMPATIBILITY.iter().map(|setting| setting.name));
    let close = crate::catalog::suggestions(name, names);
    match close.first() {
        Some(close) => error.hint(format!("Perhaps you meant \"{close}\".")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SessionSettings {
        SessionSettings::new(SettingValues::default(), "psql")
    }

    #[test]
    fn own_settings_are_checked_and_reset() {
        let mut settings = settings();
        settings.set("layout", "COLUMN").unwrap();
        assert_eq!((settings.show("layout").as_deref(), settings.layout()), (Some("column"), Layout::Column));
        assert_eq!(settings.set("layout", "rows").unwrap_err().sqlstate.as_str(), "22023");
        assert_eq!(settings.set("segment_rows", "0").unwrap_err().sqlstate.as_str(), "22023");
        settings.reset(Some("layout")).unwrap();
        assert_eq!(settings.layout(), Layout::Default);
    }

    #[test]
    fn reset_goes_back_to_what_the_connection_began_with() {
        let mut settings = settings();
        for (name, start, later) in [("statement_timeout", "77ms", "1s"), ("application_name", "start", "later")] {
            settings.set(name, start).unwrap();
            settings.keep_as_defaults();
            for reset in [Some(name), None] {
                settings.set(name, later).unwrap();
                settings.reset(reset).unwrap();
                assert_eq!(settings.show(name).as_deref(), Some(start));
            }
        }
    }

    #[test]
    fn sizes_have_the_units_of_postgres() {
        let mut settings = settings();
        assert_eq!(settings.show("temp_file_limit").as_deref(), Some("-1"));
        assert_eq!(settings.spill_options(), SpillOptions::default());
        settings.set("work_mem", "64").unwrap();
        settings.set("TEMP_FILE_LIMIT", "1GB").unwrap();
        assert_eq!(settings.show("work_mem").as_deref(), Some("64kB"));
        let expected = SpillOptions { held_bytes_max: Some(64 << 10), file_bytes_max: Some(1 << 30) };
        assert_eq!(settings.spill_options(), expected);
        settings.set("temp_file_limit", "-1").unwrap();
        settings.set("work_mem", "1B").unwrap();
        assert_eq!(settings.spill_options(), SpillOptions { held_bytes_max: Some(1), file_bytes_max: None });
        assert_eq!(settings.set("work_mem", "-1").unwrap_err().sqlstate.as_str(), "22023");
    }

    #[test]
    fn transactions_have_the_level_that_is_shown() {
        let mut settings = settings();
        assert_eq!(settings.isolation_level(), IsolationLevel::RepeatableRead);
        settings.set(DEFAULT_ISOLATION, "Serializable").unwrap();
        assert_eq!(settings.isolation_level(), IsolationLevel::Serializable);
        settings.set(DEFAULT_ISOLATION, " read committed").unwrap();
        assert_eq!(settings.isolation_level(), IsolationLevel::RepeatableRead);
        settings.set(DEFAULT_ISOLATION, "serializable").unwrap();
        settings.reset(None).unwrap();
        assert_eq!(settings.isolation_level(), IsolationLevel::RepeatableRead);
        assert_eq!(level_named("read"), None);
    }

    #[test]
    fn what_is_not_in_effect_cannot_be_set() {
        let mut settings = settings();
        settings.set("client_encoding", "utf-8").unwrap();
        settings.set("extra_float_digits", "3").unwrap();
        settings.set("application_name", "x").unwrap();
        assert_eq!(settings.show("application_name").as_deref(), Some("x"));
        assert_eq!(settings.show("DateStyle").as_deref(), Some("ISO, MDY"), "names have no case");
        assert_eq!(settings.show("date"), None);
        assert_eq!(settings.set("timezone", "Europe/Berlin").unwrap_err().sqlstate.as_str(), "22023");
        let error = settings.set("partition", "7").unwrap_err();
        assert_eq!(
            (error.sqlstate.as_str(), error.hint.as_deref()),
            ("42704", Some("Perhaps you meant \"partitions\"."))
        );
    }
}
