//! INSERT, UPDATE and DELETE as they run.

use std::sync::Arc;

use eris_engine::{Change, EngineError, RowChange, RowFilter, Transaction};
use eris_operators::{Expression, select};
use eris_platform::{MemoryPool, Reservation};
use eris_storage::{AttributeId, Batch, Column, ColumnBuilder, Value};

use super::access::{Access, Bound};
use super::convert::assign;
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::plan::{engine_error, operator_error};
use crate::types::SqlType;

/// INSERT: where the value of each column of the table comes from.
#[derive(Clone, Debug)]
pub struct InsertPlan {
    /// Into this table.
    pub table: Arc<Table>,
    /// By column of the table: the position in the source, or `None` for the default.
    pub source_of_column: Box<[Option<usize>]>,
    /// By column of the table: its default, if it is needed.
    pub defaults: Box<[Value]>,
    /// The rows.
    pub rows: InsertRows,
}

/// What is inserted.
#[derive(Clone, Debug)]
pub enum InsertRows {
    /// VALUES: one expression per position and row; `None` is DEFAULT.
    Values(Vec<Vec<Option<Expression>>>),
    /// The rows of a query, planned on its own.
    Query(Arc<crate::session::QueryPlan>),
}

/// Shorter values are bounded by the statement's text.
const RESERVED_BYTES_MIN: usize = 4 << 10;

/// What a long value takes that was computed; 0: it is short, or was given.
pub(super) fn computed_bytes(expression: &Expression, value: &Value) -> u64 {
    let bytes = match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    let is_given = matches!(expression, Expression::Constant { .. } | Expression::Parameter { .. });
    if is_given || bytes < RESERVED_BYTES_MIN { 0 } else { bytes as u64 }
}

impl InsertPlan {
    /// The batch of a VALUES list; long values that are computed for it are reserved as they come. A reservation takes
    /// a lock, so there is none before the first.
    pub fn values_batch(
        &self,
        rows: &[Vec<Option<Expression>>],
        parameters: &[Value],
        memory: &Arc<MemoryPool>,
        computed: &mut Option<Reservation>,
    ) -> Result<Batch, SqlError> {
        let mut columns = Vec::with_capacity(self.table.columns.len());
        for ((column, source), default) in self.table.columns.iter().zip(&self.source_of_column).zip(&self.defaults) {
            let mut builder = ColumnBuilder::with_capacity(column.sql_type.data_type(), rows.len());
            for row in rows {
                let expression = source.and_then(|position| row[position].as_ref());
                let value = match expression {
                    None => default.clone(),
                    Some(expression) => {
                        let value = expression.constant(parameters).map_err(|error| operator_error(&error))?;
                        let bytes = computed_bytes(expression, &value);
                        if bytes > 0 {
                            let computed = computed.get_or_insert_with(|| memory.reserve("computed values"));
                            computed.grow(bytes).map_err(SqlError::out_of_memory)?;
                        }
                        assign(value, column.sql_type)?
                    }
                };
                if column.not_null && value.is_null() {
                    return Err(SqlError::not_null(&column.name, &self.table.name));
                }
                builder.push(&value);
            }
            columns.push(builder.finish());
        }
        Ok(Batch::new(columns, rows.len()))
    }

    /// A batch of a query's rows as rows of the table.
    pub fn query_batch(&self, batch: &Batch, types: &[SqlType]) -> Result<Batch, SqlError> {
        let mut columns = Vec::with_capacity(self.table.columns.len());
        for ((column, source), default) in self.table.columns.iter().zip(&self.source_of_column).zip(&self.defaults) {
            let values = match source {
                None => Column::constant(column.sql_type.data_type(), default, batch.rows),
                Some(position) => store_as(&batch.columns[*position], types[*position], column.sql_type)?,
            };
            if column.not_null && values.null_count() > 0 {
                return Err(SqlError::not_null(&column.name, &self.table.name));
            }
            columns.push(values);
        }
        Ok(Batch::new(columns, batch.rows))
    }
}

/// A column as one of another type stores it: shared where nothing has to be checked, otherwise value by value.
pub fn store_as(values: &Column, from: SqlType, to: SqlType) -> Result<Column, SqlError> {
    let same = values.data_type == to.data_type();
    let unchecked = !matches!(to, SqlType::Varchar(Some(_)) | SqlType::Char(_)) || from == to;
    if same && unchecked {
        return Ok(values.clone());
    }
    let mut builder = ColumnBuilder::with_capacity(to.data_type(), values.len());
    for row in 0..values.len() {
        builder.push(&assign(values.value(row), to)?);
    }
    Ok(builder.finish())
}

/// UPDATE: an access and the new values.
#[derive(Clone, Debug)]
pub struct UpdatePlan {
    /// Which rows; `None`: none can qualify.
    pub access: Option<Access>,
    /// Which of them, as far as storage cannot say.
    pub filter: Option<Arc<Expression>>,
    /// Computed one after the other; the last stage gives one column per attribute.
    pub stages: Arc<[Arc<[Expression]>]>,
    /// The attributes that get new values.
    pub attributes: Arc<[AttributeId]>,
}

/// One execution of an UPDATE.
struct Updating {
    plan: UpdatePlan,
    table: Arc<Table>,
    inputs: usize,
    parameters: Arc<[Value]>,
}

fn foreign(error: SqlError) -> EngineError {
    EngineError::from_foreign(error)
}

impl RowChange for Updating {
    fn inputs(&self) -> usize {
        self.inputs
    }

    fn attributes(&self) -> &[AttributeId] {
        &self.plan.attributes
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows = match &self.plan.filter {
            None => None,
            Some(filter) => Some(select(filter, batch, &self.parameters)?),
        };
        let mut values = match &rows {
            None => batch.clone(),
            Some(rows) if rows.len() == batch.rows => batch.clone(),
            Some(rows) => batch.take(rows),
        };
        for stage in self.plan.stages.iter() {
            let columns = stage
                .iter()
                .map(|expression| expression.column(&values, &self.parameters))
                .collect::<Result<Vec<Column>, _>>()?;
            values = Batch::new(columns, values.rows);
        }
        let mut columns = Vec::with_capacity(self.plan.attributes.len());
        for (attribute, column) in self.plan.attributes.iter().zip(values.columns.iter()) {
            let target = &self.table.columns[attribute.index()];
            let from = SqlType::of(column.data_type);
            let stored = store_as(column, from, target.sql_type).map_err(foreign)?;
            if target.not_null && stored.null_count() > 0 {
                return Err(foreign(SqlError::not_null(&target.name, &self.table.name)));
            }
            columns.push(stored);
        }
        let values = Batch::new(columns, values.rows);
        Ok(Change { rows, attributes: self.plan.attributes.to_vec().into(), values })
    }
}

impl UpdatePlan {
    /// Runs it; the number of rows.
    pub async fn run(&self, transaction: &mut Transaction, parameters: &Arc<[Value]>) -> Result<u64, SqlError> {
        let Some(access) = &self.access else { return Ok(0) };
        let Bound::Read(read) = access.bind(parameters)? else { return Ok(0) };
        let change = Updating {
            plan: self.clone(),
            table: Arc::clone(&access.table),
            inputs: access.desired.len(),
            parameters: Arc::clone(parameters),
        };
        transaction.update(&read, Arc::new(change)).await.map_err(|error| engine_error(&error, Some(&access.table)))
    }
}

/// DELETE: an access and what storage cannot say about it.
#[derive(Clone, Debug)]
pub struct DeletePlan {
    /// Which rows; `None`: none can qualify.
    pub access: Option<Access>,
    /// Which of them.
    pub filter: Option<Arc<Expression>>,
}

struct Deleting {
    filter: Arc<Expression>,
    parameters: Arc<[Value]>,
}

impl RowFilter for Deleting {
    fn select(&self, batch: &Batch) -> Result<Vec<u32>, EngineError> {
        Ok(select(&self.filter, batch, &self.parameters)?)
    }
}

impl DeletePlan {
    /// Runs it; the number of rows.
    pub async fn run(&self, transaction: &mut Transaction, parameters: &Arc<[Value]>) -> Result<u64, SqlError> {
        let Some(access) = &self.access else { return Ok(0) };
        let Bound::Read(read) = access.bind(parameters)? else { return Ok(0) };
        let filter = self.filter.as_ref().map(|filter| {
            let deleting = Deleting { filter: Arc::clone(filter), parameters: Arc::clone(parameters) };
            Arc::new(deleting) as Arc<dyn RowFilter>
        });
        transaction.delete(&read, filter).await.map_err(|error| engine_error(&error, Some(&access.table)))
    }
}
