//! Checked arithmetic as DataFusion functions: integers of every width, and all divisions.
//!
//! | operands           | result                                                     |
//! |--------------------|------------------------------------------------------------|
//! | integers           | the wider one; overflow 22003, `/ 0` 22012, `/` truncates   |
//! | numeric, integer   | numeric(38, larger scale + 10) for `/`, rounded             |
//! | floating point     | the wider one; `/ 0` 22012                                  |

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{DataType as ArrowType, Decimal128Type, i256};
use datafusion::common::{DataFusionError, Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use eris_operators::{ArithmeticOperator, Expression};
use eris_storage::{Batch, Column};

use super::errors::operator_error;
use crate::arrow_view::{column_from_arrow, column_to_arrow, sql_type_of_arrow};
use crate::errors::SqlError;

/// Digits that a quotient has behind the point beyond those of its operands.
const QUOTIENT_DIGITS: i8 = 10;
/// The largest scale of a quotient: eight digits before the point remain.
const QUOTIENT_SCALE_MAX: i8 = 30;

/// One checked operator.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CheckedArithmetic {
    name: &'static str,
    operator: Operator,
    signature: Signature,
}

/// The operator in a form that can be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl CheckedArithmetic {
    pub fn new(operator: ArithmeticOperator) -> Self {
        let (name, operator) = match operator {
            ArithmeticOperator::Add => ("checked_add", Operator::Add),
            ArithmeticOperator::Subtract => ("checked_subtract", Operator::Subtract),
            ArithmeticOperator::Multiply => ("checked_multiply", Operator::Multiply),
            ArithmeticOperator::Divide => ("checked_divide", Operator::Divide),
            ArithmeticOperator::Modulo => ("checked_modulo", Operator::Modulo),
        };
        Self { name, operator, signature: Signature::user_defined(Volatility::Immutable) }
    }

    /// The operator of a function planned here.
    pub fn operator_of(name: &str) -> Option<ArithmeticOperator> {
        Some(match name {
            "checked_add" => ArithmeticOperator::Add,
            "checked_subtract" => ArithmeticOperator::Subtract,
            "checked_multiply" => ArithmeticOperator::Multiply,
            "checked_divide" => ArithmeticOperator::Divide,
            "checked_modulo" => ArithmeticOperator::Modulo,
            _ => return None,
        })
    }

    fn native(&self) -> ArithmeticOperator {
        match self.operator {
            Operator::Add => ArithmeticOperator::Add,
            Operator::Subtract => ArithmeticOperator::Subtract,
            Operator::Multiply => ArithmeticOperator::Multiply,
            Operator::Divide => ArithmeticOperator::Divide,
            Operator::Modulo => ArithmeticOperator::Modulo,
        }
    }
}

/// The decimal that holds every integer of a type.
pub(super) fn decimal_of_integer(data_type: &ArrowType) -> Option<(u8, i8)> {
    match data_type {
        ArrowType::Int8 | ArrowType::UInt8 => Some((3, 0)),
        ArrowType::Int16 | ArrowType::UInt16 => Some((5, 0)),
        ArrowType::Int32 | ArrowType::UInt32 => Some((10, 0)),
        ArrowType::Int64 | ArrowType::UInt64 => Some((20, 0)),
        ArrowType::Decimal128(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

fn rank(data_type: &ArrowType) -> u8 {
    match data_type {
        ArrowType::Int8 | ArrowType::UInt8 | ArrowType::Int16 => 1,
        ArrowType::UInt16 | ArrowType::Int32 => 2,
        _ => 3,
    }
}

impl ScalarUDFImpl for CheckedArithmetic {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[ArrowType]) -> Result<Vec<ArrowType>> {
        let [left, right] = types else { return plan_err!("{} takes two arguments", self.name) };
        let (left, right) = match (left, right) {
            (ArrowType::Null, other) | (other, ArrowType::Null) => (other, other),
            pair => pair,
        };
        if left.is_floating() || right.is_floating() {
            let single = |data_type: &ArrowType| *data_type == ArrowType::Float32;
            let wide = if single(left) && single(right) { ArrowType::Float32 } else { ArrowType::Float64 };
            return Ok(vec![wide.clone(), wide]);
        }
        if matches!(left, ArrowType::Decimal128(..)) || matches!(right, ArrowType::Decimal128(..)) {
            let (Some(left), Some(right)) = (decimal_of_integer(left), decimal_of_integer(right)) else {
                return plan_err!("type mismatch: {left} and {right} in {}", self.name);
            };
            return Ok(vec![ArrowType::Decimal128(left.0, left.1), ArrowType::Decimal128(right.0, right.1)]);
        }
        if !left.is_integer() || !right.is_integer() {
            return plan_err!("type mismatch: {left} and {right} in {}", self.name);
        }
        let wide = match rank(left).max(rank(right)) {
            1 => ArrowType::Int16,
            2 => ArrowType::Int32,
            _ => ArrowType::Int64,
        };
        Ok(vec![wide.clone(), wide])
    }

    fn return_type(&self, types: &[ArrowType]) -> Result<ArrowType> {
        match types {
            [ArrowType::Decimal128(p1, s1), ArrowType::Decimal128(p2, s2)] => match self.operator {
                Operator::Divide => {
                    let scale = (*s1.max(s2) + QUOTIENT_DIGITS).min(QUOTIENT_SCALE_MAX).max(*s1.max(s2));
                    Ok(ArrowType::Decimal128(38, scale))
                }
                Operator::Modulo => {
                    let scale = *s1.max(s2);
                    let whole = (*p1 as i8 - s1).min(*p2 as i8 - s2).max(1);
                    Ok(ArrowType::Decimal128(((whole + scale) as u8).min(38), scale))
                }
                Operator::Add | Operator::Subtract | Operator::Multiply => {
                    plan_err!("{} of numerics is not planned as a function", self.name)
                }
            },
            [left, _] => Ok(left.clone()),
            _ => plan_err!("{} takes two arguments", self.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let count = if scalar { 1 } else { rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(count)).collect::<Result<Vec<ArrayRef>>>()?;
        let [left, right] = arrays.as_slice() else { return exec_err!("{} takes two arguments", self.name) };
        let result_type = args.return_field.data_type();
        let result = match (left.data_type(), result_type) {
            (ArrowType::Decimal128(..), ArrowType::Decimal128(precision, scale))
                if self.operator == Operator::Divide =>
            {
                divide_decimals(left, right, *precision, *scale)?
            }
            _ => self.native_result(left, right, result_type)?,
        };
        if scalar {
            let value = datafusion::common::ScalarValue::try_from_array(&result, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(result))
    }
}

/// The function `mod`.
pub(super) fn checked_modulo() -> ScalarUDF {
    ScalarUDF::new_from_impl(CheckedArithmetic::new(ArithmeticOperator::Modulo))
}

fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl CheckedArithmetic {
    fn native_result(&self, left: &ArrayRef, right: &ArrayRef, result: &ArrowType) -> Result<ArrayRef> {
        let convert = |array: &ArrayRef| -> Result<Column> {
            let sql_type = sql_type_of_arrow(array.data_type()).map_err(external)?;
            column_from_arrow(array, sql_type).map_err(external)
        };
        let (left, right) = (convert(left)?, convert(right)?);
        let data_type = sql_type_of_arrow(result).map_err(external)?.data_type();
        let expression = Expression::Arithmetic {
            operator: self.native(),
            left: Box::new(Expression::Column { index: 0, data_type: left.data_type }),
            right: Box::new(Expression::Column { index: 1, data_type: right.data_type }),
            data_type,
        };
        let rows = left.len();
        let batch = Batch::new(vec![left, right], rows);
        let column = expression.column(&batch, &[]).map_err(|error| external(operator_error(&error)))?;
        Ok(column_to_arrow(&column))
    }
}

/// Divides at the scale of the result, rounded half away from zero. The dividend is scaled up in 256 bits.
fn divide_decimals(left: &ArrayRef, right: &ArrayRef, precision: u8, scale: i8) -> Result<ArrayRef> {
    let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let shift = i32::from(scale) + i32::from(right.scale()) - i32::from(left.scale());
    let factor = i256::from_i128(10).wrapping_pow(shift.unsigned_abs().min(76));
    let limit = 10_i128.pow(u32::from(precision.min(38)));
    let mut out = Vec::with_capacity(left.len());
    for row in 0..left.len() {
        if left.is_null(row) || right.is_null(row) {
            out.push(None);
            continue;
        }
        let divisor = i256::from_i128(right.value(row));
        if divisor == i256::ZERO {
            return Err(external(SqlError::division_by_zero()));
        }
        let overflow = || external(SqlError::out_of_range("numeric"));
        let value = i256::from_i128(left.value(row));
        let (dividend, divisor) = if shift >= 0 {
            (value.checked_mul(factor).ok_or_else(overflow)?, divisor)
        } else {
            (value, divisor.checked_mul(factor).ok_or_else(overflow)?)
        };
        let quotient = dividend.wrapping_div(divisor);
        let remainder = dividend.wrapping_rem(divisor);
        let twice = remainder.wrapping_abs().checked_mul(i256::from_i128(2)).ok_or_else(overflow)?;
        let step = if twice >= divisor.wrapping_abs() {
            if (dividend < i256::ZERO) == (divisor < i256::ZERO) { i256::ONE } else { i256::MINUS_ONE }
        } else {
            i256::ZERO
        };
        let rounded = quotient.wrapping_add(step).to_i128().ok_or_else(overflow)?;
        if rounded <= -limit || rounded >= limit {
            return Err(overflow());
        }
        out.push(Some(rounded));
    }
    Ok(Arc::new(out.into_iter().collect::<Decimal128Array>().with_precision_and_scale(precision, scale)?))
}
