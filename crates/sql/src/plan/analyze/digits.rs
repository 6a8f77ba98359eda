//! Digits of numerics, before types are coerced.
//!
//! - A cast to `numeric` without precision changes no digits of an integer or numeric; a column of that type has ten
//!   behind the point.
//! - `1e3` is read as 1 with minus three digits behind the point, which is 1000.
//! - A literal beyond `bigint` is a numeric.
//! - The digits that `round` keeps are an `integer`: with a cast around them its type would depend on whether that was
//!   computed already.
//!
//! After that: the smallest integer of a type has no negative, and a numeric times nothing has the digits of a product,
//! where DataFusion takes the zero itself for it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator, ScalarUDF};
use eris_operators::ArithmeticOperator;

use crate::plan::checked::CheckedArithmetic;

const BARE_NUMERIC_KEY: &str = "eris.bare_numeric";

/// Notes with a cast's target that it is `numeric` without `(p, s)`.
pub(in crate::plan) fn mark_bare_numeric(field: Field) -> Field {
    field.with_metadata([(BARE_NUMERIC_KEY.to_string(), String::new())].into())
}

/// An expression with the digits that its text has.
pub(super) fn keep(expr: &Expr, columns: &DFSchema) -> Result<Option<Expr>> {
    match expr {
        Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale @ ..0), metadata) => {
            let whole = 10_i128.checked_pow(u32::from(scale.unsigned_abs())).and_then(|power| value.checked_mul(power));
            Ok(whole.map(|value| {
                let digits = value.unsigned_abs().to_string().len().min(38) as u8;
                Expr::Literal(ScalarValue::Decimal128(Some(value), digits, 0), metadata.clone())
            }))
        }
        Expr::Literal(ScalarValue::UInt64(Some(value)), metadata) => {
            let digits = value.to_string().len() as u8;
            let value = ScalarValue::Decimal128(Some(i128::from(*value)), digits, 0);
            Ok(Some(Expr::Literal(value, metadata.clone())))
        }
        Expr::Cast(cast) if cast.field.metadata().contains_key(BARE_NUMERIC_KEY) => {
            let digits = match cast.expr.get_type(columns)? {
                ArrowType::Decimal128(..) => return Ok(Some(cast.expr.as_ref().clone())),
                ArrowType::Int8 | ArrowType::Int16 => 5,
                ArrowType::Int32 => 10,
                ArrowType::Int64 => 19,
                _ => return Ok(Some(Expr::Cast(Cast::new(cast.expr.clone(), cast.field.data_type().clone())))),
            };
            Ok(Some(Expr::Cast(Cast::new(cast.expr.clone(), ArrowType::Decimal128(digits, 0)))))
        }
        Expr::ScalarFunction(round) if round.name() == "round" => Ok(match round.args.as_slice() {
            [value, Expr::Literal(ScalarValue::Int64(Some(digits)), _)] => i32::try_from(*digits).ok().map(|digits| {
                let digits = Expr::Literal(ScalarValue::Int32(Some(digits)), None);
                Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&round.func), vec![value.clone(), digits]))
            }),
            _ => None,
        }),
        _ => Ok(None),
    }
}

/// A product of numerics one of which may turn out to be the constant 0; `None`: it stays.
pub(super) fn times_zero(product: &BinaryExpr, columns: &DFSchema) -> Option<Expr> {
    let may_be_zero = |operand: &Expr| match operand {
        Expr::Literal(ScalarValue::Decimal128(value, ..), _) => *value == Some(0),
        other => other.column_refs().is_empty(),
    };
    if product.op != Operator::Multiply || !(may_be_zero(&product.left) || may_be_zero(&product.right)) {
        return None;
    }
    let product = Expr::BinaryExpr(product.clone());
    match product.get_type(columns) {
        Ok(digits @ ArrowType::Decimal128(..)) => Some(Expr::Cast(Cast::new(Box::new(product), digits))),
        _ => None,
    }
}

/// `-x` of an integer, checked; `None`: it stays.
pub(super) fn negative(operand: &Expr, columns: &DFSchema) -> Option<Expr> {
    let zero = match operand.get_type(columns).ok()? {
        ArrowType::Int16 => ScalarValue::Int16(Some(0)),
        ArrowType::Int32 => ScalarValue::Int32(Some(0)),
        ArrowType::Int64 => ScalarValue::Int64(Some(0)),
        _ => return None,
    };
    if let Expr::Literal(ScalarValue::Int64(Some(value)), _) = operand
        && let Some(negated) = value.checked_neg()
    {
        return Some(Expr::Literal(ScalarValue::Int64(Some(negated)), None));
    }
    let subtract = Arc::new(ScalarUDF::new_from_impl(CheckedArithmetic::new(ArithmeticOperator::Subtract)));
    let args = vec![Expr::Literal(zero, None), operand.clone()];
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(subtract, args)))
}
