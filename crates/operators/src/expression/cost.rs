//! In which order the parts of a conjunction are computed, and what can fail.
//!
//! What can fail comes last, so that it sees as few rows as it may. Before that, cheap parts come before dear ones, and
//! of equally cheap ones those first that usually let fewer rows through. Otherwise parts stay as they are written.

use eris_storage::{Comparison, DataType, Physical};

use super::{Expression, cast};

/// About the nanoseconds per row, times four.
type Cost = u32;

/// Of one value of fixed width.
const FIXED: Cost = 4;
/// Of a text that is looked at.
const TEXT: Cost = 16;
/// Of a text that is searched through.
const SEARCH: Cost = 64;
/// Of anything that another library computes.
const FOREIGN: Cost = 1_000;

fn of_type(data_type: DataType) -> Cost {
    if data_type.physical() == Physical::Bytes { TEXT } else { FIXED }
}

/// 0 to 3: how many rows a test usually lets through.
fn let_through(expression: &Expression) -> Cost {
    match expression {
        Expression::Compare { comparison: Comparison::Equal, .. } => 0,
        Expression::InList { negated: false, .. } | Expression::Like { negated: false, .. } => 1,
        Expression::Compare { comparison: Comparison::NotEqual, .. }
        | Expression::Not(_)
        | Expression::InList { .. }
        | Expression::Like { .. } => 3,
        _ => 2,
    }
}

/// AND and OR cost as much as their parts.
fn sum(parts: &[Expression]) -> Cost {
    parts.iter().map(cost).sum()
}

fn cost(expression: &Expression) -> Cost {
    match expression {
        Expression::Column { .. } | Expression::Constant { .. } | Expression::Parameter { .. } => 0,
        Expression::Arithmetic { left, right, .. } => 2 * FIXED + cost(left) + cost(right),
        Expression::Compare { left, right, .. } | Expression::Distinct { left, right, .. } => {
            of_type(left.data_type()) + cost(left) + cost(right)
        }
        Expression::And(parts) | Expression::Or(parts) => sum(parts),
        Expression::Not(input) | Expression::IsNull { input, .. } | Expression::IsTruth { input, .. } => {
            1 + cost(input)
        }
        Expression::Case { branches, otherwise, .. } => {
            let branches = branches.iter().map(|(when, then)| SEARCH + cost(when) + cost(then));
            branches.sum::<Cost>() + otherwise.as_deref().map_or(0, cost)
        }
        Expression::Like { input, .. } => SEARCH + cost(input),
        Expression::InList { input, .. } => 2 * of_type(input.data_type()) + cost(input),
        Expression::Extract { input, .. } | Expression::Cast { input, .. } => 2 * FIXED + cost(input),
        Expression::Substring { input, .. } => 2 * TEXT + cost(input),
        Expression::Foreign(_) => FOREIGN,
    }
}

/// Puts the parts of AND or OR in the order in which they are computed.
pub(super) fn order(parts: &mut [Expression]) {
    parts.sort_by_key(|part| (part.can_fail(), cost(part) * 4 + let_through(part)));
}

impl Expression {
    /// With fewer than one in so many rows left, it is better computed for those alone: their values are copied then.
    pub(crate) fn sparse_below(&self) -> usize {
        let cost = cost(self);
        if cost <= FIXED {
            16
        } else if cost <= TEXT {
            6
        } else {
            2
        }
    }

    /// Whether there are values for which it is an error.
    pub(crate) fn can_fail(&self) -> bool {
        match self {
            Self::Column { .. } | Self::Constant { .. } => false,
            // One that is not bound is an error.
            Self::Parameter { .. } | Self::Arithmetic { .. } | Self::Foreign(_) => true,
            Self::Compare { left, right, .. } | Self::Distinct { left, right, .. } => {
                left.is_fallible_operand() || right.is_fallible_operand()
            }
            Self::And(parts) | Self::Or(parts) => parts.iter().any(Self::can_fail),
            Self::Not(input)
            | Self::IsNull { input, .. }
            | Self::IsTruth { input, .. }
            | Self::Like { input, .. }
            | Self::InList { input, .. }
            | Self::Extract { input, .. }
            | Self::Substring { input, .. } => input.can_fail(),
            Self::Cast { input, data_type } => cast::can_fail(input.data_type(), *data_type) || input.can_fail(),
            Self::Case { branches, otherwise, .. } => {
                branches.iter().any(|(when, then)| when.can_fail() || then.can_fail())
                    || otherwise.as_ref().is_some_and(|otherwise| otherwise.can_fail())
            }
        }
    }

    /// Parameters are bound before anything runs; beside a column they are as good as constants.
    fn is_fallible_operand(&self) -> bool {
        !matches!(self, Self::Parameter { .. }) && self.can_fail()
    }

    /// Whether some part of it is computed by the layer above.
    pub fn has_foreign(&self) -> bool {
        match self {
            Self::Column { .. } | Self::Constant { .. } | Self::Parameter { .. } => false,
            Self::Arithmetic { left, right, .. }
            | Self::Compare { left, right, .. }
            | Self::Distinct { left, right, .. } => left.has_foreign() || right.has_foreign(),
            Self::And(parts) | Self::Or(parts) => parts.iter().any(Self::has_foreign),
            Self::Not(input)
            | Self::IsNull { input, .. }
            | Self::IsTruth { input, .. }
            | Self::Like { input, .. }
            | Self::InList { input, .. }
            | Self::Extract { input, .. }
            | Self::Substring { input, .. }
            | Self::Cast { input, .. } => input.has_foreign(),
            Self::Case { branches, otherwise, .. } => {
                branches.iter().any(|(when, then)| when.has_foreign() || then.has_foreign())
                    || otherwise.as_ref().is_some_and(|otherwise| otherwise.has_foreign())
            }
            Self::Foreign(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ArithmeticOperator;
    use eris_storage::Value;

    #[test]
    fn cheap_and_safe_parts_come_first() {
        let column = |index, data_type| Box::new(Expression::Column { index, data_type });
        let constant = |value, data_type| Box::new(Expression::Constant { value, data_type });
        let compare = |comparison, left, right| Expression::Compare { comparison, left, right };
        let number = |comparison, index| {
            compare(comparison, column(index, DataType::Int32), constant(Value::Int32(1), DataType::Int32))
        };
        let quotient = Expression::Arithmetic {
            operator: ArithmeticOperator::Divide,
            left: constant(Value::Int32(1), DataType::Int32),
            right: column(0, DataType::Int32),
            data_type: DataType::Int32,
        };
        let fails = compare(Comparison::Equal, Box::new(quotient), constant(Value::Int32(1), DataType::Int32));
        let text =
            compare(Comparison::Equal, column(1, DataType::Text), constant(Value::Text("x".into()), DataType::Text));
        let parts =
            [fails, text, number(Comparison::NotEqual, 2), number(Comparison::Less, 3), number(Comparison::Equal, 4)];
        let Expression::And(ordered) = Expression::and(parts) else { panic!("an AND") };
        let shown: Vec<String> = ordered.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["#4 = 1", "#3 < 1", "#2 <> 1", "#1 = x", "(1 / #0) = 1"]);
    }
}
