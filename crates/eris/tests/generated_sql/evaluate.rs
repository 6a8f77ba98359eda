//! What an expression is worth, by PostgreSQL's rules, written without a look at ERIS.
//!
//! An error is noted when it comes up, and handed on unless something else decides: `false AND 1 / 0` is false, and
//! division by zero is noted, because a database may compute the right side first. So after a run of the evaluator
//! the noted errors are those that a database may report, and an error that came through is one that it must report.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::expression::{Expr, Function, Node, Operator, Test};
use crate::value::{
    DIVISION_BY_ZERO, Decimal, Kind, MANY_ROWS, OVERFLOW, Row, State, TOO_LONG, Type, Value, date_text,
};

/// A rule that a wrong evaluator has, for the tests that show that one is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A comparison with NULL is false.
    NullComparesFalse,
    /// `x NOT IN (..., NULL)` is true where x is not found.
    NotInForgetsNull,
    /// Integer division rounds down.
    DivisionFloors,
    /// An outer join loses the rows that find no partner.
    JoinForgetsUnmatched,
    /// ROLLBACK keeps the changes.
    RollbackKeeps,
}

pub type Evaluated = Result<Value, State>;

/// The tables as they are now, and what came up.
pub struct Context<'a> {
    pub tables: &'a [Vec<Row>],
    pub noted: RefCell<BTreeSet<State>>,
    pub mistake: Option<Mistake>,
    /// Whether an error came up where a value is not needed for certain.
    pub avoidable: Cell<bool>,
    /// Also compute every expression for every combination of rows: joins and filters may be run in any order.
    pub eager: bool,
}

/// A row in sight, those of the queries around it, and the group that aggregates run over.
pub struct Frame<'f> {
    pub row: &'f [Value],
    pub group: Option<&'f [Row]>,
    pub outer: Option<&'f Frame<'f>>,
}

impl<'a> Context<'a> {
    pub fn new(tables: &'a [Vec<Row>], mistake: Option<Mistake>) -> Context<'a> {
        Context { tables, noted: RefCell::default(), mistake, avoidable: Cell::new(false), eager: false }
    }

    pub fn fault<T>(&self, state: State) -> Result<T, State> {
        self.noted.borrow_mut().insert(state);
        Err(state)
    }

    /// Notes what comes up when the parts without columns are computed ahead.
    pub fn fold(&self, expr: &Expr) {
        if expr.is_constant() {
            let _ = self.value(expr, &Frame { row: &[], group: None, outer: None });
        } else {
            expr.children().into_iter().for_each(|child| self.fold(child));
        }
    }

    pub fn value(&self, expr: &Expr, frame: &Frame<'_>) -> Evaluated {
        match &expr.node {
            Node::Literal { value, .. } => Ok(value.clone()),
            Node::Column { depth, index, .. } => {
                let mut frame = frame;
                for _ in 0..*depth {
                    frame = frame.outer.expect("a column of an outer query has one");
                }
                Ok(frame.row[*index].clone())
            }
            Node::Negate(inner) => match self.value(inner, frame)? {
                Value::Int(value) => self.integer(-i128::from(value), expr.kind),
                Value::Numeric(value) => Ok(Value::Numeric(value.negated())),
                Value::Float(value) => Ok(Value::Float(-value)),
                other => Ok(other),
            },
            Node::Not(inner) => Ok(truth(self.truth(inner, frame)?.map(|value| !value))),
            Node::Binary(Operator::And, left, right) => {
                decided(false, self.truth(left, frame), self.truth(right, frame))
            }
            Node::Binary(Operator::Or, left, right) => decided(true, self.truth(left, frame), self.truth(right, frame)),
            Node::Binary(operator @ (Operator::Distinct | Operator::NotDistinct), left, right) => {
                let (left, right) = (self.value(left, frame), self.value(right, frame));
                let distinct = left?.sort(&right?) != Ordering::Equal;
                Ok(Value::Bool(distinct == (*operator == Operator::Distinct)))
            }
            Node::Binary(operator, left, right) if Operator::COMPARISONS.contains(operator) => {
                self.comparison(*operator, left, right, frame)
            }
            Node::Binary(operator, left, right) => match self.strict(&[left, right], frame)?.as_deref() {
                Some([left, right]) => self.arithmetic(*operator, expr.kind, left, right),
                _ => Ok(Value::Null),
            },
            Node::Between { input, low, high, negated } => {
                let above = self.comparison(Operator::GreaterOrEqual, input, low, frame).map(|value| as_truth(&value));
                let below = self.comparison(Operator::LessOrEqual, input, high, frame).map(|value| as_truth(&value));
                let between = as_truth(&decided(false, above, below)?);
                Ok(truth(between.map(|between| between != *negated)))
            }
            Node::InList { input, list, negated } => {
                let mut found = Ok(Value::Bool(false));
                for item in list {
                    let equal = self.comparison(Operator::Equal, input, item, frame).map(|value| as_truth(&value));
                    found = decided(true, found.map(|value| as_truth(&value)), equal);
                }
                Ok(truth(self.in_truth(as_truth(&found?), *negated)))
            }
            Node::Like { input, pattern, negated } => {
                let Value::Text(text) = self.value(input, frame)? else { return Ok(Value::Null) };
                let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
                Ok(Value::Bool(like(&text, &pattern) != *negated))
            }
            Node::Is(test, inner) => {
                let value = self.value(inner, frame);
                // What cannot be NULL is not computed to find that out.
                if value.is_err() && matches!(test, Test::Null | Test::NotNull) {
                    self.avoidable.set(true);
                }
                let value = value?;
                let is = |wanted| matches!(value, Value::Bool(value) if value == wanted);
                Ok(Value::Bool(match test {
                    Test::Null | Test::Unknown => value.is_null(),
                    Test::NotNull | Test::NotUnknown => !value.is_null(),
                    Test::True => is(true),
                    Test::NotTrue => !is(true),
                    Test::False => is(false),
                    Test::NotFalse => !is(false),
                }))
            }
            Node::Case { operand, branches, otherwise } => {
                for (when, then) in branches {
                    let met = match operand {
                        Some(operand) => as_truth(&self.comparison(Operator::Equal, operand, when, frame)?),
                        None => self.truth(when, frame)?,
                    };
                    if met == Some(true) {
                        return self.value(then, frame);
                    }
                }
                otherwise.as_ref().map_or(Ok(Value::Null), |otherwise| self.value(otherwise, frame))
            }
            Node::Cast(inner, to) => {
                let value = self.value(inner, frame)?;
                self.cast(value, *to, false)
            }
            Node::Call(function, arguments) => self.call(*function, expr.kind, arguments, frame),
            Node::Aggregate { function, distinct, argument } => {
                let group = frame.group.expect("an aggregate has a group");
                self.aggregate(*function, *distinct, argument.as_deref(), group, frame)
            }
            Node::InQuery { input, query, negated } => {
                let (input, rows) = (self.value(input, frame), self.query(query, Some(frame)));
                let rows = rows?;
                // Compared with no row, the value is not needed.
                if rows.is_empty() {
                    return Ok(Value::Bool(*negated));
                }
                let input = input?;
                let equal: Vec<Option<bool>> =
                    rows.iter().map(|row| compared(Operator::Equal, &input, &row[0])).collect();
                let found = match (equal.contains(&Some(true)), equal.contains(&None)) {
                    (false, true) => None,
                    (found, _) => Some(found),
                };
                Ok(truth(self.in_truth(found, *negated)))
            }
            Node::Exists { query, negated } => Ok(Value::Bool(self.query(query, Some(frame))?.is_empty() == *negated)),
            Node::Scalar(query) => {
                let mut rows = self.query(query, Some(frame))?;
                if rows.len() > 1 {
                    return self.fault(MANY_ROWS);
                }
                Ok(rows.pop().map_or(Value::Null, |mut row| row.remove(0)))
            }
        }
    }

    fn in_truth(&self, found: Option<bool>, negated: bool) -> Option<bool> {
        match found {
            None if negated && self.mistake == Some(Mistake::NotInForgetsNull) => Some(true),
            found => found.map(|found| found != negated),
        }
    }

    pub fn truth(&self, expr: &Expr, frame: &Frame<'_>) -> Result<Option<bool>, State> {
        self.value(expr, frame).map(|value| as_truth(&value))
    }

    /// Whether a condition of WHERE, HAVING or ON is met. Where one of its parts is not, the others need no value.
    pub fn met(&self, condition: &Expr, frame: &Frame<'_>) -> Result<bool, State> {
        if let Node::Binary(Operator::And, left, right) = &condition.node {
            return match (self.met(left, frame), self.met(right, frame)) {
                (Ok(false), _) | (_, Ok(false)) => Ok(false),
                (left, right) => Ok(left? && right?),
            };
        }
        self.truth(condition, frame).map(|truth| truth == Some(true))
    }

    /// The values, or `None` if one is NULL. Beside a constant NULL nothing has to be computed.
    fn strict(&self, exprs: &[&Expr], frame: &Frame<'_>) -> Result<Option<Vec<Value>>, State> {
        let values: Vec<Evaluated> = exprs.iter().map(|expr| self.value(expr, frame)).collect();
        let null = |(expr, value): (&&Expr, &Evaluated)| expr.is_constant() && matches!(value, Ok(Value::Null));
        if exprs.iter().zip(&values).any(null) {
            return Ok(None);
        }
        let values = values.into_iter().collect::<Result<Vec<Value>, State>>()?;
        Ok((!values.iter().any(Value::is_null)).then_some(values))
    }

    fn comparison(&self, operator: Operator, left: &Expr, right: &Expr, frame: &Frame<'_>) -> Evaluated {
        Ok(match self.strict(&[left, right], frame)?.as_deref() {
            Some([left, right]) => truth(compared(operator, left, right)),
            _ if self.mistake == Some(Mistake::NullComparesFalse) => Value::Bool(false),
            _ => Value::Null,
        })
    }

    fn integer(&self, value: i128, kind: Kind) -> Evaluated {
        let (low, high) = kind.range();
        if value < i128::from(low) || value > i128::from(high) {
            return self.fault(OVERFLOW);
        }
        Ok(Value::Int(value as i64))
    }

    fn arithmetic(&self, operator: Operator, kind: Kind, left: &Value, right: &Value) -> Evaluated {
        match (left, right) {
            (Value::Text(left), Value::Text(right)) => return Ok(Value::Text(format!("{left}{right}"))),
            (Value::Date(left), Value::Date(right)) => return Ok(Value::Int(left - right)),
            (Value::Date(left), Value::Int(right)) if operator == Operator::Add => {
                return Ok(Value::Date(left + right));
            }
            (Value::Date(left), Value::Int(right)) => return Ok(Value::Date(left - right)),
            _ => {}
        }
        if kind.is_float() {
            return self.floating(operator, kind, left.float(), right.float());
        }
        if kind == Kind::Numeric {
            let (left, right) = (left.decimal(), right.decimal());
            return Ok(Value::Numeric(match operator {
                Operator::Add => left.plus(right),
                Operator::Subtract => left.plus(right.negated()),
                Operator::Multiply => left.times(right),
                _ if right.digits == 0 => return self.fault(DIVISION_BY_ZERO),
                _ => left.remainder(right),
            }));
        }
        let (Value::Int(left), Value::Int(right)) = (left, right) else { unreachable!("{left:?} {right:?}") };
        let (left, right) = (i128::from(*left), i128::from(*right));
        if matches!(operator, Operator::Divide | Operator::Modulo) && right == 0 {
            return self.fault(DIVISION_BY_ZERO);
        }
        let value = match operator {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide if self.mistake == Some(Mistake::DivisionFloors) => left.div_euclid(right),
            Operator::Divide => left / right,
            _ => left % right,
        };
        self.integer(value, kind)
    }

    fn floating(&self, operator: Operator, kind: Kind, left: f64, right: f64) -> Evaluated {
        if operator == Operator::Divide && right == 0.0 {
            return self.fault(DIVISION_BY_ZERO);
        }
        let exact = match operator {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            _ => left / right,
        };
        // Both operands are 32 bits wide, so that rounding twice is rounding once (Figueroa, 1995).
        let value = if kind == Kind::Float4 { f64::from(exact as f32) } else { exact };
        let vanished = value == 0.0
            && left != 0.0
            && (operator == Operator::Divide || (operator == Operator::Multiply && right != 0.0));
        if value.is_infinite() || vanished { self.fault(OVERFLOW) } else { Ok(Value::Float(value)) }
    }

    /// An explicit cast, or one that stores into a column.
    pub fn cast(&self, value: Value, to: Type, assigned: bool) -> Evaluated {
        let kind = to.kind();
        Ok(match (value, to) {
            (Value::Null, _) => Value::Null,
            (value @ (Value::Int(_) | Value::Numeric(_)), Type::Numeric(precision, scale)) => {
                let rounded = value.decimal().rounded(scale);
                if rounded.digits.unsigned_abs() >= 10_u128.pow(precision) {
                    return self.fault(OVERFLOW);
                }
                Value::Numeric(rounded)
            }
            (Value::Int(value), _) if kind.is_integer() => self.integer(i128::from(value), kind)?,
            (Value::Bool(value), _) if kind.is_integer() => Value::Int(i64::from(value)),
            (Value::Numeric(value), _) if kind.is_integer() => self.integer(value.rounded(0).digits, kind)?,
            (Value::Float(value), _) if kind.is_integer() => {
                let rounded = value.round_ties_even();
                // The bounds of 64 bits are 2^63, the upper one out of range.
                if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
                    return self.fault(OVERFLOW);
                }
                self.integer(rounded as i128, kind)?
            }
            (Value::Float(value), _) if kind == Kind::Float4 => {
                let narrow = f64::from(value as f32);
                if narrow.is_infinite() || (narrow == 0.0 && value != 0.0) {
                    return self.fault(OVERFLOW);
                }
                Value::Float(narrow)
            }
            (Value::Float(value), _) => Value::Float(value),
            (value @ (Value::Int(_) | Value::Numeric(_)), _) if kind == Kind::Float4 => {
                // Not by way of 64 bits: that would round twice.
                let text = value.decimal().to_string();
                Value::Float(f64::from(text.parse::<f32>().expect("a decimal is a number")))
            }
            (value @ (Value::Int(_) | Value::Numeric(_)), _) if kind == Kind::Float8 => Value::Float(value.float()),
            (value @ (Value::Date(_) | Value::Timestamp(_)), _) if kind == Kind::Timestamp => {
                Value::Timestamp(value.micros())
            }
            (value @ (Value::Date(_) | Value::Timestamp(_)), _) if kind == Kind::Date => {
                Value::Date(value.micros().div_euclid(86_400_000_000))
            }
            (value, _) if kind == Kind::Text => {
                let text = match value {
                    Value::Text(text) => text,
                    Value::Int(value) => value.to_string(),
                    Value::Bool(value) => value.to_string(),
                    Value::Date(date) => date_text(date),
                    other => unreachable!("{other:?} as text"),
                };
                let Type::Varchar(length) = to else { return Ok(Value::Text(text)) };
                if assigned && text.chars().skip(length).any(|character| character != ' ') {
                    return self.fault(TOO_LONG);
                }
                Value::Text(text.chars().take(length).collect())
            }
            (value, _) => value,
        })
    }

    fn call(&self, function: Function, kind: Kind, arguments: &[Expr], frame: &Frame<'_>) -> Evaluated {
        match function {
            Function::Coalesce => {
                for argument in arguments {
                    let value = self.value(argument, frame)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                return Ok(Value::Null);
            }
            Function::Greatest | Function::Least => {
                let values = arguments.iter().map(|argument| self.value(argument, frame));
                let values =
                    values.collect::<Result<Vec<Value>, State>>()?.into_iter().filter(|value| !value.is_null());
                let best = if function == Function::Greatest {
                    values.max_by(Value::sort)
                } else {
                    values.min_by(Value::sort)
                };
                return Ok(best.unwrap_or(Value::Null));
            }
            Function::NullIf => {
                let value = self.value(&arguments[0], frame);
                let equal = self.comparison(Operator::Equal, &arguments[0], &arguments[1], frame)?;
                return if as_truth(&equal) == Some(true) { Ok(Value::Null) } else { value };
            }
            _ => {}
        }
        let arguments: Vec<&Expr> = arguments.iter().collect();
        let Some(values) = self.strict(&arguments, frame)? else { return Ok(Value::Null) };
        Ok(match (function, values.as_slice()) {
            (Function::Abs, [Value::Int(value)]) => self.integer(i128::from(*value).abs(), kind)?,
            (Function::Abs, [Value::Float(value)]) => Value::Float(value.abs()),
            (Function::Abs, [Value::Numeric(Decimal { digits, scale })]) => {
                Value::Numeric(Decimal { digits: digits.abs(), scale: *scale })
            }
            (Function::Round, [Value::Numeric(value), Value::Int(scale)]) => {
                Value::Numeric(value.rounded((*scale as u32).min(value.scale)))
            }
            (Function::Length, [Value::Text(text)]) => Value::Int(text.chars().count() as i64),
            (Function::Upper, [Value::Text(text)]) => Value::Text(text.to_uppercase()),
            (Function::Lower, [Value::Text(text)]) => Value::Text(text.to_lowercase()),
            (Function::Substr, [Value::Text(text), Value::Int(start), Value::Int(count)]) => {
                // Positions before the first count, too.
                let skipped = (start - 1).max(0) as usize;
                let taken = (start - 1 + count - skipped as i64).max(0) as usize;
                Value::Text(text.chars().skip(skipped).take(taken).collect())
            }
            (function, values) => unreachable!("{function:?} of {values:?}"),
        })
    }
}

/// AND (`decisive` is false) and OR: one decisive side is enough, also beside an error.
fn decided(decisive: bool, left: Result<Option<bool>, State>, right: Result<Option<bool>, State>) -> Evaluated {
    if left == Ok(Some(decisive)) || right == Ok(Some(decisive)) {
        return Ok(Value::Bool(decisive));
    }
    let (left, right) = (left?, right?);
    Ok(truth(left.and(right).map(|_| !decisive)))
}

fn compared(operator: Operator, left: &Value, right: &Value) -> Option<bool> {
    let order = left.compare(right)?;
    Some(match operator {
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
        Operator::Less => order == Ordering::Less,
        Operator::LessOrEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

fn truth(value: Option<bool>) -> Value {
    value.map_or(Value::Null, Value::Bool)
}

fn as_truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        _ => None,
    }
}

fn like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| like(&text[skipped..], rest)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest),
        ['\\', literal, rest @ ..] | [literal, rest @ ..] => text.first() == Some(literal) && like(&text[1..], rest),
    }
}
