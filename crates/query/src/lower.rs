//! From scalars to the expressions that the operators evaluate on batches.

use std::sync::Arc;

use eris_operators::{ArithmeticOperator, Expression, LikePattern, ValueSet};
use eris_storage::{Comparison, DataType, Value};

use crate::Unplanned;
use crate::operators::{Kernel, Signature};
use crate::scalar::{ColumnId, Scalar, ScalarKind};

/// The expression that computes a scalar; `place` says which column of the batches a column is.
pub fn lower(scalar: &Scalar, place: &dyn Fn(ColumnId) -> Option<usize>) -> Result<Expression, Unplanned> {
    let data_type = scalar.sql_type.data_type();
    let below = |scalar: &Scalar| lower(scalar, place);
    let boxed = |scalar: &Scalar| below(scalar).map(Box::new);
    Ok(match &scalar.kind {
        ScalarKind::Column(column) => {
            let index = place(*column).ok_or_else(|| Unplanned(format!("column {} is elsewhere", column.0)))?;
            Expression::Column { index, data_type }
        }
        ScalarKind::Constant(value) => Expression::Constant { value: value.clone(), data_type },
        ScalarKind::Parameter(index) => Expression::Parameter { index: *index, data_type },
        ScalarKind::Call { operator, operands } => {
            let operands = operands.iter().map(below).collect::<Result<Vec<_>, _>>()?;
            called(operator, operands, data_type)?
        }
        ScalarKind::And(parts) => Expression::and(parts.iter().map(below).collect::<Result<Vec<_>, _>>()?),
        ScalarKind::Or(parts) => Expression::or(parts.iter().map(below).collect::<Result<Vec<_>, _>>()?),
        ScalarKind::Not(input) => Expression::Not(boxed(input)?),
        ScalarKind::IsNull { input, negated } => Expression::IsNull { input: boxed(input)?, negated: *negated },
        ScalarKind::IsTruth { input, truth, negated } => {
            Expression::IsTruth { input: boxed(input)?, truth: *truth, negated: *negated }
        }
        ScalarKind::InList { input, items, negated } => {
            let set = ValueSet::new(input.sql_type.data_type(), items);
            let set = set.ok_or_else(|| Unplanned(format!("a list of {}", input.sql_type)))?;
            Expression::InList { input: boxed(input)?, set: Arc::new(set), negated: *negated }
        }
        ScalarKind::Case { branches, otherwise } => {
            let branch = |(condition, result): &(Scalar, Scalar)| Ok((below(condition)?, below(result)?));
            Expression::Case {
                branches: branches.iter().map(branch).collect::<Result<_, Unplanned>>()?,
                otherwise: otherwise.as_deref().map(boxed).transpose()?,
                data_type,
            }
        }
        ScalarKind::Cast(input) => cast(below(input)?, data_type)?,
        ScalarKind::Function { function, input } => function.of(below(input)?),
        ScalarKind::Lowered(expression) => {
            let moved = expression.moved(&mut |index| place(ColumnId(index as u32)));
            moved.ok_or_else(|| Unplanned(format!("a column of {expression} is elsewhere")))?
        }
    })
}

fn cast(input: Expression, to: DataType) -> Result<Expression, Unplanned> {
    input.cast(to).map_err(|input| Unplanned(format!("a cast of {} to {to}", input.data_type())))
}

fn called(operator: &Signature, operands: Vec<Expression>, data_type: DataType) -> Result<Expression, Unplanned> {
    let shape = || Unplanned(format!("operator {} with other operands", operator.name));
    match operator.kernel {
        Kernel::Compare(comparison) => {
            let [left, right] = two(operands).ok_or_else(shape)?;
            compared(comparison, left, right)
        }
        Kernel::Arithmetic(kernel) => {
            let [left, right] = two(operands).ok_or_else(shape)?;
            // Numerics keep their own digits; everything else is computed as the type of the result.
            let [left, right] = match data_type {
                DataType::Decimal { .. } => [left, right],
                _ => [cast(left, data_type)?, cast(right, data_type)?],
            };
            Ok(Expression::Arithmetic { operator: kernel, left: Box::new(left), right: Box::new(right), data_type })
        }
        Kernel::Negate => {
            let [input] = <[Expression; 1]>::try_from(operands).map_err(|_| shape())?;
            Ok(negated(input, data_type))
        }
        Kernel::Like { negated, case_insensitive } => {
            let [input, pattern] = two(operands).ok_or_else(shape)?;
            let Expression::Constant { value: Value::Text(pattern), .. } = pattern else {
                return Err(Unplanned::because("LIKE with a pattern that is computed"));
            };
            let compiled = LikePattern::new(&pattern, Some('\\'), case_insensitive);
            let pattern = compiled.ok_or_else(|| Unplanned::because("a pattern that ends with its escape"))?;
            Ok(Expression::Like { input: Box::new(input), pattern: Arc::new(pattern), negated })
        }
    }
}

fn two(operands: Vec<Expression>) -> Option<[Expression; 2]> {
    operands.try_into().ok()
}

/// A comparison of values of one type, to which those of the narrower one are brought.
fn compared(comparison: Comparison, left: Expression, right: Expression) -> Result<Expression, Unplanned> {
    let (left_type, right_type) = (left.data_type(), right.data_type());
    let numerics = matches!((left_type, right_type), (DataType::Decimal { .. }, DataType::Decimal { .. }));
    let (left, right) = if left_type == right_type || numerics {
        (left, right)
    } else if is_wider(right_type, left_type) {
        (cast(left, right_type)?, right)
    } else {
        (left, cast(right, left_type)?)
    };
    Ok(Expression::Compare { comparison, left: Box::new(left), right: Box::new(right) })
}

/// Whether every value of the second type is one of the first.
fn is_wider(wide: DataType, narrow: DataType) -> bool {
    let rank = |data_type| match data_type {
        DataType::Int16 => 1,
        DataType::Int32 => 2,
        DataType::Int64 => 3,
        DataType::Float32 => 4,
        DataType::Float64 => 5,
        DataType::Date => 6,
        DataType::Timestamp => 7,
        DataType::Boolean | DataType::Decimal { .. } | DataType::Text | DataType::Bytes => 0,
    };
    rank(wide) > rank(narrow)
}

/// `0 - x` of exact numbers, checked; `-1 * x` of floating point, which has a negative zero.
fn negated(input: Expression, data_type: DataType) -> Expression {
    let (operator, value) = match data_type {
        DataType::Int16 => (ArithmeticOperator::Subtract, Value::Int16(0)),
        DataType::Int32 => (ArithmeticOperator::Subtract, Value::Int32(0)),
        DataType::Float32 => (ArithmeticOperator::Multiply, Value::Float32(-1.0)),
        DataType::Float64 => (ArithmeticOperator::Multiply, Value::Float64(-1.0)),
        DataType::Decimal { scale, .. } => (ArithmeticOperator::Subtract, Value::Decimal { unscaled: 0, scale }),
        _ => (ArithmeticOperator::Subtract, Value::Int64(0)),
    };
    let left = Box::new(Expression::Constant { value, data_type });
    Expression::Arithmetic { operator, left, right: Box::new(input), data_type }
}
