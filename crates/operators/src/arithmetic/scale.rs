//! Scales of decimals.

use eris_storage::DataType;

use crate::error::OperatorError;

/// The powers of ten that 128 bits hold: they are asked for row by row.
const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = 10 * powers[exponent - 1];
        exponent += 1;
    }
    powers
};

/// The error of a decimal without room.
pub(crate) fn overflow() -> OperatorError {
    OperatorError::Overflow { type_name: "numeric" }
}

/// The smallest positive number of more than `precision` digits.
pub(crate) fn limit(precision: u8) -> i128 {
    power(precision).unwrap_or(i128::MAX)
}

/// 10 to a power, if 128 bits hold it.
pub(crate) fn power(exponent: u8) -> Option<i128> {
    POWERS.get(usize::from(exponent)).copied()
}

/// The digits of a decimal type: precision and scale.
pub(crate) fn digits_of(data_type: DataType) -> Result<(u8, u8), OperatorError> {
    match data_type {
        DataType::Decimal { precision, scale } => Ok((precision, scale)),
        other => Err(OperatorError::Internal(format!("{other} as numeric"))),
    }
}

/// Brings an unscaled number to another scale, rounding half away from zero.
pub(crate) fn rescale(value: i128, from: u8, to: u8) -> Option<i128> {
    if to >= from {
        return value.checked_mul(power(to - from)?);
    }
    Some(divide_rounded(value, power(from - to)?))
}

/// Division rounded half away from zero.
pub(crate) fn divide_rounded(dividend: i128, divisor: i128) -> i128 {
    let (quotient, remainder) = (dividend / divisor, dividend % divisor);
    if remainder.unsigned_abs().saturating_mul(2) < divisor.unsigned_abs() {
        quotient
    } else if (dividend < 0) == (divisor < 0) {
        quotient + 1
    } else {
        quotient - 1
    }
}

/// The same where the quotient of the smallest number and -1 may be asked for; the divisor is not 0.
pub(crate) fn divide_rounded_checked(dividend: i128, divisor: i128) -> Option<i128> {
    (divisor != -1).then(|| divide_rounded(dividend, divisor)).or_else(|| dividend.checked_neg())
}
