//! SQLSTATE codes: five ASCII characters that clients branch on.
//!
//! The list is what this layer can answer; [`crate::SqlError`] is made with one of these and nothing else, so that the
//! assignment of codes to causes stands in one file ([`crate::errors`]).

#![expect(clippy::doc_markdown, reason = "the names are those of the standard")]

use std::fmt;

/// One SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// The code as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// A code from its five characters; `None` unless they are upper-case letters or digits.
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes: [u8; 5] = text.as_bytes().try_into().ok()?;
        bytes.iter().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()).then_some(Self(bytes))
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl SqlState { $($(#[$doc])* pub const $name: SqlState = SqlState(*$code);)* }
    };
}

states! {
    /// successful_completion: what notices have
    SUCCESS = b"00000";
    /// warning
    WARNING = b"01000";
    /// feature_not_supported
    FEATURE_NOT_SUPPORTED = b"0A000";
    /// cardinality_violation: a scalar subquery gave more than one row
    CARDINALITY_VIOLATION = b"21000";
    /// invalid_argument_for_logarithm
    INVALID_LOGARITHM = b"2201E";
    /// invalid_argument_for_power_function
    INVALID_POWER = b"2201F";
    /// invalid_row_count_in_limit_clause
    NEGATIVE_LIMIT = b"2201W";
    /// invalid_row_count_in_result_offset_clause
    NEGATIVE_OFFSET = b"2201X";
    /// sequence_generator_limit_exceeded
    SEQUENCE_EXHAUSTED = b"2200H";
    /// string_data_right_truncation
    STRING_TOO_LONG = b"22001";
    /// numeric_value_out_of_range
    OUT_OF_RANGE = b"22003";
    /// null_value_not_allowed
    NULL_NOT_ALLOWED = b"22004";
    /// invalid_datetime_format
    INVALID_DATETIME = b"22007";
    /// datetime_field_overflow
    DATETIME_OVERFLOW = b"22008";
    /// division_by_zero
    DIVISION_BY_ZERO = b"22012";
    /// invalid_preceding_or_following_size
    INVALID_FRAME_SIZE = b"22013";
    /// invalid_argument_for_ntile_function
    INVALID_NTILE = b"22014";
    /// invalid_argument_for_nth_value_function
    INVALID_NTH_VALUE = b"22016";
    /// character_not_in_repertoire: not valid UTF-8
    INVALID_ENCODING = b"22021";
    /// invalid_parameter_value
    INVALID_PARAMETER_VALUE = b"22023";
    /// invalid_text_representation
    INVALID_TEXT = b"22P02";
    /// invalid_binary_representation
    INVALID_BINARY = b"22P03";
    /// bad_copy_file_format
    BAD_COPY_FORMAT = b"22P04";
    /// not_null_violation
    NOT_NULL = b"23502";
    /// foreign_key_violation
    FOREIGN_KEY = b"23503";
    /// unique_violation
    UNIQUE = b"23505";
    /// active_sql_transaction
    ACTIVE_TRANSACTION = b"25001";
    /// read_only_sql_transaction
    READ_ONLY_TRANSACTION = b"25006";
    /// no_active_sql_transaction
    NO_ACTIVE_TRANSACTION = b"25P01";
    /// idle_in_transaction_session_timeout
    IDLE_IN_TRANSACTION_TIMEOUT = b"25P03";
    /// transaction_timeout
    TRANSACTION_TIMEOUT = b"25P04";
    /// in_failed_sql_transaction
    FAILED_TRANSACTION = b"25P02";
    /// invalid_sql_statement_name: no such prepared statement
    NO_SUCH_STATEMENT = b"26000";
    /// dependent_objects_still_exist
    DEPENDENT_OBJECTS = b"2BP01";
    /// invalid_savepoint_specification
    NO_SUCH_SAVEPOINT = b"3B001";
    /// invalid_catalog_name
    NO_SUCH_DATABASE = b"3D000";
    /// invalid_schema_name
    NO_SUCH_SCHEMA = b"3F000";
    /// serialization_failure
    SERIALIZATION_FAILURE = b"40001";
    /// deadlock_detected
    DEADLOCK_DETECTED = b"40P01";
    /// syntax_error
    SYNTAX = b"42601";
    /// invalid_name
    INVALID_NAME = b"42602";
    /// insufficient_privilege
    INSUFFICIENT_PRIVILEGE = b"42501";
    /// duplicate_column
    DUPLICATE_COLUMN = b"42701";
    /// ambiguous_column
    AMBIGUOUS_COLUMN = b"42702";
    /// undefined_column
    NO_SUCH_COLUMN = b"42703";
    /// undefined_object
    NO_SUCH_OBJECT = b"42704";
    /// duplicate_object
    DUPLICATE_OBJECT = b"42710";
    /// duplicate_alias
    DUPLICATE_ALIAS = b"42712";
    /// invalid_column_reference
    WRONG_REFERENCE = b"42P10";
    /// windowing_error
    MISPLACED_WINDOW = b"42P20";
    /// grouping_error
    GROUPING = b"42803";
    /// datatype_mismatch
    TYPE_MISMATCH = b"42804";
    /// invalid_foreign_key
    INVALID_FOREIGN_KEY = b"42830";
    /// cannot_coerce: there is no such cast
    CANNOT_COERCE = b"42846";
    /// wrong_object_type
    WRONG_OBJECT = b"42809";
    /// undefined_function
    NO_SUCH_FUNCTION = b"42883";
    /// undefined_table
    NO_SUCH_TABLE = b"42P01";
    /// undefined_parameter
    NO_SUCH_PARAMETER = b"42P02";
    /// duplicate_prepared_statement
    DUPLICATE_STATEMENT = b"42P05";
    /// duplicate_table
    DUPLICATE_TABLE = b"42P07";
    /// invalid_table_definition
    INVALID_TABLE = b"42P16";
    /// invalid_object_definition
    INVALID_OBJECT = b"42P17";
    /// indeterminate_datatype
    UNKNOWN_TYPE = b"42P18";
    /// insufficient_resources
    INSUFFICIENT_RESOURCES = b"53000";
    /// out_of_memory
    OUT_OF_MEMORY = b"53200";
    /// program_limit_exceeded
    LIMIT_EXCEEDED = b"54000";
    /// statement_too_complex
    TOO_COMPLEX = b"54001";
    /// too_many_columns
    TOO_MANY_COLUMNS = b"54011";
    /// object_not_in_prerequisite_state
    WRONG_STATE = b"55000";
    /// configuration_limit_exceeded
    CONFIGURATION_LIMIT = b"53400";
    /// disk_full
    DISK_FULL = b"53100";
    /// io_error
    IO_ERROR = b"58030";
    /// object_in_use
    OBJECT_IN_USE = b"55006";
    /// lock_not_available
    LOCK_NOT_AVAILABLE = b"55P03";
    /// query_canceled
    CANCELED = b"57014";
    /// idle_session_timeout
    IDLE_SESSION_TIMEOUT = b"57P05";
    /// snapshot_too_old
    SNAPSHOT_TOO_OLD = b"72000";
    /// admin_shutdown
    SHUTDOWN = b"57P01";
    /// undefined_file
    NO_SUCH_FILE = b"58P01";
    /// duplicate_file
    DUPLICATE_FILE = b"58P02";
    /// protocol_violation
    PROTOCOL = b"08P01";
    /// internal_error
    INTERNAL = b"XX000";
    /// data_corrupted
    CORRUPTED = b"XX001";
}
