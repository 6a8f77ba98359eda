//! Running a native plan in the task.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use eris_engine::{Results, Transaction};
use eris_operators::{Aggregate, AggregateMerge, AggregationInput, Expression, FilterProject, Spill, select};
use eris_platform::{MemoryPool, Reservation};
use eris_storage::{Batch, Column, ColumnBuilder, Value};

use super::access::{Access, Bound, Expected};
use super::conditions::{OuterRow, Slot};
use super::held::Held;
use super::node::Node;
use super::rows::NativeRows;
use super::write::computed_bytes;
use crate::errors::{SqlError, SqlState};
use crate::plan::{engine_error, operator_error};

/// What one execution needs.
pub struct RunContext<'t> {
    /// The transaction, at the statement's number.
    pub transaction: &'t mut Transaction,
    /// The statement's parameters.
    pub parameters: Arc<[Value]>,
    /// Rows of a batch in dataflows at most.
    pub batch_rows: usize,
    /// Workers that the statement may keep busy at the same time.
    pub workers: usize,
    /// What aggregation works on.
    pub aggregation_input: AggregationInput,
    /// Where operators go on when memory is refused; none: the statement fails then.
    pub spill: Option<Spill>,
}

type Running<'r, T> = Pin<Box<dyn Future<Output = Result<T, SqlError>> + Send + 'r>>;

impl RunContext<'_> {
    fn filter_project(
        &self,
        filter: Option<&Arc<Expression>>,
        projection: Option<&Arc<[Expression]>>,
        limit: Option<u64>,
    ) -> FilterProject {
        FilterProject {
            filter: filter.cloned(),
            projection: projection.cloned(),
            limit,
            parameters: Arc::clone(&self.parameters),
        }
    }

    pub(super) fn memory(&self) -> &Arc<MemoryPool> {
        self.transaction.memory()
    }

    /// Batches that the task holds from now on.
    fn held(&self, batches: Vec<Batch>) -> Result<Held, SqlError> {
        Held::all(batches, self.memory())
    }

    pub(super) fn check_cancelled(&self) -> Result<(), SqlError> {
        if self.transaction.cancel_handle().is_cancelled() { Err(SqlError::cancelled()) } else { Ok(()) }
    }
}

/// Starts a plan: scans of whole tables stream, everything else is small and computed at once.
pub async fn start(node: &Node, context: &mut RunContext<'_>) -> Result<NativeRows, SqlError> {
    match node {
        Node::Scan { access, filter, projection } if access.expected() == Expected::Many => {
            stream(access, filter.as_ref(), projection.as_ref(), None, context)
        }
        Node::Limit { input, skip, fetch } => {
            let (skip, fetch) = limits(skip.as_ref(), fetch.as_ref(), &context.parameters)?;
            if fetch == Some(0) {
                return Ok(NativeRows::ready(Held::default()));
            }
            if let Node::Scan { access, filter, projection } = input.as_ref()
                && access.expected() == Expected::Many
            {
                let needed = fetch.map(|fetch| fetch.saturating_add(skip));
                let rows = stream(access, filter.as_ref(), projection.as_ref(), needed, context)?;
                return Ok(rows.limited(skip, fetch));
            }
            let batches = run(input, context).await?;
            Ok(NativeRows::ready(batches).limited(skip, fetch))
        }
        other => Ok(NativeRows::ready(run(other, context).await?)),
    }
}

fn stream(
    access: &Access,
    filter: Option<&Arc<Expression>>,
    projection: Option<&Arc<[Expression]>>,
    limit: Option<u64>,
    context: &mut RunContext<'_>,
) -> Result<NativeRows, SqlError> {
    let Bound::Read(read) = access.bind(&context.parameters)? else { return Ok(NativeRows::ready(Held::default())) };
    let operator = context.filter_project(filter, projection, limit);
    let results = context
        .transaction
        .scan(read, Some(Arc::new(operator)))
        .map_err(|error| engine_error(&error, Some(&access.table)))?;
    Ok(NativeRows::streaming(results, Arc::clone(&access.table), 0))
}

/// Runs a plan to its end and gives all batches.
pub fn run<'r>(node: &'r Node, context: &'r mut RunContext<'_>) -> Running<'r, Held> {
    Box::pin(async move {
        match node {
            Node::Values { rows, types } => {
                let (batches, computed) = values(rows, types, &context.parameters, context.memory())?;
                drop(computed);
                context.held(batches)
            }
            Node::Scan { access, filter, projection } => {
                scan(access, filter.as_ref(), projection.as_ref(), context).await
            }
            Node::KeyJoin { outer, inner, filter, left } => {
                let outer = run(outer, context).await?;
                key_join(outer, inner, filter.as_ref(), *left, context).await
            }
            Node::Aggregate { access, filter, projection, groups, calls } => {
                let aggregate = Aggregate {
                    filter: filter.clone(),
                    projection: projection.clone(),
                    groups: Arc::clone(groups),
                    calls: Arc::clone(calls),
                    parameters: Arc::clone(&context.parameters),
                    memory: Arc::clone(context.memory()),
                    input: context.aggregation_input,
                };
                aggregated(access, aggregate, context).await
            }
            Node::Project { input, expressions } => {
                let batches = run(input, context).await?;
                apply(&context.filter_project(None, Some(expressions), None), batches, context)
            }
            Node::Filter { input, condition } => {
                let batches = run(input, context).await?;
                apply(&context.filter_project(Some(condition), None, None), batches, context)
            }
            Node::Sort { input, spec } => {
                let mut batches = run(input, context).await?;
                if batches.is_empty() {
                    return Ok(batches);
                }
                context.check_cancelled()?;
                let sorted = spec.keys.sort(batches.batches(), spec.fetch, context.memory());
                let (batch, reservation) = sorted.map_err(|error| operator_error(&error))?;
                Ok(Held::charged(batch, reservation))
            }
            Node::Limit { input, skip, fetch } => {
                let (skip, fetch) = limits(skip.as_ref(), fetch.as_ref(), &context.parameters)?;
                if fetch == Some(0) {
                    return Ok(Held::default());
                }
                let mut rows = NativeRows::ready(run(input, context).await?).limited(skip, fetch);
                let mut batches = Held::default();
                while let Some(batch) = rows.next().await? {
                    batches.push(batch, context.memory())?;
                }
                Ok(batches)
            }
        }
    })
}

/// Rows of constant expressions, and what is reserved for long values that were computed for them.
pub(super) fn values(
    rows: &[Arc<[Expression]>],
    types: &[eris_storage::DataType],
    parameters: &[Value],
    memory: &Arc<MemoryPool>,
) -> Result<(Vec<Batch>, Option<Reservation>), SqlError> {
    if rows.is_empty() {
        return Ok((Vec::new(), None));
    }
    if let [row] = rows {
        // As it was computed: a large text is not copied, and stays reserved.
        let no_columns = Batch::new(Vec::new(), 1);
        let column = |expression: &Expression| expression.column(&no_columns, parameters);
        let columns = row.iter().map(column).collect::<Result<Vec<_>, _>>().map_err(|error| operator_error(&error))?;
        let typed = columns.into_iter().zip(types).map(|(column, data_type)| {
            if column.data_type == *data_type { column } else { Column::constant(*data_type, &column.value(0), 1) }
        });
        return Ok((vec![Batch::new(typed.collect::<Vec<Column>>(), 1)], None));
    }
    let mut builders: Vec<ColumnBuilder> =
        types.iter().map(|data_type| ColumnBuilder::with_capacity(*data_type, rows.len())).collect();
    let mut computed: Option<Reservation> = None;
    for row in rows {
        for (expression, builder) in row.iter().zip(&mut builders) {
            let value = expression.constant(parameters).map_err(|error| operator_error(&error))?;
            let bytes = computed_bytes(expression, &value);
            if bytes > 0 {
                let reservation = computed.get_or_insert_with(|| memory.reserve("computed values"));
                reservation.grow(bytes).map_err(SqlError::out_of_memory)?;
            }
            builder.push(&value);
        }
    }
    let columns: Vec<Column> = builders.into_iter().map(ColumnBuilder::finish).collect();
    Ok((vec![Batch::new(columns, rows.len())], computed))
}

fn apply(operator: &FilterProject, mut batches: Held, context: &RunContext<'_>) -> Result<Held, SqlError> {
    let mut applied = Held::default();
    while let Some(batch) = batches.pop() {
        let batch = operator.apply(batch).map_err(|error| operator_error(&error))?;
        if batch.rows > 0 {
            applied.push(batch, context.memory())?;
        }
    }
    Ok(applied)
}

async fn scan(
    access: &Access,
    filter: Option<&Arc<Expression>>,
    projection: Option<&Arc<[Expression]>>,
    context: &mut RunContext<'_>,
) -> Result<Held, SqlError> {
    if access.expected() == Expected::Many {
        let mut rows = stream(access, filter, projection, None, context)?;
        let mut batches = Held::default();
        while let Some(batch) = rows.next().await? {
            batches.push(batch, context.memory())?;
        }
        return Ok(batches);
    }
    let batches = read(access, None, context).await?;
    let batches = context.held(batches)?;
    if filter.is_none() && projection.is_none() {
        return Ok(batches);
    }
    apply(&context.filter_project(filter, projection, None), batches, context)
}

async fn read(
    access: &Access,
    outer: Option<OuterRow<'_>>,
    context: &mut RunContext<'_>,
) -> Result<Vec<Batch>, SqlError> {
    let Bound::Read(read) = access.bind_with(&context.parameters, outer)? else { return Ok(Vec::new()) };
    context.transaction.read(&read).await.map_err(|error| engine_error(&error, Some(&access.table)))
}

async fn key_join(
    mut outer: Held,
    inner: &Access,
    filter: Option<&Arc<Expression>>,
    left: bool,
    context: &mut RunContext<'_>,
) -> Result<Held, SqlError> {
    let mut joined = Held::default();
    for batch in outer.batches() {
        for row in 0..batch.rows {
            context.check_cancelled()?;
            let found = read(inner, Some(OuterRow { batch, row }), context).await?;
            let mut matched = false;
            for partner in found {
                let repeated = batch.take(&vec![row as u32; partner.rows]);
                let columns: Vec<Column> = repeated.columns.iter().chain(partner.columns.iter()).cloned().collect();
                let mut both = Batch::new(columns, partner.rows);
                if let Some(filter) = filter {
                    let rows = select(filter, &both, &context.parameters).map_err(|error| operator_error(&error))?;
                    if rows.len() < both.rows {
                        both = both.take(&rows);
                    }
                }
                if both.rows > 0 {
                    matched = true;
                    joined.push(both, context.memory())?;
                }
            }
            if left && !matched {
                let nulls = inner.types().into_iter().map(|data_type| Column::constant(data_type, &Value::Null, 1));
                let columns: Vec<Column> = batch.slice(row, 1).columns.iter().cloned().chain(nulls).collect();
                joined.push(Batch::new(columns, 1), context.memory())?;
            }
        }
    }
    Ok(joined)
}

async fn aggregated(access: &Access, aggregate: Aggregate, context: &mut RunContext<'_>) -> Result<Held, SqlError> {
    let mut merge = AggregateMerge::new(&aggregate);
    if let Bound::Read(read) = access.bind(&context.parameters)? {
        let failed = |error| engine_error(&error, Some(&access.table));
        let mut results: Results = context.transaction.scan(read, Some(Arc::new(aggregate))).map_err(failed)?;
        while let Some(partial) = results.next().await.map_err(failed)? {
            merge.merge(&partial).map_err(|error| operator_error(&error))?;
        }
    }
    let batch = merge.finish().map_err(|error| operator_error(&error))?;
    context.held(if batch.rows == 0 { Vec::new() } else { vec![batch] })
}

/// OFFSET and LIMIT of one execution.
pub(super) fn limits(
    skip: Option<&Slot>,
    fetch: Option<&Slot>,
    parameters: &[Value],
) -> Result<(u64, Option<u64>), SqlError> {
    let count = |slot: Option<&Slot>, what: &str| -> Result<Option<u64>, SqlError> {
        let value = match slot {
            None => return Ok(None),
            Some(Slot::Constant(value)) => value.clone(),
            Some(Slot::Expression(expression)) => {
                expression.constant(parameters).map_err(|error| operator_error(&error))?
            }
            Some(Slot::Outer(_)) => return Err(SqlError::internal("a limit by an outer row")),
        };
        match value {
            Value::Null => Ok(None),
            Value::Int64(rows) => {
                if let Ok(rows) = u64::try_from(rows) {
                    Ok(Some(rows))
                } else {
                    let state = if what == "LIMIT" { SqlState::NEGATIVE_LIMIT } else { SqlState::NEGATIVE_OFFSET };
                    Err(SqlError::new(state, format!("{what} must not be negative")))
                }
            }
            other => Err(SqlError::internal(format!("{what} {other}"))),
        }
    };
    Ok((count(skip, "OFFSET")?.unwrap_or(0), count(fetch, "LIMIT")?))
}
