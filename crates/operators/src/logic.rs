//! Comparisons and three-valued logic.

use std::cmp::Ordering;

use eris_storage::{Batch, BitmapBuilder, Column, Comparison, DataType, Value, Values};

use crate::arithmetic::validity_of;
use crate::error::OperatorError;
use crate::expression::{Datum, Expression};

/// Compares both sides row by row; NULL where one is NULL.
pub(crate) fn compare(comparison: Comparison, left: &Datum, right: &Datum, rows: usize) -> Datum {
    match (left, right) {
        (Datum::Constant(Value::Null), _) | (_, Datum::Constant(Value::Null)) => Datum::Constant(Value::Null),
        (Datum::Constant(a), Datum::Constant(b)) => Datum::Constant(Value::Boolean(comparison.accepts(a.cmp(b)))),
        _ => {
            let validity = validity_of(left, right, rows);
            let values: Vec<u8> = match fast(comparison, left, right) {
                Some(values) => values,
                None => (0..rows).map(|row| u8::from(comparison.accepts(order(left, right, row)))).collect(),
            };
            Datum::Column(Column { data_type: DataType::Boolean, validity, values: Values::Boolean(values.into()) })
        }
    }
}

/// Integers against a constant or each other: no value is copied out.
fn fast(comparison: Comparison, left: &Datum, right: &Datum) -> Option<Vec<u8>> {
    fn rows<T: Ord + Copy>(comparison: Comparison, values: &[T], constant: T) -> Vec<u8> {
        values.iter().map(|value| u8::from(comparison.accepts(value.cmp(&constant)))).collect()
    }
    let Datum::Column(column) = left else { return None };
    match (&column.values, right) {
        (Values::Int16(values), Datum::Constant(Value::Int16(constant))) => Some(rows(comparison, values, *constant)),
        (Values::Int32(values), Datum::Constant(Value::Int32(constant) | Value::Date(constant))) => {
            Some(rows(comparison, values, *constant))
        }
        (Values::Int64(values), Datum::Constant(Value::Int64(constant) | Value::Timestamp(constant))) => {
            Some(rows(comparison, values, *constant))
        }
        _ => None,
    }
}

fn order(left: &Datum, right: &Datum, row: usize) -> Ordering {
    match (left, right) {
        (Datum::Column(a), Datum::Column(b)) => a.value(row).cmp(&b.value(row)),
        (Datum::Column(a), Datum::Constant(b)) => a.value(row).cmp(b),
        (Datum::Constant(a), Datum::Column(b)) => a.cmp(&b.value(row)),
        (Datum::Constant(a), Datum::Constant(b)) => a.cmp(b),
    }
}

/// What a boolean is, row by row.
fn truth(datum: &Datum, row: usize) -> Option<bool> {
    match datum {
        Datum::Constant(Value::Boolean(value)) => Some(*value),
        Datum::Constant(_) => None,
        Datum::Column(column) => match &column.values {
            Values::Boolean(values) if !column.is_null(row) => Some(values[row] != 0),
            _ => None,
        },
    }
}

fn booleans(rows: usize, value: impl Fn(usize) -> Option<bool>) -> Datum {
    let mut valid = BitmapBuilder::default();
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        let value = value(row);
        valid.push(value.is_some());
        values.push(u8::from(value == Some(true)));
    }
    let column =
        Column { data_type: DataType::Boolean, validity: Some(valid.finish()), values: Values::Boolean(values.into()) };
    Datum::Column(column.without_idle_validity())
}

pub(crate) fn all(parts: &[Expression], input: &Batch, parameters: &[Value]) -> Result<Datum, OperatorError> {
    combine(parts, input, parameters, false)
}

pub(crate) fn any(parts: &[Expression], input: &Batch, parameters: &[Value]) -> Result<Datum, OperatorError> {
    combine(parts, input, parameters, true)
}

/// AND decides on the first false, OR on the first true; `decides` is that value. Later parts are evaluated for the
/// rows that are still open only, so that `x <> 0 and 1 / x > 2` does not divide by zero.
fn combine(parts: &[Expression], input: &Batch, parameters: &[Value], decides: bool) -> Result<Datum, OperatorError> {
    let mut decided: Vec<Option<bool>> = vec![Some(!decides); input.rows];
    let mut open: Vec<u32> = (0..input.rows as u32).collect();
    for part in parts {
        if open.is_empty() {
            break;
        }
        let whole = open.len() == input.rows;
        let subset;
        let rows = if whole {
            input
        } else {
            subset = input.take(&open);
            &subset
        };
        let values = part.evaluate(rows, parameters)?;
        let mut still = Vec::with_capacity(open.len());
        for (at, row) in open.iter().enumerate() {
            match truth(&values, at) {
                Some(value) if value == decides => decided[*row as usize] = Some(decides),
                Some(_) => still.push(*row),
                None => {
                    decided[*row as usize] = None;
                    still.push(*row);
                }
            }
        }
        open = still;
    }
    Ok(booleans(input.rows, |row| decided[row]))
}

pub(crate) fn not(input: Datum, rows: usize) -> Datum {
    match input {
        Datum::Constant(Value::Boolean(value)) => Datum::Constant(Value::Boolean(!value)),
        Datum::Constant(_) => Datum::Constant(Value::Null),
        column @ Datum::Column(_) => booleans(rows, |row| truth(&column, row).map(|value| !value)),
    }
}

pub(crate) fn is_null(input: &Datum, negated: bool, rows: usize) -> Datum {
    match input {
        Datum::Constant(value) => Datum::Constant(Value::Boolean(value.is_null() != negated)),
        Datum::Column(column) => booleans(rows, |row| Some(column.is_null(row) != negated)),
    }
}

/// The rows for which a condition is true.
pub(crate) fn true_rows(condition: &Datum, rows: usize) -> Vec<u32> {
    (0..rows as u32).filter(|row| truth(condition, *row as usize) == Some(true)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::ArithmeticOperator;

    fn column(index: usize) -> Expression {
        Expression::Column { index, data_type: DataType::Boolean }
    }

    #[test]
    fn truth_tables() {
        let three = [Value::Boolean(true), Value::Boolean(false), Value::Null];
        let rows: Vec<Vec<Value>> =
            three.iter().flat_map(|a| three.iter().map(move |b| vec![a.clone(), b.clone()])).collect();
        let batch = Batch::from_rows(&[DataType::Boolean, DataType::Boolean], &rows);
        let and = Expression::And([column(0), column(1)].into()).column(&batch, &[]).unwrap();
        let or = Expression::Or([column(0), column(1)].into()).column(&batch, &[]).unwrap();
        let not = Expression::Not(Box::new(column(0))).column(&batch, &[]).unwrap();
        for (row, values) in rows.iter().enumerate() {
            let (a, b) = (&values[0], &values[1]);
            let is = |value: &Value, truth: bool| *value == Value::Boolean(truth);
            let expected = if is(a, false) || is(b, false) {
                Value::Boolean(false)
            } else if a.is_null() || b.is_null() {
                Value::Null
            } else {
                Value::Boolean(true)
            };
            assert_eq!(and.value(row), expected, "{a} and {b}");
            let expected = if is(a, true) || is(b, true) {
                Value::Boolean(true)
            } else if a.is_null() || b.is_null() {
                Value::Null
            } else {
                Value::Boolean(false)
            };
            assert_eq!(or.value(row), expected, "{a} or {b}");
            let expected = if a.is_null() { Value::Null } else { Value::Boolean(is(a, false)) };
            assert_eq!(not.value(row), expected, "not {a}");
        }
    }

    #[test]
    fn later_parts_see_open_rows_only() {
        let batch = Batch::from_rows(&[DataType::Int32], &[vec![Value::Int32(0)], vec![Value::Int32(2)]]);
        let x = || Box::new(Expression::Column { index: 0, data_type: DataType::Int32 });
        let constant = |n| Box::new(Expression::Constant { value: Value::Int32(n), data_type: DataType::Int32 });
        let guard = Expression::Compare { comparison: Comparison::NotEqual, left: x(), right: constant(0) };
        let divide = Expression::Arithmetic {
            operator: ArithmeticOperator::Divide,
            left: constant(10),
            right: x(),
            data_type: DataType::Int32,
        };
        let test = Expression::Compare { comparison: Comparison::Greater, left: Box::new(divide), right: constant(2) };
        let both = Expression::And([guard, test].into()).column(&batch, &[]).unwrap();
        assert_eq!((both.value(0), both.value(1)), (Value::Boolean(false), Value::Boolean(true)));
    }
}
