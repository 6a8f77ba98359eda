//! The aggregate functions: what they take, and the types of their results.
//!
//! | function              | argument        | computed of          | result                    |
//! |-----------------------|-----------------|----------------------|---------------------------|
//! | `count`               | any             | the same             | bigint                    |
//! | `sum`                 | integers        | bigint               | bigint                    |
//! |                       | numeric(p, s)   | the same             | numeric(p + 10, s)        |
//! |                       | floating point  | double precision     | double precision          |
//! | `avg`                 | integers        | bigint               | numeric(38, 10)           |
//! |                       | numeric(p, s)   | the same             | numeric(38, s + 10)       |
//! |                       | floating point  | double precision     | double precision          |
//! | `min`, `max`          | numbers, moments, text | the same      | the same, without a length |
//! | `bool_and`, `every`, `bool_or` | boolean | the same            | boolean                   |

use eris_operators::AggregateFunction;

use crate::numeric::PRECISION_MAX;
use crate::types::{SqlType, TypeKind};

/// Digits that a sum has before the point beyond those of its argument, and an average after it.
const MORE_DIGITS: u8 = 10;
/// The largest scale of an average.
const AVERAGE_SCALE_MAX: u8 = 30;

/// An aggregate function of an argument of a certain type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregateSignature {
    /// What computes it.
    pub function: AggregateFunction,
    /// The type that the argument is brought to.
    pub argument: SqlType,
    /// The type of the result.
    pub result: SqlType,
}

/// Whether a function of this name is an aggregate.
pub fn is_aggregate(name: &str) -> bool {
    matches!(name, "count" | "sum" | "avg" | "min" | "max" | "bool_and" | "every" | "bool_or")
}

/// The aggregate of a name that takes an argument of a type.
pub fn aggregate_of(name: &str, argument: SqlType) -> Option<AggregateSignature> {
    let of = |function, argument, result| Some(AggregateSignature { function, argument, result });
    let same = |function| of(function, argument, argument);
    match (name, argument.kind()) {
        ("count", kind) if kind != TypeKind::Unknown => of(AggregateFunction::Count, argument, SqlType::BigInt),
        ("sum", _) => {
            let (argument, result) = sum_types(argument)?;
            of(AggregateFunction::Sum, argument, result)
        }
        ("avg", _) => {
            let (argument, result) = average_types(argument)?;
            of(AggregateFunction::Average, argument, result)
        }
        ("min", _) => extreme(AggregateFunction::Min, argument),
        ("max", _) => extreme(AggregateFunction::Max, argument),
        // Of two truth values false is the smaller one.
        ("bool_and" | "every", TypeKind::Boolean) => same(AggregateFunction::Min),
        ("bool_or", TypeKind::Boolean) => same(AggregateFunction::Max),
        _ => None,
    }
}

fn extreme(function: AggregateFunction, argument: SqlType) -> Option<AggregateSignature> {
    let result = match argument.kind() {
        TypeKind::SmallInt
        | TypeKind::Integer
        | TypeKind::BigInt
        | TypeKind::Real
        | TypeKind::Double
        | TypeKind::Numeric
        | TypeKind::Date
        | TypeKind::Timestamp => argument,
        TypeKind::Text | TypeKind::Varchar => SqlType::Text,
        TypeKind::Boolean | TypeKind::Char | TypeKind::Bytea | TypeKind::Interval | TypeKind::Unknown => return None,
    };
    Some(AggregateSignature { function, argument, result })
}

fn sum_types(argument: SqlType) -> Option<(SqlType, SqlType)> {
    Some(match argument {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => (SqlType::BigInt, SqlType::BigInt),
        SqlType::Real | SqlType::Double => (SqlType::Double, SqlType::Double),
        SqlType::Numeric { precision, scale } => {
            let precision = (precision + MORE_DIGITS).min(PRECISION_MAX);
            (argument, SqlType::Numeric { precision, scale })
        }
        _ => return None,
    })
}

fn average_types(argument: SqlType) -> Option<(SqlType, SqlType)> {
    let average = |scale: u8| {
        let scale = (scale + MORE_DIGITS).min(AVERAGE_SCALE_MAX).max(scale);
        SqlType::Numeric { precision: PRECISION_MAX, scale }
    };
    Some(match argument {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => (SqlType::BigInt, average(0)),
        SqlType::Real | SqlType::Double => (SqlType::Double, SqlType::Double),
        SqlType::Numeric { scale, .. } => (argument, average(scale)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_types_of_the_table() {
        let numeric = |precision, scale| SqlType::Numeric { precision, scale };
        for (name, argument, expected) in [
            ("count", SqlType::Bytea, Some(SqlType::BigInt)),
            ("count", SqlType::Unknown, None),
            ("sum", SqlType::SmallInt, Some(SqlType::BigInt)),
            ("sum", numeric(12, 2), Some(numeric(22, 2))),
            ("sum", numeric(30, 2), Some(numeric(38, 2))),
            ("sum", SqlType::Real, Some(SqlType::Double)),
            ("sum", SqlType::Text, None),
            ("avg", SqlType::Integer, Some(numeric(38, 10))),
            ("avg", numeric(38, 25), Some(numeric(38, 30))),
            ("avg", numeric(38, 35), Some(numeric(38, 35))),
            ("min", SqlType::Varchar(Some(3)), Some(SqlType::Text)),
            ("max", SqlType::Date, Some(SqlType::Date)),
            ("max", SqlType::Boolean, None),
            ("every", SqlType::Boolean, Some(SqlType::Boolean)),
            ("every", SqlType::Integer, None),
            ("median", SqlType::Integer, None),
        ] {
            assert_eq!(aggregate_of(name, argument).map(|found| found.result), expected, "{name} of {argument}");
            assert_eq!(is_aggregate(name), name != "median");
        }
    }
}
