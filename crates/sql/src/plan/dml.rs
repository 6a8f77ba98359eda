//! Planning INSERT, UPDATE and DELETE.
//!
//! WHERE and SET are planned as the query `SELECT new values FROM table WHERE condition`, so that names, types and
//! simplification are those of queries; its native plan says which rows are accessed and what is computed.

use std::sync::Arc;

use eris_operators::Expression;
use eris_storage::{AttributeId, Value};

use super::bind::{BoundQuery, SessionValues};
use super::lower::lower_query;
use super::parameters::{ParameterTypes, bare_parameter, suggest_from_casts};
use super::planner::Planner;
use crate::ast::{self, Expr, Ident, SelectItem};
use crate::catalog::{CatalogVersion, Table, suggestions};
use crate::errors::{SqlError, SqlState};
use crate::front::{DeleteCommand, InsertCommand, InsertSource, TableName, UpdateCommand};
use crate::native::{DeletePlan, InsertPlan, InsertRows, Node, UpdatePlan, assign};
use crate::session::QueryPlan;
use crate::types::SqlType;

/// What planning a statement needs to know.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Functions and rules.
    pub planner: &'a Planner,
    /// Names.
    pub catalog: &'a CatalogVersion,
    /// The session.
    pub values: &'a SessionValues,
    /// Whether plans may fall back.
    pub fallback: bool,
}

/// A planned DML statement.
#[derive(Debug)]
pub struct PlannedWrite<P> {
    /// The plan.
    pub plan: P,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// The plan holds only for this session and moment.
    pub momentary: bool,
}

/// `SELECT items FROM table AS alias WHERE selection`, built as a tree.
fn select(items: Vec<Expr>, table: &TableName, alias: Option<&str>, selection: Option<&Expr>) -> ast::Query {
    let name = ast::ObjectName::from(
        table.schema.iter().chain([&table.name]).map(|part| Ident::with_quote('"', part.clone())).collect::<Vec<_>>(),
    );
    let template = "SELECT 1 FROM x";
    let parsed = crate::front::parse(template).unwrap_or_default();
    let Some(ast::Statement::Query(mut query)) = parsed.into_iter().next().map(|statement| statement.ast) else {
        unreachable!("the template is a query")
    };
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        select.projection = items
            .into_iter()
            .enumerate()
            .map(|(at, expr)| SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', format!("__new_{at}")) })
            .collect();
        if let Some(ast::TableWithJoins {
            relation: ast::TableFactor::Table { name: own, alias: own_alias, .. }, ..
        }) = select.from.first_mut()
        {
            *own = name;
            *own_alias = alias.map(|alias| ast::TableAlias {
                explicit: true,
                name: Ident::with_quote('"', alias),
                columns: Vec::new(),
                at: None,
            });
        }
        select.selection = selection.cloned();
    }
    *query
}

fn column_of<'t>(table: &'t Table, name: &str) -> Result<(AttributeId, &'t crate::catalog::TableColumn), SqlError> {
    table
        .column(name)
        .ok_or_else(|| SqlError::no_such_column(name, Some(&table.name), &suggestions(name, table.column_names())))
}

/// The literal that stands for a default.
fn default_literal(column: &crate::catalog::TableColumn) -> Expr {
    let null = || Expr::Value(ast::Value::Null.with_empty_span());
    match crate::pg_format::value_text(&column.default) {
        None => null(),
        Some(text) => Expr::Value(ast::Value::SingleQuotedString(text).with_empty_span()),
    }
}

fn native(bound: &BoundQuery, what: &str) -> Result<Node, SqlError> {
    lower_query(&bound.plan).map_err(|reason| {
        SqlError::unsupported(
            format!("{what} with this condition ({reason})"),
            "SELECT the keys first, then change the rows by key.",
        )
    })
}

/// Plans an UPDATE.
pub fn plan_update(
    command: &UpdateCommand,
    scope: Scope<'_>,
    mut types: ParameterTypes,
) -> Result<PlannedWrite<UpdatePlan>, SqlError> {
    let table = Arc::clone(scope.catalog.table(&command.table)?);
    let mut attributes: Vec<AttributeId> = Vec::new();
    let mut items = Vec::new();
    for assignment in &command.assignments {
        let (attribute, column) = column_of(&table, &assignment.column)?;
        if attributes.contains(&attribute) {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                format!("multiple assignments to same column \"{}\"", assignment.column),
            ));
        }
        attributes.push(attribute);
        let value = match &assignment.value {
            None => default_literal(column),
            Some(value) => {
                if let Some(index) = bare_parameter(value) {
                    types.suggest(index, column.sql_type);
                }
                suggest_from_casts(value, &mut types);
                value.clone()
            }
        };
        items.push(value);
    }
    let query = select(items, &command.table, command.alias.as_deref(), command.selection.as_ref());
    let bound = scope.planner.bind_query(&query, scope.catalog, scope.values, types)?;
    let mut stages: Vec<Arc<[Expression]>> = Vec::new();
    let (access, filter) = match native(&bound, "UPDATE")? {
        Node::Values { rows, .. } if rows.is_empty() => (None, None),
        node => {
            let (access, filter) = unstack(node, &mut stages)?;
            (Some(access), filter)
        }
    };
    if let (Some(access), true) = (&access, stages.is_empty()) {
        // Plain columns, in some order: the scan yields the new values themselves.
        let types = access.types();
        let columns = types.into_iter().enumerate().map(|(index, data_type)| Expression::Column { index, data_type });
        stages.push(columns.collect());
    }
    // Constants get the column's type now rather than for every row.
    if let Some(last) = stages.last_mut() {
        let converted = last
            .iter()
            .zip(&attributes)
            .map(|(expression, attribute)| {
                let target = table.columns[attribute.index()].sql_type;
                Ok(match expression {
                    Expression::Constant { value, .. } => {
                        Expression::Constant { value: assign(value.clone(), target)?, data_type: target.data_type() }
                    }
                    other => {
                        check_assignable(other, target, &table.columns[attribute.index()].name)?;
                        other.clone()
                    }
                })
            })
            .collect::<Result<Vec<_>, SqlError>>()?;
        *last = converted.into();
    }
    let plan = UpdatePlan { access, filter, stages: stages.into(), attributes: attributes.into() };
    Ok(PlannedWrite { plan, parameters: bound.parameters, momentary: bound.momentary })
}

/// 42804 when the types can never fit.
fn check_assignable(expression: &Expression, target: SqlType, column: &str) -> Result<(), SqlError> {
    use eris_storage::DataType as T;
    let from = expression.data_type();
    let to = target.data_type();
    let number = |data_type: T| {
        matches!(data_type, T::Int16 | T::Int32 | T::Int64 | T::Float32 | T::Float64 | T::Decimal { .. })
    };
    let time = |data_type: T| matches!(data_type, T::Date | T::Timestamp);
    let fits = from == to
        || to == T::Text
        || (number(from) && number(to))
        || (time(from) && time(to))
        || (from == T::Text && matches!(expression, Expression::Parameter { .. } | Expression::Constant { .. }));
    if fits {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::TYPE_MISMATCH,
        format!("column \"{column}\" is of type {target} but expression is of type {}", SqlType::of(from)),
    )
    .hint("You will need to rewrite or cast the expression."))
}

type Unstacked = (crate::native::Access, Option<Arc<Expression>>);

/// The scan below projections, whose expressions become stages.
fn unstack(node: Node, stages: &mut Vec<Arc<[Expression]>>) -> Result<Unstacked, SqlError> {
    match node {
        Node::Scan { access, filter, projection } => {
            stages.extend(projection);
            Ok((access, filter))
        }
        Node::Project { input, expressions } => {
            let found = unstack(*input, stages)?;
            stages.push(expressions);
            Ok(found)
        }
        _ => Err(SqlError::unsupported(
            "a change of rows that are found through other tables",
            "SELECT the keys first, then change the rows by key.",
        )),
    }
}

/// Plans a DELETE.
pub fn plan_delete(
    command: &DeleteCommand,
    scope: Scope<'_>,
    types: ParameterTypes,
) -> Result<PlannedWrite<DeletePlan>, SqlError> {
    scope.catalog.table(&command.table)?;
    let one = Expr::Value(ast::Value::Number("1".to_string(), false).with_empty_span());
    let query = select(vec![one], &command.table, command.alias.as_deref(), command.selection.as_ref());
    let bound = scope.planner.bind_query(&query, scope.catalog, scope.values, types)?;
    let (access, filter) = match native(&bound, "DELETE")? {
        Node::Values { rows, .. } if rows.is_empty() => (None, None),
        node => {
            let (access, filter) = unstack(node, &mut Vec::new())?;
            (Some(access), filter)
        }
    };
    let plan = DeletePlan { access, filter };
    Ok(PlannedWrite { plan, parameters: bound.parameters, momentary: bound.momentary })
}

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
    let named = !targets.is_empty();
    if !named {
        targets = table.attributes().to_vec();
    }
    let (rows, width, parameters, momentary) = match &command.source {
        InsertSource::Defaults => {
            (InsertRows::Values(vec![vec![None; targets.len()]]), targets.len(), Vec::new(), false)
        }
        InsertSource::Values(rows) => {
            let width = rows.first().map_or(0, Vec::len);
            if rows.iter().any(|row| row.len() != width) {
                return Err(SqlError::new(SqlState::SYNTAX, "VALUES lists must all be the same length"));
            }
            check_width(width, targets.len(), named)?;
            let (rows, parameters, momentary) = plan_values(rows, &targets, &table, scope, types)?;
            (InsertRows::Values(rows), width, parameters, momentary)
        }
        InsertSource::Query(query) => {
            types.cover(query.as_ref());
            let bound = scope.planner.bind_query(query, scope.catalog, scope.values, types)?;
            let width = bound.columns.len();
            check_width(width, targets.len(), named)?;
            let (parameters, momentary) = (bound.parameters.clone(), bound.momentary);
            let plan = QueryPlan::make(bound, scope.fallback)?;
            (InsertRows::Query(Arc::new(plan)), width, parameters, momentary)
        }
    };
    let mut source_of_column: Vec<Option<usize>> = vec![None; table.columns.len()];
    for (position, attribute) in targets.iter().take(width).enumerate() {
        source_of_column[attribute.index()] = Some(position);
    }
    let plan = InsertPlan { table, source_of_column: source_of_column.into(), rows };
    Ok(PlannedWrite { plan, parameters, momentary })
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

type PlannedValues = (Vec<Vec<Option<Expression>>>, Vec<SqlType>, bool);

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
    let mut momentary = false;
    if !computed.is_empty() {
        let items = computed.iter().map(|(_, _, expr)| expr.clone()).collect();
        let mut query = select(items, &TableName { schema: None, name: "x".to_string() }, None, None);
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            select.from.clear();
        }
        let bound = scope.planner.bind_query(&query, scope.catalog, scope.values, types.clone())?;
        momentary = bound.momentary;
        types = ParameterTypes(bound.parameters.iter().copied().map(Some).collect());
        let reason = |reason| SqlError::unsupported(format!("VALUES with {reason}"), "Write INSERT ... SELECT.");
        let expressions = match lower_query(&bound.plan).map_err(reason)? {
            Node::Values { rows, .. } if rows.len() == 1 => rows[0].to_vec(),
            _ => return Err(reason(super::NotNative("a subquery".to_string()))),
        };
        for ((row, at, _), expression) in computed.into_iter().zip(expressions) {
            let column = &table.columns[targets[at].index()];
            check_assignable(&expression, column.sql_type, &column.name)?;
            planned[row][at] = Some(expression);
        }
    }
    Ok((planned, types.finish(), momentary))
}

/// The value of a literal as the column stores it; `None` if it is not a plain literal.
fn literal(expr: &Expr, target: SqlType) -> Result<Option<Value>, SqlError> {
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
