//! Type names of SQL text.

use super::Lowered;
use crate::ast::{CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo};
use crate::errors::{SqlError, SqlState};
use crate::types::SqlType;

/// Digits of the widest numeric: what 128 bits hold.
const PRECISION_MAX: u64 = 38;

/// The SQL type of a type name; unknown ones are refused with what there is.
pub fn sql_type_of(data_type: &DataType) -> Lowered<SqlType> {
    Ok(match data_type {
        DataType::Boolean | DataType::Bool => SqlType::Boolean,
        DataType::SmallInt(None) | DataType::Int2(None) => SqlType::SmallInt,
        DataType::Integer(None) | DataType::Int(None) | DataType::Int4(None) => SqlType::Integer,
        DataType::BigInt(None) | DataType::Int8(None) => SqlType::BigInt,
        DataType::Real | DataType::Float4 => SqlType::Real,
        DataType::DoublePrecision
        | DataType::Float8
        | DataType::Double(ExactNumberInfo::None)
        | DataType::Float(ExactNumberInfo::None) => SqlType::Double,
        DataType::Float(ExactNumberInfo::Precision(bits @ 1..=53)) => {
            if *bits <= 24 {
                SqlType::Real
            } else {
                SqlType::Double
            }
        }
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(*info)?,
        DataType::Date => SqlType::Date,
        DataType::Timestamp(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => match precision {
            None | Some(6) => SqlType::Timestamp,
            Some(other) => {
                return Err(SqlError::unsupported(format!("timestamp({other})"), "Timestamps keep microseconds."));
            }
        },
        DataType::Timestamp(..) => {
            return Err(SqlError::unsupported("timestamp with time zone", "Use timestamp and store UTC."));
        }
        DataType::Text => SqlType::Text,
        DataType::Varchar(length)
        | DataType::CharacterVarying(length)
        | DataType::CharVarying(length)
        | DataType::Nvarchar(length) => SqlType::Varchar(text_length(*length)?),
        DataType::Char(length) | DataType::Character(length) => SqlType::Char(Some(text_length(*length)?.unwrap_or(1))),
        DataType::Bytea => SqlType::Bytea,
        DataType::Custom(name, _) => match catalog_name(name).as_str() {
            "bpchar" => SqlType::Char(None),
            "name" | "text" | "char" => SqlType::Text,
            "bool" => SqlType::Boolean,
            "int2" => SqlType::SmallInt,
            "int4" => SqlType::Integer,
            // Object ids are 32 bits without sign in PostgreSQL; here they are numbers, also where it shows a name.
            "int8" | "oid" | "regclass" | "regtype" | "regnamespace" | "regrole" | "regproc" => SqlType::BigInt,
            "float4" => SqlType::Real,
            "float8" => SqlType::Double,
            "numeric" => SqlType::NUMERIC,
            "varchar" => SqlType::Varchar(None),
            "date" => SqlType::Date,
            "timestamp" => SqlType::Timestamp,
            "bytea" => SqlType::Bytea,
            other => {
                return Err(SqlError::new(SqlState::NO_SUCH_OBJECT, format!("type \"{other}\" does not exist"))
                    .hint(KNOWN_TYPES));
            }
        },
        other => return Err(SqlError::unsupported(format!("type {other}"), KNOWN_TYPES)),
    })
}

/// A type's own name, with or without its schema.
fn catalog_name(name: &ObjectName) -> String {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.to_lowercase()).collect();
    match parts.as_slice() {
        [schema, own] if schema == "pg_catalog" => own.clone(),
        _ => name.to_string().to_lowercase(),
    }
}

/// Whether a type name is `numeric` without precision: a column has a type all the same, a cast keeps the digits that
/// there are.
pub fn is_bare_numeric(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Numeric(ExactNumberInfo::None)
            | DataType::Decimal(ExactNumberInfo::None)
            | DataType::Dec(ExactNumberInfo::None)
    )
}

const KNOWN_TYPES: &str = "There are boolean, smallint, integer, bigint, real, double precision, numeric(p,s), date, \
                           timestamp, text, varchar(n), char(n), bytea.";

fn numeric(info: ExactNumberInfo) -> Lowered<SqlType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(SqlType::NUMERIC),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if !(1..=PRECISION_MAX).contains(&precision) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC precision {precision} must be between 1 and {PRECISION_MAX}"),
        ));
    }
    match u64::try_from(scale) {
        Ok(scale) if scale <= precision => Ok(SqlType::Numeric { precision: precision as u8, scale: scale as u8 }),
        _ => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC scale {scale} must be between 0 and precision {precision}"),
        )),
    }
}

fn text_length(length: Option<CharacterLength>) -> Lowered<Option<u32>> {
    match length {
        None | Some(CharacterLength::Max) => Ok(None),
        Some(CharacterLength::IntegerLength { length, unit: _ }) => match u32::try_from(length) {
            Ok(length @ 1..=10_485_760) => Ok(Some(length)),
            _ => Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "length for type varchar or char must be between 1 and 10485760",
            )),
        },
    }
}
