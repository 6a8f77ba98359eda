//! Casts as PostgreSQL does them.
//!
//! | cast                                        | Arrow           | here                                       |
//! |---------------------------------------------|-----------------|--------------------------------------------|
//! | numeric to an integer                       | truncates       | rounds half away from zero                 |
//! | floating point to an integer                | truncates       | rounds half to even                        |
//! | floats, timestamp, interval, bytea to text  | forms of its own | PostgreSQL's                              |
//! | text to anything                            | forms of its own | what literals and COPY accept             |
//! | text to `varchar(n)`, `char(n)`             | nothing          | cut                                       |
//! | between numbers and dates                   | days            | refused                                    |
//! | wide numerics to floating point             | rounds twice    | the nearest                                |
//! | floating point to numeric                   | multiplies      | the digits that are shown                  |
//! | `double precision` to `real`                | infinity        | checked                                    |
//! | timestamp to date                           | until 262143    | all of them                                |
//!
//! A cast that not every value survives is kept from DataFusion's rules: wherever it meets a constant in the end, they
//! would compare `CAST(x AS integer) = 4` as `x = 4`, without the error that a large `x` is, and take
//! `CAST(1.26 AS numeric(2, 1)) = 1.3` for false.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable};

use super::functions::Function;
use super::rounding::Rounding;
use crate::arrow_view::{field_sql_type, sql_type_of_arrow};
use crate::errors::{SqlError, SqlState};
use crate::types::SqlType;

/// Any cast, after types were coerced.
pub(super) fn cast(cast: &Cast, columns: &DFSchema) -> Result<Option<Expr>> {
    let Ok(from) = cast.expr.get_type(columns) else { return Ok(None) };
    let to = cast.field.data_type();
    // What is computed below; the cast to the very Arrow type that was asked for stays around it.
    let below = |function: Function| {
        let new = function.call(cast.expr.as_ref().clone());
        Some(Expr::Cast(Cast::new_from_field(Box::new(new), Arc::clone(&cast.field))))
    };
    let new = match &from {
        ArrowType::Decimal128(_, scale) if to.is_integer() && *scale > 0 => below(Function::Whole(Rounding::Nearest)),
        ArrowType::Float32 | ArrowType::Float64 if to.is_integer() => below(Function::Whole(Rounding::Nearest)),
        ArrowType::Float32
        | ArrowType::Float64
        | ArrowType::Timestamp(..)
        | ArrowType::Interval(IntervalUnit::MonthDayNano)
        | ArrowType::BinaryView
        | ArrowType::Binary
            if to.is_string() =>
        {
            below(Function::Text)
        }
        text if text.is_string() => match field_sql_type(&cast.field) {
            Ok(fitted @ (SqlType::Varchar(Some(_)) | SqlType::Char(_))) => below(Function::Cut(fitted)),
            Ok(SqlType::Interval | SqlType::Text | SqlType::Varchar(None) | SqlType::Unknown) | Err(_) => None,
            Ok(parsed) => below(Function::Parse(parsed)),
        },
        from if is_stored(from, to) => match sql_type_of_arrow(to) {
            Ok(stored) => below(Function::Stored(stored)),
            Err(_) => None,
        },
        _ => {
            refuse(&from, to)?;
            None
        }
    };
    if !loses_values(&from, to) || matches!(cast.expr.as_ref(), Expr::Literal(..) | Expr::Placeholder(_)) {
        return Ok(new);
    }
    let kept = Function::Kept.call(new.unwrap_or_else(|| Expr::Cast(cast.clone())));
    Ok(Some(Expr::Cast(Cast::new_from_field(Box::new(kept), Arc::clone(&cast.field)))))
}

/// Whether some numbers are other ones after a cast, or none.
fn loses_values(from: &ArrowType, to: &ArrowType) -> bool {
    // Digits before the point and behind it.
    let digits = |data_type: &ArrowType| {
        Some(match data_type {
            ArrowType::Int16 => (5, 0),
            ArrowType::Int32 => (10, 0),
            ArrowType::Int64 => (19, 0),
            ArrowType::Decimal128(precision, scale) => (*precision as i8 - scale, *scale),
            _ => return None,
        })
    };
    let (Some((before, behind)), Some((kept_before, kept_behind))) = (digits(from), digits(to)) else { return false };
    // Not every number of nineteen digits is a bigint.
    let fits = kept_before > before || (kept_before == before && (!to.is_integer() || from == to));
    !fits || kept_behind < behind
}

/// Casts that Arrow computes with an error where there is none, or the other way round.
fn is_stored(from: &ArrowType, to: &ArrowType) -> bool {
    /// Digits that a `double precision` holds exactly.
    const DIGITS_EXACT: u8 = 15;
    match (from, to) {
        (ArrowType::Decimal128(precision, _), ArrowType::Float64) => *precision > DIGITS_EXACT,
        (ArrowType::Decimal128(..) | ArrowType::Float64, ArrowType::Float32)
        | (ArrowType::Float32 | ArrowType::Float64, ArrowType::Decimal128(..))
        | (ArrowType::Timestamp(TimeUnit::Microsecond, None), ArrowType::Date32) => true,
        _ => false,
    }
}

/// Casts that Arrow has a meaning for and PostgreSQL has none.
fn refuse(from: &ArrowType, to: &ArrowType) -> Result<()> {
    let (Ok(from), Ok(to)) = (sql_type_of_arrow(from), sql_type_of_arrow(to)) else { return Ok(()) };
    let is_time = |sql_type| matches!(sql_type, SqlType::Date | SqlType::Timestamp);
    let is_number = |sql_type| {
        matches!(
            sql_type,
            SqlType::SmallInt
                | SqlType::Integer
                | SqlType::BigInt
                | SqlType::Real
                | SqlType::Double
                | SqlType::Numeric { .. }
                | SqlType::Boolean
        )
    };
    if (is_time(from) && is_number(to)) || (is_number(from) && is_time(to)) {
        let error = SqlError::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {to}"));
        return Err(DataFusionError::External(Box::new(error)));
    }
    Ok(())
}
