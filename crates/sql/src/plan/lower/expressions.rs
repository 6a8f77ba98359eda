//! Expressions: natively where there is a kernel, otherwise as a foreign expression over the columns it needs.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema as ArrowSchema};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, DataFusionError, ExprSchema};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::{InList, Placeholder};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, ExprSchemable, Operator};
use datafusion::physical_expr::create_physical_expr;
use eris_operators::{ArithmeticOperator, Expression};
use eris_storage::{Comparison, DataType, Value};

use super::{Lowering, NotNative};
use crate::arrow_view::sql_type_of_arrow;
use crate::native::{Converted, PhysicalForeign, comparable, scalar_value};
use crate::plan::checked::CheckedArithmetic;
use crate::plan::parameters::index_of;

/// Lists longer than this are left to DataFusion's hash sets.
const IN_LIST_MAX: usize = 8;

/// The columns that expressions refer to: those of a schema, from a position on, or where a map says.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Columns<'a> {
    pub schema: &'a DFSchema,
    pub offset: usize,
    /// By position in the schema: where a column is, if it is there.
    pub map: Option<&'a [Option<usize>]>,
}

impl<'a> Columns<'a> {
    pub fn of(schema: &'a DFSchema) -> Self {
        Self { schema, offset: 0, map: None }
    }

    pub fn position(&self, column: &Column) -> Lowering<usize> {
        let index = self.schema.maybe_index_of_column(column);
        let place = |index: usize| match self.map {
            None => Some(index + self.offset),
            Some(map) => map[index],
        };
        index
            .and_then(place)
            .ok_or_else(|| NotNative::because(format!("column {column} is elsewhere")))
    }

    fn data_type(&self, expr: &Expr) -> Lowering<DataType> {
        let arrow = expr.get_type(self.schema).map_err(NotNative::because)?;
        Ok(sql_type_of_arrow(&arrow)?.data_type())
    }
}

/// Lowers an expression.
pub(in crate::plan) fn lower(expr: &Expr, columns: Columns<'_>) -> Lowering<Expression> {
    match native(expr, columns)? {
        Some(expression) => Ok(expression),
        None => foreign(expr, columns),
    }
}

/// Lowers several.
pub(in crate::plan) fn lower_all<'e>(
    exprs: impl IntoIterator<Item = &'e Expr>,
    columns: Columns<'_>,
) -> Lowering<Arc<[Expression]>> {
    exprs.into_iter().map(|expr| lower(expr, columns)).collect()
}

/// `None`: there is no native kernel for the expression itself.
fn native(expr: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let boxed = |expr: &Expr| Ok::<_, NotNative>(Box::new(lower(expr, columns)?));
    Ok(Some(match expr {
        Expr::Alias(alias) => return native_or_foreign(&alias.expr, columns),
        Expr::Column(column) => {
            Expression::Column { index: columns.position(column)?, data_type: columns.data_type(expr)? }
        }
        Expr::Literal(scalar, _) => match scalar_value(scalar) {
            Some(value) => Expression::Constant { value, data_type: columns.data_type(expr)? },
            None => return Ok(None),
        },
        Expr::Placeholder(Placeholder { id, .. }) => {
            let index = index_of(id).ok_or_else(|| NotNative::because(format!("parameter {id}")))?;
            Expression::Parameter { index, data_type: columns.data_type(expr)? }
        }
        Expr::Not(inner) => Expression::Not(boxed(inner)?),
        Expr::IsNull(inner) => Expression::IsNull { input: boxed(inner)?, negated: false },
        Expr::IsNotNull(inner) => Expression::IsNull { input: boxed(inner)?, negated: true },
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
            let mut parts = Vec::new();
            flatten(expr, *op, &mut parts);
            let parts = parts.into_iter().map(|part| lower(part, columns)).collect::<Lowering<Vec<_>>>()?;
            if *op == Operator::And { Expression::And(parts.into()) } else { Expression::Or(parts.into()) }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if let Some(comparison) = comparison_of(*op) {
                return compare(comparison, left, right, columns);
            }
            return decimal_arithmetic(expr, left, *op, right, columns);
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (Some(above), Some(below)) = (
                compare(Comparison::GreaterOrEqual, expr, low, columns)?,
                compare(Comparison::LessOrEqual, expr, high, columns)?,
            ) else {
                return Ok(None);
            };
            let both = Expression::And([above, below].into());
            if *negated { Expression::Not(Box::new(both)) } else { both }
        }
        Expr::InList(InList { expr, list, negated }) if list.len() <= IN_LIST_MAX => {
            let mut parts = Vec::with_capacity(list.len());
            for item in list {
                match compare(Comparison::Equal, expr, item, columns)? {
                    Some(part) => parts.push(part),
                    None => return Ok(None),
                }
            }
            let any = Expression::Or(parts.into());
            if *negated { Expression::Not(Box::new(any)) } else { any }
        }
        Expr::ScalarFunction(function) => {
            let Some(operator) = CheckedArithmetic::operator_of(function.func.name()) else { return Ok(None) };
            let [left, right] = function.args.as_slice() else { return Ok(None) };
            let data_type = columns.data_type(expr)?;
            if matches!(data_type, DataType::Decimal { .. }) {
                return Ok(None);
            }
            if columns.data_type(left)? != data_type || columns.data_type(right)? != data_type {
                return Ok(None);
            }
            Expression::Arithmetic { operator, left: boxed(left)?, right: boxed(right)?, data_type }
        }
        Expr::Cast(Cast { expr: inner, .. }) => {
            let (from, to) = (columns.data_type(inner)?, columns.data_type(expr)?);
            if from == to {
                // Between Arrow's three kinds of strings: one kind here.
                return native_or_foreign(inner, columns);
            }
            if let Expr::Literal(scalar, _) = inner.as_ref()
                && let Some(Converted::Exact(value)) = scalar_value(scalar).and_then(|value| comparable(&value, to))
            {
                Expression::Constant { value, data_type: to }
            } else {
                return Ok(None);
            }
        }
        _ => return Ok(None),
    }))
}

fn native_or_foreign(expr: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    lower(expr, columns).map(Some)
}

fn flatten<'e>(expr: &'e Expr, op: Operator, parts: &mut Vec<&'e Expr>) {
    // Chains lean to the left; the right sides are short.
    let mut rights = Vec::new();
    let mut expr = expr;
    while let Expr::BinaryExpr(BinaryExpr { left, op: own, right }) = expr {
        if *own != op {
            break;
        }
        rights.push(right.as_ref());
        expr = left;
    }
    parts.push(expr);
    parts.extend(rights.into_iter().rev());
}

/// A comparison operator.
pub(super) fn comparison_of(op: Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn compare(comparison: Comparison, left: &Expr, right: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let (left_type, right_type) = (columns.data_type(left)?, columns.data_type(right)?);
    let decimals = matches!((left_type, right_type), (DataType::Decimal { .. }, DataType::Decimal { .. }));
    if left_type != right_type && !decimals {
        return Ok(None);
    }
    let (left, right) = (Box::new(lower(left, columns)?), Box::new(lower(right, columns)?));
    Ok(Some(Expression::Compare { comparison, left, right }))
}

fn decimal_arithmetic(
    expr: &Expr,
    left: &Expr,
    op: Operator,
    right: &Expr,
    columns: Columns<'_>,
) -> Lowering<Option<Expression>> {
    let operator = match op {
        Operator::Plus => ArithmeticOperator::Add,
        Operator::Minus => ArithmeticOperator::Subtract,
        Operator::Multiply => ArithmeticOperator::Multiply,
        _ => return Ok(None),
    };
    let is_decimal = |expr: &Expr| Ok::<_, NotNative>(matches!(columns.data_type(expr)?, DataType::Decimal { .. }));
    let data_type = match expr.get_type(columns.schema).map_err(NotNative::because)? {
        ArrowType::Decimal128(precision, scale) if scale >= 0 => DataType::Decimal { precision, scale: scale as u8 },
        _ => return Ok(None),
    };
    if !is_decimal(left)? || !is_decimal(right)? {
        return Ok(None);
    }
    let (left, right) = (Box::new(lower(left, columns)?), Box::new(lower(right, columns)?));
    Ok(Some(Expression::Arithmetic { operator, left, right, data_type }))
}

/// A DataFusion expression over the columns and parameters that it mentions.
fn foreign(expr: &Expr, columns: Columns<'_>) -> Lowering<Expression> {
    let result_type = expr.get_type(columns.schema).map_err(NotNative::because)?;
    let result = sql_type_of_arrow(&result_type)?;
    let mut used: Vec<(Column, Field)> = Vec::new();
    let mut parameters: Vec<(usize, Field)> = Vec::new();
    let text = expr.to_string();
    let rewritten = eris_binder::rewrite_expression(expr.clone(), &mut |expr| match &expr {
        Expr::Column(column) => {
            let field = columns.schema.field_from_column(column)?.as_ref().clone();
            let at = if let Some(at) = used.iter().position(|(known, _)| known == column) {
                at
            } else {
                used.push((column.clone(), field));
                used.len() - 1
            };
            Ok(Transformed::yes(Expr::Column(Column::from_name(format!("c{at}")))))
        }
        Expr::Placeholder(Placeholder { id, .. }) => {
            let data_type = expr.get_type(columns.schema)?;
            let index = index_of(id).ok_or_else(|| DataFusionError::Plan(format!("parameter {id}")))?;
            if !parameters.iter().any(|(known, _)| *known == index) {
                parameters.push((index, Field::new(format!("p{index}"), data_type, true)));
            }
            Ok(Transformed::yes(Expr::Column(Column::from_name(format!("p{index}")))))
        }
        Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_)
        | Expr::SetComparison(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_) => Err(DataFusionError::Plan("a subquery or aggregate in an expression".into())),
        _ => Ok(Transformed::no(expr)),
    })
    .map_err(NotNative::because)?;
    let mut fields: Vec<Field> =
        used.iter().enumerate().map(|(at, (_, field))| field.clone().with_name(format!("c{at}"))).collect();
    fields.extend(parameters.iter().map(|(_, field)| field.clone()));
    let schema = Arc::new(ArrowSchema::new(fields));
    let df_schema = DFSchema::try_from(Arc::clone(&schema)).map_err(NotNative::because)?;
    let expression =
        create_physical_expr(&rewritten, &df_schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())
            .map_err(NotNative::because)?;
    let positions = used.iter().map(|(column, _)| columns.position(column)).collect::<Lowering<Vec<_>>>()?;
    let parameters = parameters
        .iter()
        .map(|(index, field)| Ok((*index, sql_type_of_arrow(field.data_type())?.data_type())))
        .collect::<Lowering<Vec<_>>>()?;
    Ok(Expression::Foreign(Arc::new(PhysicalForeign {
        expression,
        columns: positions.into(),
        parameters: parameters.into(),
        schema,
        result,
        text,
    })))
}

/// Lowers an expression that refers to no column, for slots.
pub(super) fn lower_constant(expr: &Expr) -> Lowering<Expression> {
    let empty = DFSchema::empty();
    lower(expr, Columns::of(&empty))
}

/// The value of an expression that refers neither to columns nor to parameters.
pub(super) fn constant_value(expression: &Expression) -> Option<Value> {
    match expression {
        Expression::Constant { value, .. } => Some(value.clone()),
        _ => None,
    }
}
