//! Planning INSERT.

use std::sync::Arc;

use eris_operators::Expression;
use eris_query::Unplanned;
use eris_storage::{AttributeId, Value};

use super::{PlannedWrite, Rows, Scope, check_assignable, column_of, select};
use crate::ast::{self, Expr};
use crate::catalog::Table;
use crate::errors::{SqlError, SqlState};
use crate::front::{InsertCommand, InsertSource, TableName};
use crate::native::{InsertPlan, InsertRows, Node, assign};
use crate::plan::BoundQuery;
use crate::plan::parameters::{ParameterTypes, bare_parameter, suggest_from_casts};
use crate::session::PlannedQuery;
use crate::types::SqlType;

/// Plans an INSERT.
pub fn plan_insert(
    command: &InsertCommand,
    scope: Scope<'_>,
    mut types: ParameterTypes,
) -> Result<PlannedWrite<InsertPlan>, SqlError> {
    let table = Arc::clone(scope.catalog.table(&command.table)?);
    let mut targets: Vec<AttributeId> = Vec::new();
    for name in &command.columns {
        let (attribute, _) = column_of(&table, name)?;
        if targets.contains(&attribute) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        targets.push(attribute);
    }
    let has_targets = !targets.is_empty();
    if !has_targets {
        targets = table.attributes().to_vec();
    }
    let (rows, width, parameters, Known { momentary, constant_bytes, named }) = match &command.source {
        InsertSource::Defaults => {
            (InsertRows::Values(vec![vec![None; targets.len()]]), targets.len(), Vec::new(), Known::default())
        }
        InsertSource::Values(rows) => {
            let width = rows.first().map_or(0, Vec::len);
            if rows.iter().any(|row| row.len() != width) {
                return Err(SqlError::new(SqlState::SYNTAX, "VALUES lists must all be the same length"));
            }
            check_width(width, targets.len(), has_targets)?;
            let (rows, parameters, cells) = plan_values(rows, &targets, &table, scope, types)?;
            (InsertRows::Values(rows), width, parameters, cells)
        }
        InsertSource::Query(query) => {
            types.cover(query.as_ref());
            let PlannedQuery { plan, momentary, constant_bytes, .. } = PlannedQuery::of(query, scope, types)?;
            let width = plan.columns.len();
            check_width(width, targets.len(), has_targets)?;
            let known = Known { momentary, constant_bytes, named: Arc::clone(&plan.tables) };
            let parameters = plan.parameters.clone();
            (InsertRows::Query(Arc::new(plan)), width, parameters, known)
        }
    };
    let mut source_of_column: Vec<Option<usize>> = vec![None; table.columns.len()];
    for (position, attribute) in targets.iter().take(width).enumerate() {
        source_of_column[attribute.index()] = Some(position);
    }
    let (defaults, of_the_moment) = defaults_of(&table, &source_of_column, &rows, scope)?;
    let plan = InsertPlan { table: Arc::clone(&table), source_of_column: source_of_column.into(), defaults, rows };
    let momentary = momentary || of_the_moment;
    Ok(PlannedWrite { plan, table, named, parameters, momentary, is_bound_here: false, constant_bytes })
}

/// What columns without a value get; NULL stands for what is not needed. The second: whether it holds for this moment
/// only.
fn defaults_of(
    table: &Table,
    source_of_column: &[Option<usize>],
    rows: &InsertRows,
    scope: Scope<'_>,
) -> Result<(Box<[Value]>, bool), SqlError> {
    let is_needed = |source: &Option<usize>| match (source, rows) {
        (None, _) => true,
        (Some(position), InsertRows::Values(rows)) => rows.iter().any(|row| row[*position].is_none()),
        (Some(_), InsertRows::Query(_)) => false,
    };
    let mut momentary = false;
    let mut defaults = Vec::with_capacity(table.columns.len());
    for (column, source) in table.columns.iter().zip(source_of_column) {
        defaults.push(if is_needed(source) {
            let (value, of_the_moment) = scope.default_of(column)?;
            momentary |= of_the_moment;
            value
        } else {
            Value::Null
        });
    }
    Ok((defaults.into(), momentary))
}

fn check_width(given: usize, targets: usize, named: bool) -> Result<(), SqlError> {
    if given > targets {
        return Err(SqlError::new(SqlState::SYNTAX, "INSERT has more expressions than target columns"));
    }
    if given < targets && named {
        return Err(SqlError::new(SqlState::SYNTAX, "INSERT has more target columns than expressions"));
    }
    Ok(())
}

/// What is known of the query that was bound for the rows, if one was.
#[derive(Default)]
struct Known {
    momentary: bool,
    constant_bytes: usize,
    /// The tables that it names.
    named: Arc<[Arc<Table>]>,
}

impl Known {
    fn of(query: &BoundQuery) -> Self {
        let BoundQuery { momentary, constant_bytes, tables, .. } = query;
        Self { momentary: *momentary, constant_bytes: *constant_bytes, named: Arc::clone(tables) }
    }
}

/// The cells, the types of parameters, and of what was bound.
type PlannedValues = (Vec<Vec<Option<Expression>>>, Vec<SqlType>, Known);

/// Plans the cells of VALUES. Literals and parameters need no planner; only what is left is bound as a query.
fn plan_values(
    rows: &[Vec<Option<Expr>>],
    targets: &[AttributeId],
    table: &Table,
    scope: Scope<'_>,
    mut types: ParameterTypes,
) -> Result<PlannedValues, SqlError> {
    for row in rows {
        for (cell, attribute) in row.iter().zip(targets) {
            let Some(cell) = cell else { continue };
            types.cover(cell);
            if let Some(index) = bare_parameter(cell) {
                types.suggest(index, table.columns[attribute.index()].sql_type);
            }
            suggest_from_casts(cell, &mut types);
        }
    }
    let mut planned: Vec<Vec<Option<Expression>>> = Vec::with_capacity(rows.len());
    let mut computed: Vec<(usize, usize, Expr)> = Vec::new();
    for (at_row, row) in rows.iter().enumerate() {
        let mut out = Vec::with_capacity(row.len());
        for (at, (cell, attribute)) in row.iter().zip(targets).enumerate() {
            let target = table.columns[attribute.index()].sql_type;
            out.push(match cell {
                None => None,
                Some(cell) => {
                    if let Some(value) = literal(cell, target)? {
                        Some(Expression::Constant { value, data_type: target.data_type() })
                    } else {
                        if bare_parameter(cell).is_none() {
                            computed.push((at_row, at, cell.clone()));
                        }
                        bare_parameter(cell).map(|index| Expression::Parameter {
                            index,
                            data_type: types.get(index).unwrap_or(target).data_type(),
                        })
                    }
                }
            });
        }
        planned.push(out);
    }
    let mut known = Known::default();
    if !computed.is_empty() {
        let (expressions, parameters, own) = computed_cells(&computed, scope, types)?;
        (types, known) = (ParameterTypes(parameters.into_iter().map(Some).collect()), own);
        for ((row, at, _), expression) in computed.into_iter().zip(expressions) {
            let column = &table.columns[targets[at].index()];
            let is_literal = matches!(expression, Expression::Parameter { .. } | Expression::Constant { .. });
            check_assignable(expression.data_type(), is_literal, column)?;
            planned[row][at] = Some(expression);
        }
    }
    Ok((planned, types.finish(), known))
}

/// Binds the cells that are no literals; with the types of all parameters.
fn computed_cells(
    computed: &[(usize, usize, Expr)],
    scope: Scope<'_>,
    types: ParameterTypes,
) -> Result<(Vec<Expression>, Vec<SqlType>, Known), SqlError> {
    let cells: Vec<&Expr> = computed.iter().map(|(_, _, expr)| expr).collect();
    if let Ok((expressions, own)) = scope.own_values(&cells, types.clone()) {
        let known = Known { momentary: own.momentary, constant_bytes: 0, named: own.tables };
        return Ok((expressions, own.parameters, known));
    }
    let items = cells.into_iter().cloned().collect();
    let nowhere = TableName { schema: None, name: "x".to_string() };
    let mut query = select(items, Rows { table: &nowhere, alias: None, others: &[], selection: None });
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        select.from.clear();
    }
    let bound = scope.planner.bind_query(&query, scope.catalog, scope.values, types)?;
    let reason = |reason| SqlError::unsupported(format!("VALUES with {reason}"), "Write INSERT ... SELECT.");
    match bound.typed().and_then(|plan| plan.in_task()).map_err(reason)? {
        Node::Values { rows, .. } if rows.len() == 1 => {
            Ok((rows[0].to_vec(), bound.parameters.clone(), Known::of(&bound)))
        }
        _ => Err(reason(Unplanned::because("a subquery"))),
    }
}

/// The value of a literal as the column stores it; `None` if it is not a plain literal.
pub(super) fn literal(expr: &Expr, target: SqlType) -> Result<Option<Value>, SqlError> {
    let (text, negative) = match expr {
        Expr::Value(value) => match &value.value {
            ast::Value::Null => return Ok(Some(Value::Null)),
            ast::Value::Boolean(value) => return assign(Value::Boolean(*value), target).map(Some),
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
                return assign(Value::Text(text.as_str().into()), target).map(Some);
            }
            ast::Value::Number(text, _) => (text, false),
            _ => return Ok(None),
        },
        Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                ast::Value::Number(text, _) => (text, true),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        },
        Expr::TypedString(typed) => {
            let sql_type = crate::front::sql_type_of(&typed.data_type);
            return match (sql_type, &typed.value.value) {
                (Ok(sql_type), ast::Value::SingleQuotedString(text)) => {
                    assign(crate::pg_format::parse_text(sql_type, text)?, target).map(Some)
                }
                _ => Ok(None),
            };
        }
        _ => return Ok(None),
    };
    // A number: the column's own reading of its digits, which is exact for numerics and correctly rounded for floats.
    let signed = if negative { format!("-{text}") } else { text.clone() };
    let plain = matches!(
        target,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Real
            | SqlType::Double
            | SqlType::Numeric { .. }
    );
    if !plain {
        return Ok(None);
    }
    let is_integer = text.bytes().all(|b| b.is_ascii_digit());
    let integer_target = matches!(target, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    if integer_target && !is_integer {
        let Some(decimal) = crate::pg_format::parse_decimal(&signed) else { return Ok(None) };
        return assign(Value::Decimal { unscaled: decimal.unscaled, scale: decimal.scale }, target).map(Some);
    }
    match crate::pg_format::parse_text(target, &signed) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.sqlstate == SqlState::OUT_OF_RANGE && integer_target => {
            Err(SqlError::out_of_range(target.base_name()))
        }
        Err(error) => Err(error),
    }
}
