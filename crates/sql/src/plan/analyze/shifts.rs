//! `lag` and `lead`: the value and its default have one type, as the results of CASE do. DataFusion casts the default
//! to the type of the value, whatever it loses.

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::operands::{together, widened};

/// The type that PostgreSQL gives an expression: integer literals are as narrow as they can be.
fn own_type(expr: &Expr, columns: &DFSchema) -> Result<ArrowType> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) if i32::try_from(*value).is_ok() => Ok(ArrowType::Int32),
        other => other.get_type(columns),
    }
}

/// A call whose value and default are brought together; `None`: it stays.
pub(super) fn bring_together(function: &WindowFunction, columns: &DFSchema) -> Result<Option<Expr>> {
    let name = function.fun.name();
    let [value, offset, default] = function.params.args.as_slice() else { return Ok(None) };
    if !["lag", "lead"].contains(&name) {
        return Ok(None);
    }
    let (Ok(value_type), Ok(default_type)) = (own_type(value, columns), own_type(default, columns)) else {
        return Ok(None);
    };
    let both = [value, default].into_iter();
    let common = match together(&name.to_uppercase(), both, columns)? {
        Some(common) => common,
        None if value_type == default_type || [&value_type, &default_type].contains(&&ArrowType::Null) => value_type,
        None if value_type.is_string() && default_type.is_string() => return Ok(None),
        None => match comparison_coercion(&value_type, &default_type) {
            Some(common) => common,
            None => return Ok(None),
        },
    };
    if common == ArrowType::Null {
        return Ok(None);
    }
    let args = vec![widened(value, &common, columns), offset.clone(), widened(default, &common, columns)];
    if args == function.params.args {
        return Ok(None);
    }
    let mut new = function.clone();
    new.params.args = args;
    Ok(Some(Expr::WindowFunction(Box::new(new))))
}
