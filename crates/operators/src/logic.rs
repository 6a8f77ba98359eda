//! Three-valued logic.
//!
//! While it is computed, a truth value is two bytes: whether it is true and whether it is unknown, of which at most one
//! is 1. Without NULLs there is the first one only. AND and OR are a few operations on bits then, for as many rows at a
//! time as the processor has bytes in a register.

use std::borrow::Cow;

use eris_storage::{Column, Comparison, DataType, Value, Values};

use crate::error::OperatorError;
use crate::expression::bits;
use crate::expression::compare::compare;
use crate::expression::instructions::{Level, kernel};
use crate::expression::{Datum, Expression, Rows};

/// AND, which one false decides, or OR, which one true decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connective {
    And,
    Or,
}

/// Truth values of some rows.
#[derive(Debug)]
struct Truth<'a> {
    /// 1 where it is true.
    yes: Cow<'a, [u8]>,
    /// 1 where it is NULL; `None`: nowhere.
    unknown: Option<Vec<u8>>,
}

kernel! {
    fn and_with[](yes: &mut [u8], others: &[u8]) {
        for (yes, other) in yes.iter_mut().zip(others) {
            *yes &= *other;
        }
    }
}

kernel! {
    fn or_with[](yes: &mut [u8], others: &[u8]) {
        for (yes, other) in yes.iter_mut().zip(others) {
            *yes |= *other;
        }
    }
}

kernel! {
    /// True if both are, unknown if neither is false but one is unknown.
    fn and_unknown[](yes: &mut [u8], unknown: &mut [u8], other_yes: &[u8], other_unknown: &[u8]) {
        let others = other_yes.iter().zip(other_unknown);
        for ((yes, unknown), (other_yes, other_unknown)) in yes.iter_mut().zip(unknown).zip(others) {
            let may_be = (*yes | *unknown) & (*other_yes | *other_unknown);
            *yes &= *other_yes;
            *unknown = may_be ^ *yes;
        }
    }
}

kernel! {
    /// True if one is, unknown if neither is true but one is unknown.
    fn or_unknown[](yes: &mut [u8], unknown: &mut [u8], other_yes: &[u8], other_unknown: &[u8]) {
        let others = other_yes.iter().zip(other_unknown);
        for ((yes, unknown), (other_yes, other_unknown)) in yes.iter_mut().zip(unknown).zip(others) {
            *yes |= *other_yes;
            *unknown = (*unknown | *other_unknown) & (*yes ^ 1);
        }
    }
}

kernel! {
    fn map[F: Fn(u8) -> u8](bytes: &[u8], apply: F) -> Vec<u8> {
        let mut out = vec![0; bytes.len()];
        for (out, byte) in out.iter_mut().zip(bytes) {
            *out = apply(*byte);
        }
        out
    }
}

kernel! {
    /// How many bytes are 1; none is more.
    fn count[](bytes: &[u8]) -> usize {
        let mut count = 0;
        for bytes in bytes.chunks(255) {
            // Up to 255 of them fit a byte.
            let mut part = 0_u8;
            for byte in bytes {
                part = part.wrapping_add(*byte);
            }
            count += usize::from(part);
        }
        count
    }
}

fn flipped(bytes: &[u8]) -> Vec<u8> {
    map(Level::for_rows(bytes.len()), bytes, |byte| byte ^ 1)
}

impl<'a> Truth<'a> {
    fn of(datum: &'a Datum, rows: usize) -> Self {
        let all = |yes, unknown| Self {
            yes: vec![u8::from(yes); rows].into(),
            unknown: if unknown { Some(vec![1; rows]) } else { None },
        };
        match datum {
            Datum::Constant(Value::Boolean(value)) => all(*value, false),
            Datum::Constant(_) => all(false, true),
            Datum::Column(Column { values: Values::Boolean(values), validity, .. }) => match validity {
                None => Self { yes: Cow::Borrowed(values), unknown: None },
                Some(validity) => {
                    let mut yes = bits::bytes_of(validity);
                    let unknown = flipped(&yes);
                    and_with(Level::for_rows(rows), &mut yes, values);
                    Self { yes: yes.into(), unknown: Some(unknown) }
                }
            },
            Datum::Column(_) => all(false, true),
        }
    }

    fn into_datum(self) -> Datum {
        let validity = match self.unknown {
            Some(unknown) if unknown.contains(&1) => Some(bits::bitmap_of(&flipped(&unknown))),
            _ => None,
        };
        let values = Values::Boolean(self.yes.into_owned().into());
        Datum::Column(Column { data_type: DataType::Boolean, validity, values })
    }

    /// 1 where it is false.
    fn no(&self) -> Vec<u8> {
        let mut not_no = self.yes.to_vec();
        if let Some(unknown) = &self.unknown {
            or_with(Level::for_rows(not_no.len()), &mut not_no, unknown);
        }
        flipped(&not_no)
    }

    /// Connects it with others of the same rows.
    fn connect(&mut self, connective: Connective, other: &Truth<'_>) {
        let level = Level::for_rows(other.yes.len());
        let yes = self.yes.to_mut();
        if self.unknown.is_none() && other.unknown.is_none() {
            match connective {
                Connective::And => and_with(level, yes, &other.yes),
                Connective::Or => or_with(level, yes, &other.yes),
            }
            return;
        }
        let nowhere = || vec![0; other.yes.len()];
        let unknown = self.unknown.get_or_insert_with(nowhere);
        let other_unknown = other.unknown.as_deref().map_or_else(|| nowhere().into(), Cow::Borrowed);
        match connective {
            Connective::And => and_unknown(level, yes, unknown, &other.yes, &other_unknown),
            Connective::Or => or_unknown(level, yes, unknown, &other.yes, &other_unknown),
        }
    }

    /// Those of some rows.
    fn take(&self, rows: &[u32]) -> Truth<'static> {
        let take = |bytes: &[u8]| rows.iter().map(|row| bytes[*row as usize]).collect::<Vec<u8>>();
        Truth { yes: take(&self.yes).into(), unknown: self.unknown.as_deref().map(take) }
    }

    /// Puts others in the place of some rows.
    fn put(&mut self, rows: &[u32], others: &Truth<'_>) {
        let put = |bytes: &mut [u8], others: &[u8]| {
            for (row, other) in rows.iter().zip(others) {
                bytes[*row as usize] = *other;
            }
        };
        put(self.yes.to_mut(), &others.yes);
        if let Some(unknown) = &others.unknown {
            put(self.unknown.get_or_insert_with(|| vec![0; self.yes.len()]), unknown);
        }
    }

    /// 1 for each row that a connective has not decided.
    fn open(&self, connective: Connective) -> Cow<'_, [u8]> {
        match (connective, &self.unknown) {
            (Connective::And, None) => Cow::Borrowed(&self.yes),
            (Connective::And, Some(unknown)) => {
                let mut open = self.yes.to_vec();
                or_with(Level::for_rows(open.len()), &mut open, unknown);
                open.into()
            }
            (Connective::Or, _) => flipped(&self.yes).into(),
        }
    }
}

/// 1 for each row for which a condition is true.
pub(crate) fn truth_of(condition: &Datum, rows: usize) -> Vec<u8> {
    Truth::of(condition, rows).yes.into_owned()
}

/// The rows for which a condition is true.
pub(crate) fn true_rows(condition: &Datum, rows: usize) -> Vec<u32> {
    bits::positions_of(&Truth::of(condition, rows).yes)
}

/// AND of all parts.
pub(crate) fn all(parts: &[Expression], rows: &Rows<'_>) -> Result<Datum, OperatorError> {
    combine(parts, rows, Connective::And)
}

/// OR of all parts.
pub(crate) fn any(parts: &[Expression], rows: &Rows<'_>) -> Result<Datum, OperatorError> {
    combine(parts, rows, Connective::Or)
}

/// AND decides on the first false, OR on the first true. Parts that can fail are computed for the rows that are still
/// open only, so that `x <> 0 and 1 / x > 2` does not divide by zero; so is every part for which copying the values of
/// those rows costs less than computing it for all.
fn combine(parts: &[Expression], rows: &Rows<'_>, connective: Connective) -> Result<Datum, OperatorError> {
    let all = rows.len();
    if all == 1 {
        return combine_one(parts, rows, connective);
    }
    let level = Level::for_rows(all);
    let Some((first, others)) = parts.split_first() else {
        return Ok(Datum::Constant(Value::Boolean(connective == Connective::And)));
    };
    let first = first.evaluate_on(rows)?;
    let mut truth = Truth::of(&first, all);
    for part in others {
        let open = truth.open(connective);
        let count = count(level, &open);
        if count == 0 {
            break;
        }
        if count == all || (count * part.sparse_below() >= all && !part.can_fail()) {
            let other = part.evaluate_on(rows)?;
            truth.connect(connective, &Truth::of(&other, all));
            continue;
        }
        let open = bits::positions_of(&open);
        let positions = rows.positions(&open);
        let other = part.evaluate_on(&rows.at(&positions))?;
        let mut connected = truth.take(&open);
        connected.connect(connective, &Truth::of(&other, open.len()));
        truth.put(&open, &connected);
    }
    Ok(truth.into_datum())
}

/// The same for a single row, as point accesses have it.
fn combine_one(parts: &[Expression], rows: &Rows<'_>, connective: Connective) -> Result<Datum, OperatorError> {
    let decides = connective == Connective::Or;
    let mut result = Value::Boolean(!decides);
    for part in parts {
        let value = match part.evaluate_on(rows)? {
            Datum::Constant(value) => value,
            Datum::Column(column) => column.value(0),
        };
        match value {
            Value::Boolean(value) if value == decides => return Ok(Datum::Constant(Value::Boolean(value))),
            Value::Boolean(_) => {}
            _ => result = Value::Null,
        }
    }
    Ok(Datum::Constant(result))
}

/// Three-valued negation.
pub(crate) fn not(input: Datum) -> Datum {
    match input {
        Datum::Constant(Value::Boolean(value)) => Datum::Constant(Value::Boolean(!value)),
        Datum::Constant(_) => Datum::Constant(Value::Null),
        Datum::Column(Column { validity, values: Values::Boolean(values), .. }) => {
            let values = Values::Boolean(flipped(&values).into());
            Datum::Column(Column { data_type: DataType::Boolean, validity, values })
        }
        Datum::Column(_) => Datum::Constant(Value::Null),
    }
}

fn of_truth(truth: Vec<u8>) -> Datum {
    Datum::Column(Column { data_type: DataType::Boolean, validity: None, values: Values::Boolean(truth.into()) })
}

/// IS NULL, or IS NOT NULL if negated.
pub(crate) fn is_null(input: &Datum, negated: bool) -> Datum {
    match input {
        Datum::Constant(value) => Datum::Constant(Value::Boolean(value.is_null() != negated)),
        Datum::Column(column) => of_truth(match &column.validity {
            None => vec![u8::from(negated); column.len()],
            Some(validity) if negated => bits::bytes_of(validity),
            Some(validity) => flipped(&bits::bytes_of(validity)),
        }),
    }
}

/// Whether a truth value is (or is not) true or false; never NULL.
pub(crate) fn is_truth(input: &Datum, truth: bool, negated: bool) -> Datum {
    match input {
        Datum::Constant(value) => Datum::Constant(Value::Boolean((*value == Value::Boolean(truth)) != negated)),
        Datum::Column(column) => {
            let known = Truth::of(input, column.len());
            let is = if truth { known.yes.into_owned() } else { known.no() };
            of_truth(if negated { flipped(&is) } else { is })
        }
    }
}

/// Whether two values are different, where NULL is a value; with `same`, whether they are the same.
pub(crate) fn is_distinct(left: &Datum, right: &Datum, same: bool, rows: usize) -> Datum {
    let null = |datum: &Datum| is_null(datum, false);
    let (left_null, right_null) = (null(left), null(right));
    if let (Datum::Constant(left), Datum::Constant(right)) = (left, right) {
        return Datum::Constant(Value::Boolean((left == right) == same));
    }
    let (left_null, right_null) = (truth_of(&left_null, rows), truth_of(&right_null, rows));
    let equal = truth_of(&compare(Comparison::Equal, left, right), rows);
    let nulls = left_null.iter().zip(&right_null);
    let is_same = equal.iter().zip(nulls).map(|(equal, (left, right))| equal | (left & right));
    of_truth(is_same.map(|is_same| u8::from((is_same != 0) == same)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::ArithmeticOperator;
    use eris_storage::Batch;

    fn column(index: usize) -> Expression {
        Expression::Column { index, data_type: DataType::Boolean }
    }

    #[test]
    fn truth_tables() {
        let three = [Value::Boolean(true), Value::Boolean(false), Value::Null];
        let pairs: Vec<Vec<Value>> =
            three.iter().flat_map(|a| three.iter().map(move |b| vec![a.clone(), b.clone()])).collect();
        // As few rows as there are pairs, and many.
        for copies in [1, 40] {
            let rows: Vec<Vec<Value>> = pairs.iter().cycle().take(pairs.len() * copies).cloned().collect();
            let batch = Batch::from_rows(&[DataType::Boolean, DataType::Boolean], &rows);
            let of = |expression: Expression| expression.column(&batch, &[]).unwrap();
            let and = of(Expression::And([column(0), column(1)].into()));
            let or = of(Expression::Or([column(0), column(1)].into()));
            let not = of(Expression::Not(Box::new(column(0))));
            let is = |truth, negated| of(Expression::IsTruth { input: Box::new(column(0)), truth, negated });
            let distinct =
                |same| of(Expression::Distinct { left: Box::new(column(0)), right: Box::new(column(1)), same });
            for (row, values) in rows.iter().enumerate() {
                let (a, b) = (&values[0], &values[1]);
                let is_value = |value: &Value, truth: bool| *value == Value::Boolean(truth);
                let expected = if is_value(a, false) || is_value(b, false) {
                    Value::Boolean(false)
                } else if a.is_null() || b.is_null() {
                    Value::Null
                } else {
                    Value::Boolean(true)
                };
                assert_eq!(and.value(row), expected, "{a} and {b}");
                let expected = if is_value(a, true) || is_value(b, true) {
                    Value::Boolean(true)
                } else if a.is_null() || b.is_null() {
                    Value::Null
                } else {
                    Value::Boolean(false)
                };
                assert_eq!(or.value(row), expected, "{a} or {b}");
                let expected = if a.is_null() { Value::Null } else { Value::Boolean(is_value(a, false)) };
                assert_eq!(not.value(row), expected, "not {a}");
                for (truth, negated) in [(true, false), (true, true), (false, false), (false, true)] {
                    let expected = Value::Boolean(is_value(a, truth) != negated);
                    assert_eq!(is(truth, negated).value(row), expected, "{a} is {negated} {truth}");
                }
                for same in [false, true] {
                    assert_eq!(distinct(same).value(row), Value::Boolean((a == b) == same), "{a} distinct {b}");
                }
            }
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
        for parts in [[guard.clone(), test.clone()], [test, guard]] {
            // Whatever is written first, what can fail is computed last.
            let both = Expression::and(parts).column(&batch, &[]).unwrap();
            assert_eq!((both.value(0), both.value(1)), (Value::Boolean(false), Value::Boolean(true)));
        }
    }
}
