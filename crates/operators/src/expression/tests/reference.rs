//! Expressions computed the slow and readable way: one row, one value after the other.

use eris_storage::{Batch, DataType, Value};

use crate::ArithmeticOperator;
use crate::arithmetic::{divide_rounded, rescale};
use crate::expression::{DatePart, Expression};

/// A value, or that there is an error.
pub(super) type Outcome = Result<Value, &'static str>;

/// The value of an expression for a row. LIKE patterns and substrings are in the side tables of `Like` and `Part`.
pub(super) fn value_of(expression: &Expression, batch: &Batch, row: usize, parameters: &[Value]) -> Outcome {
    let of = |expression: &Expression| value_of(expression, batch, row, parameters);
    Ok(match expression {
        Expression::Column { index, .. } => batch.value(row, *index),
        Expression::Constant { value, .. } => value.clone(),
        Expression::Parameter { index, .. } => parameters[*index].clone(),
        Expression::Arithmetic { operator, left, right, data_type } => {
            let (left, right) = (of(left)?, of(right)?);
            if left.is_null() || right.is_null() {
                return Ok(Value::Null);
            }
            return arithmetic(*operator, &left, &right, *data_type);
        }
        Expression::Compare { comparison, left, right } => {
            let (left, right) = (of(left)?, of(right)?);
            if left.is_null() || right.is_null() {
                return Ok(Value::Null);
            }
            Value::Boolean(comparison.accepts(left.cmp(&right)))
        }
        Expression::And(parts) => return chain(parts, false, &of),
        Expression::Or(parts) => return chain(parts, true, &of),
        Expression::Not(input) => negated(of(input)?, true),
        Expression::IsNull { input, negated } => Value::Boolean(of(input)?.is_null() != *negated),
        Expression::IsTruth { input, truth, negated } => {
            Value::Boolean((of(input)? == Value::Boolean(*truth)) != *negated)
        }
        Expression::Distinct { left, right, same } => Value::Boolean((of(left)? == of(right)?) == *same),
        Expression::Case { branches, otherwise, .. } => {
            for (when, then) in branches {
                if of(when)? == Value::Boolean(true) {
                    return of(then);
                }
            }
            return otherwise.as_deref().map_or(Ok(Value::Null), of);
        }
        Expression::Like { input, pattern, negated: is_negated } => match of(input)? {
            Value::Text(text) => {
                let quoted = pattern.to_string();
                let pattern: Vec<char> = quoted[1..quoted.len() - 1].chars().collect();
                negated(Value::Boolean(like(&text.chars().collect::<Vec<_>>(), &pattern)), *is_negated)
            }
            other => other,
        },
        Expression::InList { input, set, negated: is_negated } => {
            let value = of(input)?;
            let found = set.values().iter().any(|known| !known.is_null() && *known == value);
            let unknown = value.is_null() || (!found && set.values().iter().any(Value::is_null));
            negated(if unknown { Value::Null } else { Value::Boolean(found) }, *is_negated)
        }
        Expression::Extract { part, input } => match of(input)? {
            Value::Date(days) => Value::Int32(date_part(*part, i64::from(days))),
            Value::Timestamp(micros) => Value::Int32(date_part(*part, micros.div_euclid(86_400_000_000))),
            other => other,
        },
        Expression::Substring { input, span } => match of(input)? {
            Value::Text(text) => {
                let (start, count) = span.bounds();
                let count = count.unwrap_or(usize::MAX);
                Value::Text(text.chars().skip(start - 1).take(count).collect::<String>().into())
            }
            other => other,
        },
        Expression::Cast { input, data_type } => return cast(&of(input)?, *data_type),
        Expression::Foreign(foreign) => panic!("{foreign} is in no test"),
    })
}

fn negated(value: Value, negated: bool) -> Value {
    match value {
        Value::Boolean(value) => Value::Boolean(value != negated),
        other => other,
    }
}

fn chain(parts: &[Expression], decides: bool, of: &dyn Fn(&Expression) -> Outcome) -> Outcome {
    let mut result = Value::Boolean(!decides);
    for part in parts {
        match of(part)? {
            Value::Boolean(value) if value == decides => return Ok(Value::Boolean(decides)),
            Value::Null => result = Value::Null,
            _ => {}
        }
    }
    Ok(result)
}

/// A character, or a split at every place.
pub(super) fn like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|at| like(&text[at..], rest)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest),
        ['\\', escaped, rest @ ..] => text.first() == Some(escaped) && like(&text[1..], rest),
        [literal, rest @ ..] => text.first() == Some(literal) && like(&text[1..], rest),
    }
}

fn date_part(part: DatePart, mut days: i64) -> i32 {
    let leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days < 0 {
        year -= 1;
        days += 365 + i64::from(leap(year));
    }
    while days >= 365 + i64::from(leap(year)) {
        days -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    match part {
        DatePart::Year => year,
        DatePart::Month => month as i32 + 1,
        DatePart::Day => days as i32 + 1,
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int16(value) => Some(i128::from(*value)),
        Value::Int32(value) => Some(i128::from(*value)),
        Value::Int64(value) => Some(i128::from(*value)),
        _ => None,
    }
}

fn integer_of(value: i128, data_type: DataType) -> Outcome {
    let overflow = "overflow";
    match data_type {
        DataType::Int16 => value.try_into().map(Value::Int16).map_err(|_| overflow),
        DataType::Int32 => value.try_into().map(Value::Int32).map_err(|_| overflow),
        _ => value.try_into().map(Value::Int64).map_err(|_| overflow),
    }
}

fn decimal_of(unscaled: Option<i128>, precision: u8, scale: u8) -> Outcome {
    match unscaled {
        Some(unscaled) if unscaled.unsigned_abs() < 10_u128.pow(u32::from(precision)) => {
            Ok(Value::Decimal { unscaled, scale })
        }
        _ => Err("overflow"),
    }
}

/// 128 bits are enough for all that tests ask for, or the answer is an error.
pub(super) fn arithmetic(operator: ArithmeticOperator, left: &Value, right: &Value, data_type: DataType) -> Outcome {
    let divides = matches!(operator, ArithmeticOperator::Divide | ArithmeticOperator::Modulo);
    match (left, right, data_type) {
        (
            Value::Decimal { unscaled: a, scale: s },
            Value::Decimal { unscaled: b, scale: t },
            DataType::Decimal { precision, scale },
        ) => {
            if divides && *b == 0 {
                return Err("division by zero");
            }
            let common = *s.max(t);
            let both = || Some((rescale(*a, *s, common)?, rescale(*b, *t, common)?));
            let (raw, raw_scale) = match operator {
                ArithmeticOperator::Add => (both().and_then(|(a, b)| a.checked_add(b)), common),
                ArithmeticOperator::Subtract => (both().and_then(|(a, b)| a.checked_sub(b)), common),
                ArithmeticOperator::Multiply => (a.checked_mul(*b), s + t),
                ArithmeticOperator::Modulo => (both().and_then(|(a, b)| a.checked_rem(b)), common),
                ArithmeticOperator::Divide => {
                    let scaled = rescale(*a, *s, scale + t);
                    (scaled.map(|a| divide_rounded(a, *b)), scale)
                }
            };
            decimal_of(raw.and_then(|raw| rescale(raw, raw_scale, scale)), precision, scale)
        }
        (Value::Float64(a), Value::Float64(b), _) => {
            if divides && *b == 0.0 {
                return Err("division by zero");
            }
            let result = match operator {
                ArithmeticOperator::Add => a + b,
                ArithmeticOperator::Subtract => a - b,
                ArithmeticOperator::Multiply => a * b,
                ArithmeticOperator::Divide => a / b,
                ArithmeticOperator::Modulo => a % b,
            };
            let finite = a.is_finite() && b.is_finite();
            let vanished = result == 0.0
                && *a != 0.0
                && match operator {
                    ArithmeticOperator::Multiply => *b != 0.0,
                    ArithmeticOperator::Divide => !b.is_infinite(),
                    _ => false,
                };
            let lost = (finite && result.is_infinite()) || vanished;
            if lost { Err("overflow") } else { Ok(Value::Float64(result)) }
        }
        (left, right, data_type) => {
            let (Some(a), Some(b)) = (integer(left), integer(right)) else { panic!("{left:?} {operator} {right:?}") };
            if divides && b == 0 {
                return Err("division by zero");
            }
            let result = match operator {
                ArithmeticOperator::Add => a + b,
                ArithmeticOperator::Subtract => a - b,
                ArithmeticOperator::Multiply => a * b,
                ArithmeticOperator::Divide => a / b,
                ArithmeticOperator::Modulo => a % b,
            };
            integer_of(result, data_type)
        }
    }
}

fn cast(value: &Value, to: DataType) -> Outcome {
    match (value, to) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Decimal { unscaled, scale: from }, DataType::Decimal { precision, scale }) => {
            decimal_of(rescale(*unscaled, *from, scale), precision, scale)
        }
        // The nearest one to the digits that are shown.
        (Value::Decimal { .. }, DataType::Float64) => value.to_string().parse().map(Value::Float64).map_err(|_| "no"),
        (Value::Float32(value), DataType::Float64) => Ok(Value::Float64(f64::from(*value))),
        (Value::Date(days), DataType::Timestamp) => {
            let micros = i64::try_from(i128::from(*days) * 86_400_000_000);
            micros.map(Value::Timestamp).map_err(|_| "beyond all timestamps")
        }
        (value, to) => match (integer(value), to) {
            (Some(value), DataType::Decimal { precision, scale }) => {
                decimal_of(rescale(value, 0, scale), precision, scale)
            }
            (Some(value), DataType::Float32) => Ok(Value::Float32(value as f32)),
            (Some(value), DataType::Float64) => Ok(Value::Float64(value as f64)),
            (Some(value), to) => integer_of(value, to),
            (None, to) => panic!("{value:?} as {to}"),
        },
    }
}
