//! Three-valued logic.
//!
//! A truth value is two bits while it is computed: whether it may be true and whether it may be false. Both are set for
//! NULL. AND and OR are those of the bits then, for as many rows at a time as the processor has bytes in a register.

use eris_storage::{Column, Comparison, DataType, Value, Values};

use crate::error::OperatorError;
use crate::expression::bits;
use crate::expression::compare::compare;
use crate::expression::instructions::{Level, kernel};
use crate::expression::{Datum, Expression, Rows};

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const UNKNOWN: u8 = 3;

/// With less than one in so many rows left, later conditions are computed for those only: their columns are copied for
/// that, which costs about as much as comparing this many values.
const SPARSE: usize = 4;

kernel! {
    fn and_with[](states: &mut [u8], others: &[u8]) {
        for (state, other) in states.iter_mut().zip(others) {
            *state = (*state & *other & TRUE) | ((*state | *other) & FALSE);
        }
    }
}

kernel! {
    fn or_with[](states: &mut [u8], others: &[u8]) {
        for (state, other) in states.iter_mut().zip(others) {
            *state = ((*state | *other) & TRUE) | (*state & *other & FALSE);
        }
    }
}

kernel! {
    /// A byte for each, of one that has a meaning.
    fn map[F: Fn(u8) -> u8](bytes: &[u8], apply: F) -> Vec<u8> {
        let mut out = vec![0; bytes.len()];
        for (out, byte) in out.iter_mut().zip(bytes) {
            *out = apply(*byte);
        }
        out
    }
}

kernel! {
    fn count_of[](bytes: &[u8], wanted: u8) -> usize {
        let mut count = 0;
        for bytes in bytes.chunks(255) {
            // Up to 255 of them fit a byte.
            let mut part = 0_u8;
            for byte in bytes {
                part = part.wrapping_add(u8::from(*byte == wanted));
            }
            count += usize::from(part);
        }
        count
    }
}

/// The state of each row of a truth value.
fn states_of(datum: &Datum, rows: usize) -> Vec<u8> {
    let level = Level::for_rows(rows);
    match datum {
        Datum::Constant(Value::Boolean(true)) => vec![TRUE; rows],
        Datum::Constant(Value::Boolean(false)) => vec![FALSE; rows],
        Datum::Constant(_) => vec![UNKNOWN; rows],
        Datum::Column(column) => {
            let Values::Boolean(values) = &column.values else { return vec![UNKNOWN; rows] };
            let mut states = map(level, values, |value| if value != 0 { TRUE } else { FALSE });
            if let Some(validity) = &column.validity {
                for (state, valid) in states.iter_mut().zip(bits::bytes_of(validity)) {
                    *state |= if valid != 0 { 0 } else { UNKNOWN };
                }
            }
            states
        }
    }
}

fn of_states(states: &[u8]) -> Datum {
    let level = Level::for_rows(states.len());
    let values = map(level, states, |state| u8::from(state == TRUE));
    let validity = (count_of(level, states, UNKNOWN) > 0)
        .then(|| bits::bitmap_of(&map(level, states, |state| u8::from(state != UNKNOWN))));
    Datum::Column(Column { data_type: DataType::Boolean, validity, values: Values::Boolean(values.into()) })
}

/// 1 for each row for which a condition is true.
pub(crate) fn truth_of(condition: &Datum, rows: usize) -> Vec<u8> {
    match condition {
        Datum::Constant(value) => vec![u8::from(matches!(value, Value::Boolean(true))); rows],
        Datum::Column(Column { validity: None, values: Values::Boolean(values), .. }) => values.to_vec(),
        Datum::Column(_) => map(Level::for_rows(rows), &states_of(condition, rows), |state| u8::from(state == TRUE)),
    }
}

/// The rows for which a condition is true.
pub(crate) fn true_rows(condition: &Datum, rows: usize) -> Vec<u32> {
    match condition {
        Datum::Column(Column { validity: None, values: Values::Boolean(values), .. }) => bits::positions_of(values),
        other => bits::positions_of(&truth_of(other, rows)),
    }
}

/// AND of all parts.
pub(crate) fn all(parts: &[Expression], rows: &Rows<'_>) -> Result<Datum, OperatorError> {
    combine(parts, rows, FALSE)
}

/// OR of all parts.
pub(crate) fn any(parts: &[Expression], rows: &Rows<'_>) -> Result<Datum, OperatorError> {
    combine(parts, rows, TRUE)
}

/// AND decides on the first false, OR on the first true; `decides` is that state. Parts that can fail are computed for
/// the rows that are still open only, so that `x <> 0 and 1 / x > 2` does not divide by zero; so is everything once few
/// rows are open.
fn combine(parts: &[Expression], rows: &Rows<'_>, decides: u8) -> Result<Datum, OperatorError> {
    let all = rows.len();
    if all == 1 {
        return combine_one(parts, rows, decides);
    }
    let level = Level::for_rows(all);
    let merge = |states: &mut [u8], others: &[u8]| {
        if decides == FALSE { and_with(level, states, others) } else { or_with(level, states, others) }
    };
    let mut states = vec![UNKNOWN ^ decides; all];
    for (at, part) in parts.iter().enumerate() {
        let open = if at == 0 { all } else { all - count_of(level, &states, decides) };
        if open == 0 {
            break;
        }
        if open == all || (open * SPARSE >= all && !part.can_fail()) {
            let others = states_of(&part.evaluate_on(rows)?, all);
            if at == 0 {
                states = others;
            } else {
                merge(&mut states, &others);
            }
            continue;
        }
        let open = bits::positions_of(&map(level, &states, |state| u8::from(state != decides)));
        let positions = rows.positions(&open);
        let others = states_of(&part.evaluate_on(&rows.at(&positions))?, open.len());
        let mut own: Vec<u8> = open.iter().map(|row| states[*row as usize]).collect();
        merge(&mut own, &others);
        for (row, state) in open.iter().zip(own) {
            states[*row as usize] = state;
        }
    }
    Ok(of_states(&states))
}

/// The same for a single row, as point accesses have it.
fn combine_one(parts: &[Expression], rows: &Rows<'_>, decides: u8) -> Result<Datum, OperatorError> {
    let mut result = Value::Boolean(decides == FALSE);
    for part in parts {
        let value = match part.evaluate_on(rows)? {
            Datum::Constant(value) => value,
            Datum::Column(column) => column.value(0),
        };
        match value {
            Value::Boolean(value) if value == (decides == TRUE) => return Ok(Datum::Constant(Value::Boolean(value))),
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
            let values = map(Level::for_rows(values.len()), &values, |value| value ^ 1);
            Datum::Column(Column { data_type: DataType::Boolean, validity, values: Values::Boolean(values.into()) })
        }
        Datum::Column(column) => of_states(&vec![UNKNOWN; column.len()]),
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
            Some(validity) => map(Level::for_rows(column.len()), &bits::bytes_of(validity), |valid| valid ^ 1),
        }),
    }
}

/// Whether a truth value is (or is not) true or false; never NULL.
pub(crate) fn is_truth(input: &Datum, truth: bool, negated: bool) -> Datum {
    match input {
        Datum::Constant(value) => Datum::Constant(Value::Boolean((*value == Value::Boolean(truth)) != negated)),
        Datum::Column(column) => {
            let wanted = if truth { TRUE } else { FALSE };
            let states = states_of(input, column.len());
            of_truth(map(Level::for_rows(states.len()), &states, |state| u8::from((state == wanted) != negated)))
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
