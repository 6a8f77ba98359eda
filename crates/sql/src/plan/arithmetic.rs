//! Which operator of SQL becomes which checked function.
//!
//! DataFusion's integer `+ - *` wrap, those of floating point give infinity; its division gives four digits behind the
//! point of the dividend. So arithmetic of integers and of floating point, and every division are planned as functions
//! of [`super::checked`], before types are coerced.
//!
//! Integer literals are 64 bits wide in DataFusion. In PostgreSQL they are as wide as they must be, and `i + 1` of an
//! integer stays one. So a literal beside a narrower operand is narrowed if it fits.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, Operator, ScalarUDF};
use eris_operators::ArithmeticOperator;

use super::analyze::{as_float, binary, date_part, sum_of_times};
use super::checked::CheckedArithmetic;
use crate::ast::BinaryOperator;

/// Plans arithmetic.
#[derive(Debug)]
pub(super) struct Arithmetic {
    functions: [Arc<ScalarUDF>; 5],
    date_part: Arc<ScalarUDF>,
}

impl Arithmetic {
    pub fn new() -> Self {
        let function = |operator| Arc::new(ScalarUDF::new_from_impl(CheckedArithmetic::new(operator)));
        Self {
            functions: [
                function(ArithmeticOperator::Add),
                function(ArithmeticOperator::Subtract),
                function(ArithmeticOperator::Multiply),
                function(ArithmeticOperator::Divide),
                function(ArithmeticOperator::Modulo),
            ],
            date_part: date_part(),
        }
    }
}

fn is_integer(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::Int8 | ArrowType::Int16 | ArrowType::Int32 | ArrowType::Int64)
}

fn is_number(data_type: &ArrowType) -> bool {
    is_integer(data_type)
        || data_type.is_unsigned_integer()
        || matches!(data_type, ArrowType::Decimal128(..) | ArrowType::Float32 | ArrowType::Float64)
}

/// The value of an integer literal, signs included.
fn integer_literal(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(*value),
        Expr::Negative(inner) => integer_literal(inner)?.checked_neg(),
        _ => None,
    }
}

/// An integer literal as the type that it has beside `other`.
fn narrow(expr: Expr, other: &ArrowType, other_is_literal: bool) -> Expr {
    let Some(value) = integer_literal(&expr) else { return expr };
    let literal = |value| Expr::Literal(value, None);
    match other {
        ArrowType::Int16 | ArrowType::Int32 => match i32::try_from(value) {
            Ok(value) => literal(ScalarValue::Int32(Some(value))),
            Err(_) => expr,
        },
        ArrowType::Int64 if other_is_literal => match i32::try_from(value) {
            Ok(value) => literal(ScalarValue::Int32(Some(value))),
            Err(_) => expr,
        },
        ArrowType::Decimal128(..) => {
            let digits = value.unsigned_abs().to_string().len() as u8;
            literal(ScalarValue::Decimal128(Some(i128::from(value)), digits, 0))
        }
        _ => expr,
    }
}

/// A text literal beside a number is a number.
fn typed(expr: Expr, other: &ArrowType) -> Expr {
    match &expr {
        Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _) if is_number(other) => {
            Expr::Cast(Cast::new(Box::new(expr), other.clone()))
        }
        _ => expr,
    }
}

/// Gives an untyped parameter the type of the other operand.
fn infer(expr: Expr, other: &ArrowType) -> Expr {
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) if *other != ArrowType::Null => {
            Expr::Placeholder(Placeholder::new_with_field(id, Some(Arc::new(Field::new("", other.clone(), true)))))
        }
        other => other,
    }
}

/// A comparison, with its operands brought together before DataFusion looks at their types.
fn compared(expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    let operator = match expr.op {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        _ => return Ok(PlannerResult::Original(expr)),
    };
    Ok(match binary(&expr.left, operator, &expr.right, schema)? {
        Some(planned) => PlannerResult::Planned(planned),
        None => PlannerResult::Original(expr),
    })
}

impl ExprPlanner for Arithmetic {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let call = ScalarFunction::new_udf(Arc::clone(&self.date_part), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }

    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let at = match expr.op {
            BinaryOperator::Plus => 0,
            BinaryOperator::Minus => 1,
            BinaryOperator::Multiply => 2,
            BinaryOperator::Divide => 3,
            BinaryOperator::Modulo => 4,
            _ => return compared(expr, schema),
        };
        let sums = [Operator::Plus, Operator::Minus, Operator::Multiply];
        if let Some(operator) = sums.get(at)
            && let Some(planned) = sum_of_times(&expr.left, *operator, &expr.right, schema)
        {
            return Ok(PlannerResult::Planned(planned));
        }
        let RawBinaryExpr { op, left, right } = expr;
        let original = |left, right| Ok(PlannerResult::Original(RawBinaryExpr { op: op.clone(), left, right }));
        let type_of = |expr: &Expr| match expr {
            Expr::Placeholder(Placeholder { field: None, .. }) => ArrowType::Null,
            other => other.get_type(schema).unwrap_or(ArrowType::Null),
        };
        let (left_type, right_type) = (type_of(&left), type_of(&right));
        let both_literal = integer_literal(&left).is_some() && integer_literal(&right).is_some();
        let left = infer(typed(narrow(left, &right_type, both_literal), &right_type), &right_type);
        let right = infer(typed(narrow(right, &left_type, both_literal), &left_type), &left_type);
        let (left_type, right_type) = (type_of(&left), type_of(&right));
        let known = |data_type: &ArrowType| is_number(data_type) || *data_type == ArrowType::Null;
        if !known(&left_type) || !known(&right_type) || (left_type == ArrowType::Null && right_type == ArrowType::Null)
        {
            return original(left, right);
        }
        let integers = (is_integer(&left_type) || left_type == ArrowType::Null)
            && (is_integer(&right_type) || right_type == ArrowType::Null);
        let divides = at >= 3;
        // A result of floating point is checked, too; what is not stands beside it as a double precision.
        let float = |data_type: &ArrowType| matches!(data_type, ArrowType::Float32 | ArrowType::Float64);
        let floats = float(&left_type) || float(&right_type);
        if !integers && !divides && !floats {
            return original(left, right);
        }
        let beside = |expr: Expr, own: &ArrowType, other: &ArrowType| {
            let constant = !float(own) && float(other) && !expr.any_column_refs();
            if constant { as_float(&expr, &ArrowType::Float64) } else { expr }
        };
        let (left, right) = (beside(left, &left_type, &right_type), beside(right, &right_type, &left_type));
        let function = ScalarFunction::new_udf(Arc::clone(&self.functions[at]), vec![left, right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(function)))
    }
}
