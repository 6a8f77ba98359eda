//! Which parts of a filter a partition evaluates itself.
//!
//! ```text
//!   column op constant      constant: a literal, a parameter, or an expression of those
//!   column BETWEEN, IN, IS [NOT] NULL, LIKE 'prefix%', boolean column, column op column of one type,
//!   column = constant OR the same column = another one
//! ```
//! A cast to a wider type around the column is looked through: the constant is narrowed instead, with its order kept
//! (see [`crate::native::comparable`]).

use std::sync::Arc;

use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, ExprSchemable, Operator};
use eris_storage::{AttributeId, Comparison, DataType};

use super::expressions::{comparison_of, constant_value, lower_constant};
use crate::arrow_view::sql_type_of_arrow;
use crate::catalog::Table;
use crate::native::{ConditionTemplate, Slot, TestTemplate, comparable, scalar_value};

/// The conditions that are equivalent to an expression over a table's columns; `None` if there are none.
pub fn condition_of(expr: &Expr, table: &Table) -> Option<Vec<ConditionTemplate>> {
    let one = |condition| Some(vec![condition]);
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => one(any_of(expr, table)?),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let comparison = comparison_of(*op)?;
            if let Some(column) = column_of(left, table) {
                if let Some(other) = plain_column(right, table) {
                    return one(compare_columns(comparison, plain_column(left, table)?, other, table)?);
                }
                return one(compare(comparison, column, right, table)?);
            }
            one(compare(flipped(comparison), column_of(right, table)?, left, table)?)
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let column = column_of(expr, table)?;
            Some(vec![
                compare(Comparison::GreaterOrEqual, column, low, table)?,
                compare(Comparison::LessOrEqual, column, high, table)?,
            ])
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let column = column_of(expr, table)?;
            let slots = list.iter().map(|item| slot(item, column, table)).collect::<Option<Vec<_>>>()?;
            one(condition(column, table, TestTemplate::In(slots)))
        }
        Expr::IsNull(inner) => one(condition(plain_column(inner, table)?, table, TestTemplate::IsNull)),
        Expr::IsNotNull(inner) => one(condition(plain_column(inner, table)?, table, TestTemplate::IsNotNull)),
        Expr::Like(Like { negated: false, expr, pattern, escape_char: None, case_insensitive: false }) => {
            let column = plain_column(expr, table)?;
            if data_type(column, table) != DataType::Text {
                return None;
            }
            let Expr::Literal(pattern, _) = pattern.as_ref() else { return None };
            let prefix = pattern.try_as_str()??.strip_suffix('%')?;
            if prefix.contains(['%', '_', '\\']) {
                return None;
            }
            one(condition(column, table, TestTemplate::StartsWith(Arc::from(prefix))))
        }
        // What simplification leaves of a filter.
        Expr::Literal(scalar, _) => match scalar {
            ScalarValue::Boolean(Some(true)) => Some(Vec::new()),
            ScalarValue::Boolean(_) | ScalarValue::Null => one(condition(AttributeId(0), table, TestTemplate::Never)),
            _ => None,
        },
        Expr::Column(_) => one(boolean(plain_column(expr, table)?, true, table)?),
        Expr::Not(inner) => one(boolean(plain_column(inner, table)?, false, table)?),
        Expr::Alias(alias) => condition_of(&alias.expr, table),
        _ => None,
    }
}

/// `column = a OR column = b`, which simplification makes of short lists.
fn any_of(expr: &Expr, table: &Table) -> Option<ConditionTemplate> {
    let mut parts = Vec::new();
    let mut column = None;
    collect_equal(expr, table, &mut column, &mut parts)?;
    Some(condition(column?, table, TestTemplate::In(parts)))
}

fn collect_equal(expr: &Expr, table: &Table, column: &mut Option<AttributeId>, slots: &mut Vec<Slot>) -> Option<()> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            collect_equal(left, table, column, slots)?;
            collect_equal(right, table, column, slots)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let (own, constant) = match column_of(left, table) {
                Some(own) => (own, right),
                None => (column_of(right, table)?, left),
            };
            if column.is_some_and(|known| known != own) {
                return None;
            }
            *column = Some(own);
            slots.push(slot(constant, own, table)?);
            Some(())
        }
        _ => None,
    }
}

pub(in crate::plan) fn flipped(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::Equal,
        Comparison::NotEqual => Comparison::NotEqual,
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
    }
}

fn data_type(column: AttributeId, table: &Table) -> DataType {
    table.columns[column.index()].sql_type.data_type()
}

fn condition(attribute: AttributeId, table: &Table, test: TestTemplate) -> ConditionTemplate {
    ConditionTemplate { attribute, data_type: data_type(attribute, table), test }
}

fn boolean(column: AttributeId, value: bool, table: &Table) -> Option<ConditionTemplate> {
    let test = TestTemplate::Compare(Comparison::Equal, Slot::Constant(eris_storage::Value::Boolean(value)));
    (data_type(column, table) == DataType::Boolean).then(|| condition(column, table, test))
}

/// A column of the table, as it is.
fn plain_column(expr: &Expr, table: &Table) -> Option<AttributeId> {
    match expr {
        Expr::Column(Column { name, .. }) => table.column(name).map(|(attribute, _)| attribute),
        Expr::Alias(alias) => plain_column(&alias.expr, table),
        _ => None,
    }
}

/// A column of the table, also behind a cast that keeps values and order.
fn column_of(expr: &Expr, table: &Table) -> Option<AttributeId> {
    match expr {
        Expr::Cast(Cast { expr: inner, .. }) => {
            let column = plain_column(inner, table)?;
            let to = cast_target(expr)?;
            widens(data_type(column, table), to).then_some(column)
        }
        other => plain_column(other, table),
    }
}

/// The type that a cast gives, without knowing its input.
fn cast_target(expr: &Expr) -> Option<DataType> {
    let Expr::Cast(cast) = expr else { return None };
    Some(sql_type_of_arrow(cast.field.data_type()).ok()?.data_type())
}

/// Whether every value of one type is a value of the other, in the same order.
pub(in crate::plan) fn widens(from: DataType, to: DataType) -> bool {
    let digits = |data_type| match data_type {
        DataType::Int16 => Some((5_u8, 0_u8)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal { precision, scale } => Some((precision, scale)),
        _ => None,
    };
    if from == to {
        return true;
    }
    match (from, to) {
        (DataType::Int16, DataType::Int32 | DataType::Int64) | (DataType::Int32, DataType::Int64) => true,
        (DataType::Float32, DataType::Float64) | (DataType::Date, DataType::Timestamp) => true,
        (_, DataType::Decimal { precision, scale }) => digits(from).is_some_and(|(from_precision, from_scale)| {
            scale >= from_scale && precision - scale >= from_precision - from_scale
        }),
        _ => false,
    }
}

fn compare(comparison: Comparison, column: AttributeId, other: &Expr, table: &Table) -> Option<ConditionTemplate> {
    Some(condition(column, table, TestTemplate::Compare(comparison, slot(other, column, table)?)))
}

fn compare_columns(
    comparison: Comparison,
    left: AttributeId,
    right: AttributeId,
    table: &Table,
) -> Option<ConditionTemplate> {
    (data_type(left, table) == data_type(right, table))
        .then(|| condition(left, table, TestTemplate::CompareAttribute(comparison, right)))
}

/// A slot for a constant that is compared with a column.
fn slot(expr: &Expr, column: AttributeId, table: &Table) -> Option<Slot> {
    let wanted = data_type(column, table);
    if let Expr::Literal(scalar, _) = expr {
        let value = scalar_value(scalar)?;
        comparable(&value, wanted)?;
        return Some(Slot::Constant(value));
    }
    if expr.any_column_refs() || expr.is_volatile() {
        return None;
    }
    let expression = lower_constant(expr).ok()?;
    if let Some(value) = constant_value(&expression) {
        comparable(&value, wanted)?;
        return Some(Slot::Constant(value));
    }
    // Only the value is known later; its type must allow every value to be compared exactly.
    let given = sql_type_of_arrow(&expr.get_type(&DFSchema::empty()).ok()?).ok()?.data_type();
    let exact =
        |data_type| matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal { .. });
    let comparable = given == wanted
        || (exact(given) && exact(wanted))
        || matches!((given, wanted), (DataType::Float32, DataType::Float64) | (DataType::Date, DataType::Timestamp));
    comparable.then_some(Slot::Expression(expression))
}
