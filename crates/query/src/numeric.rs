//! How many digits the results of arithmetic on numerics have.
//!
//! | operation  | digits after the point  | digits in all                           |
//! |------------|-------------------------|-----------------------------------------|
//! | `+`, `-`   | the larger scale        | one before the point more than the larger |
//! | `*`        | both scales together    | both precisions and one more            |
//! | `/`        | ten more than the larger scale, at most 30 | 38                   |
//! | `%`        | the larger scale        | as many before the point as the smaller has |
//!
//! 38 digits are all that there are. A product with more of them after the point is not planned.

use eris_operators::ArithmeticOperator;

use crate::types::SqlType;

/// Digits that a numeric has at most.
pub const PRECISION_MAX: u8 = 38;
/// Digits that a quotient has after the point beyond those of its operands.
const QUOTIENT_DIGITS: u8 = 10;
/// The largest scale of a quotient: eight digits before the point remain.
const QUOTIENT_SCALE_MAX: u8 = 30;

/// Precision and scale of the numeric that holds every value of a type of exact numbers.
pub fn digits_of(sql_type: SqlType) -> Option<(u8, u8)> {
    match sql_type {
        SqlType::SmallInt => Some((5, 0)),
        SqlType::Integer => Some((10, 0)),
        SqlType::BigInt => Some((20, 0)),
        SqlType::Numeric { precision, scale } => Some((precision, scale)),
        _ => None,
    }
}

/// Precision and scale of a number as it is written; `None` if it has more digits than there are.
pub fn digits_of_value(unscaled: i128, scale: u8) -> Option<SqlType> {
    let digits = unscaled.unsigned_abs().checked_ilog10().map_or(1, |last| last as u8 + 1);
    let precision = digits.max(scale);
    (precision <= PRECISION_MAX).then_some(SqlType::Numeric { precision, scale })
}

/// The type of an operation's result; `None` if it has too many digits.
pub fn result_of(operator: ArithmeticOperator, left: SqlType, right: SqlType) -> Option<SqlType> {
    let ((left_precision, left_scale), (right_precision, right_scale)) = (digits_of(left)?, digits_of(right)?);
    let scale = left_scale.max(right_scale);
    let (left_whole, right_whole) = (left_precision - left_scale, right_precision - right_scale);
    let (precision, scale) = match operator {
        ArithmeticOperator::Add | ArithmeticOperator::Subtract => (left_whole.max(right_whole) + scale + 1, scale),
        ArithmeticOperator::Multiply => (left_precision + right_precision + 1, left_scale + right_scale),
        ArithmeticOperator::Divide => (PRECISION_MAX, (scale + QUOTIENT_DIGITS).min(QUOTIENT_SCALE_MAX).max(scale)),
        ArithmeticOperator::Modulo => (left_whole.min(right_whole).max(1) + scale, scale),
    };
    (scale <= PRECISION_MAX).then_some(SqlType::Numeric { precision: precision.min(PRECISION_MAX), scale })
}

/// The numeric that holds every value of both types of exact numbers, as far as there are digits.
pub fn common(left: SqlType, right: SqlType) -> Option<SqlType> {
    let ((left_precision, left_scale), (right_precision, right_scale)) = (digits_of(left)?, digits_of(right)?);
    let scale = left_scale.max(right_scale);
    let whole = (left_precision - left_scale).max(right_precision - right_scale);
    Some(SqlType::Numeric { precision: (whole + scale).min(PRECISION_MAX), scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(precision: u8, scale: u8) -> SqlType {
        SqlType::Numeric { precision, scale }
    }

    #[test]
    fn results_have_the_digits_of_the_table() {
        use ArithmeticOperator::{Add, Divide, Modulo, Multiply, Subtract};
        let price = numeric(12, 2);
        assert_eq!(result_of(Add, price, numeric(5, 4)), Some(numeric(15, 4)));
        assert_eq!(result_of(Subtract, price, SqlType::Integer), Some(numeric(13, 2)));
        assert_eq!(result_of(Multiply, price, numeric(5, 4)), Some(numeric(18, 6)));
        assert_eq!(result_of(Multiply, numeric(38, 20), numeric(38, 18)), Some(numeric(38, 38)));
        assert_eq!(result_of(Multiply, numeric(38, 20), numeric(38, 19)), None);
        assert_eq!(result_of(Divide, price, SqlType::BigInt), Some(numeric(38, 12)));
        assert_eq!(result_of(Divide, numeric(38, 35), price), Some(numeric(38, 35)));
        assert_eq!(result_of(Modulo, price, numeric(5, 4)), Some(numeric(5, 4)));
        assert_eq!(result_of(Add, price, SqlType::Double), None);
        assert_eq!(common(SqlType::Integer, numeric(5, 4)), Some(numeric(14, 4)));
    }

    #[test]
    fn written_numbers_have_as_many_digits_as_are_needed() {
        assert_eq!(digits_of_value(10_i128.pow(38), 0), None);
        for (unscaled, scale, expected) in [
            (0, 0, numeric(1, 0)),
            (-150, 2, numeric(3, 2)),
            (5, 3, numeric(3, 3)),
            (10_i128.pow(37), 0, numeric(38, 0)),
        ] {
            assert_eq!(digits_of_value(unscaled, scale), Some(expected), "{unscaled}e-{scale}");
        }
    }
}
