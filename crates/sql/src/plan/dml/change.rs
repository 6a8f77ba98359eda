//! Planning UPDATE and DELETE.
//!
//! ```text
//!   one scan of the table, filter and new values computable there -> in the partitions, row by row as they are read
//!   anything else (subqueries, FROM, USING)                       -> a query finds keys and new values, then by key
//! ```

use std::sync::Arc;

use eris_operators::Expression;
use eris_storage::AttributeId;

use super::{PlannedWrite, Rows, Scope, check_assignable, column_of, default_expression, select};
use crate::ast::{self, Expr, Ident};
use crate::binder::Known;
use crate::catalog::Table;
use crate::errors::{SqlError, SqlState};
use crate::front::{DeleteCommand, UpdateCommand};
use crate::native::{Access, ChangePlan, DeletePlan, KeyedPlan, Node, UpdatePlan, assign};
use crate::plan::BoundQuery;
use crate::plan::parameters::{ParameterTypes, bare_parameter, suggest_from_casts};
use crate::plan::task::RowsPlan;
use crate::session::QueryPlan;

/// SET, resolved.
struct Assigned {
    attributes: Vec<AttributeId>,
    values: Vec<Expr>,
}

/// Plans an UPDATE.
pub fn plan_update(
    command: &UpdateCommand,
    scope: Scope<'_>,
    mut types: ParameterTypes,
) -> Result<PlannedWrite<ChangePlan>, SqlError> {
    let table = Arc::clone(scope.catalog.table(&command.table)?);
    let assigned = assigned(command, &table, &mut types)?;
    let rows = Rows {
        table: &command.table,
        alias: command.alias.as_deref(),
        others: &command.others,
        selection: command.selection.as_ref(),
    };
    if rows.others.is_empty()
        && let Ok((found, known)) =
            scope.own_rows(rows.table, rows.alias, rows.selection, &assigned.values, types.clone())
    {
        let RowsPlan { access, filter, values } = found;
        let found = InPartitions { access, filter, stages: vec![values] };
        let plan = ChangePlan::Update(update_in_partitions(found, &assigned.attributes, &table)?);
        return Ok(own_write(plan, table, known));
    }
    if rows.others.is_empty() {
        let query = select(assigned.values.clone(), rows);
        let bound = scope.planner.bind_query(&query, scope.catalog, scope.values, types.clone())?;
        if let Some(found) = bound.typed().and_then(|plan| plan.in_task()).ok().and_then(in_partitions) {
            let plan = ChangePlan::Update(update_in_partitions(found, &assigned.attributes, &table)?);
            let BoundQuery { tables: named, parameters, momentary, constant_bytes, .. } = bound;
            let is_bound_here = false;
            return Ok(PlannedWrite { plan, table, named, parameters, momentary, is_bound_here, constant_bytes });
        }
    }
    by_key(table, rows, Some(assigned), scope, types)
}

/// A change whose rows were bound here.
fn own_write(plan: ChangePlan, table: Arc<Table>, known: Known) -> PlannedWrite<ChangePlan> {
    let Known { tables: named, parameters, momentary, .. } = known;
    PlannedWrite { plan, table, named, parameters, momentary, is_bound_here: true, constant_bytes: 0 }
}

fn assigned(command: &UpdateCommand, table: &Table, types: &mut ParameterTypes) -> Result<Assigned, SqlError> {
    let mut assigned = Assigned { attributes: Vec::new(), values: Vec::new() };
    for assignment in &command.assignments {
        let (attribute, column) = column_of(table, &assignment.column)?;
        if assigned.attributes.contains(&attribute) {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                format!("multiple assignments to same column \"{}\"", assignment.column),
            ));
        }
        assigned.attributes.push(attribute);
        assigned.values.push(match &assignment.value {
            None => default_expression(column),
            Some(value) => {
                if let Some(index) = bare_parameter(value) {
                    types.suggest(index, column.sql_type);
                }
                suggest_from_casts(value, types);
                value.clone()
            }
        });
    }
    Ok(assigned)
}

/// A scan of one table, what storage cannot evaluate of its filter, and what is computed from it in stages.
struct InPartitions {
    access: Option<Access>,
    filter: Option<Arc<Expression>>,
    stages: Vec<Arc<[Expression]>>,
}

/// The parts of a plan that runs in the partitions; `None` if it has others.
fn in_partitions(node: Node) -> Option<InPartitions> {
    match node {
        Node::Values { rows, .. } if rows.is_empty() => {
            Some(InPartitions { access: None, filter: None, stages: Vec::new() })
        }
        Node::Scan { access, filter, projection } => {
            Some(InPartitions { access: Some(access), filter, stages: projection.into_iter().collect() })
        }
        Node::Project { input, expressions } => {
            let mut found = in_partitions(*input)?;
            found.stages.push(expressions);
            Some(found)
        }
        _ => None,
    }
}

fn update_in_partitions(
    found: InPartitions,
    attributes: &[AttributeId],
    table: &Table,
) -> Result<UpdatePlan, SqlError> {
    let InPartitions { access, filter, mut stages } = found;
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
            .zip(attributes)
            .map(|(expression, attribute)| {
                let column = &table.columns[attribute.index()];
                if let Expression::Constant { value, data_type } = expression {
                    check_assignable(*data_type, true, column)?;
                    let value = assign(value.clone(), column.sql_type)?;
                    return Ok(Expression::Constant { value, data_type: column.sql_type.data_type() });
                }
                let is_parameter = matches!(expression, Expression::Parameter { .. });
                check_assignable(expression.data_type(), is_parameter, column)?;
                Ok(expression.clone())
            })
            .collect::<Result<Vec<_>, SqlError>>()?;
        *last = converted.into();
    }
    Ok(UpdatePlan { access, filter, stages: stages.into(), attributes: attributes.into() })
}

/// Plans a DELETE.
pub fn plan_delete(
    command: &DeleteCommand,
    scope: Scope<'_>,
    types: ParameterTypes,
) -> Result<PlannedWrite<ChangePlan>, SqlError> {
    let table = Arc::clone(scope.catalog.table(&command.table)?);
    let rows = Rows {
        table: &command.table,
        alias: command.alias.as_deref(),
        others: &command.others,
        selection: command.selection.as_ref(),
    };
    if rows.others.is_empty()
        && let Ok((found, known)) = scope.own_rows(rows.table, rows.alias, rows.selection, &[], types.clone())
    {
        let plan = ChangePlan::Delete(DeletePlan { access: found.access, filter: found.filter });
        return Ok(own_write(plan, table, known));
    }
    if rows.others.is_empty() {
        let one = Expr::Value(ast::Value::Number("1".to_string(), false).with_empty_span());
        let query = select(vec![one], rows);
        let bound = scope.planner.bind_query(&query, scope.catalog, scope.values, types.clone())?;
        if let Some(found) = bound.typed().and_then(|plan| plan.in_task()).ok().and_then(in_partitions) {
            let plan = ChangePlan::Delete(DeletePlan { access: found.access, filter: found.filter });
            let BoundQuery { tables: named, parameters, momentary, constant_bytes, .. } = bound;
            let is_bound_here = false;
            return Ok(PlannedWrite { plan, table, named, parameters, momentary, is_bound_here, constant_bytes });
        }
    }
    by_key(table, rows, None, scope, types)
}

/// What identifies a row: a key without NULLs, or else all columns. Rows that are alike in all columns are changed
/// alike, because the condition and the new values cannot tell them apart.
fn identity(table: &Table) -> (Vec<AttributeId>, bool) {
    let is_key =
        |attributes: &[AttributeId]| attributes.iter().all(|attribute| table.columns[attribute.index()].not_null);
    match table.schema.indexes.iter().find(|index| index.unique && is_key(&index.attributes)) {
        Some(index) => (index.attributes.to_vec(), true),
        None => (table.attributes().to_vec(), false),
    }
}

/// Plans the query that finds keys and new values.
fn by_key(
    table: Arc<Table>,
    rows: Rows<'_>,
    assigned: Option<Assigned>,
    scope: Scope<'_>,
    types: ParameterTypes,
) -> Result<PlannedWrite<ChangePlan>, SqlError> {
    let (key, unique) = identity(&table);
    let name = rows.alias.unwrap_or(&table.name);
    let column = |attribute: &AttributeId| {
        let column = &table.columns[attribute.index()].name;
        Expr::CompoundIdentifier(vec![Ident::with_quote('"', name), Ident::with_quote('"', column)])
    };
    let mut items: Vec<Expr> = key.iter().map(column).collect();
    items.extend(assigned.iter().flat_map(|assigned| assigned.values.iter().cloned()));
    let query = select(items, Rows { alias: Some(name), ..rows });
    let bound = scope.planner.bind_query(&query, scope.catalog, scope.values, types)?;
    let (parameters, momentary, constant_bytes) = (bound.parameters.clone(), bound.momentary, bound.constant_bytes);
    let named = Arc::clone(&bound.tables);
    if let Some(assigned) = &assigned {
        for (at, (attribute, value)) in assigned.attributes.iter().zip(&assigned.values).enumerate() {
            let from = bound.columns[key.len() + at].sql_type.data_type();
            let is_literal = bare_parameter(value).is_some() || matches!(value, Expr::Value(_));
            check_assignable(from, is_literal, &table.columns[attribute.index()])?;
        }
    }
    let plan = KeyedPlan {
        table: Arc::clone(&table),
        query: Arc::new(QueryPlan::make(bound, scope.lanes)?),
        key: key.into(),
        unique,
        attributes: assigned.map(|assigned| assigned.attributes.into()),
    };
    let (plan, is_bound_here) = (ChangePlan::Keyed(plan), false);
    Ok(PlannedWrite { plan, table, named, parameters, momentary, is_bound_here, constant_bytes })
}
