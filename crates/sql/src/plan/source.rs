//! A table as DataFusion's planner sees it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, DataFusionError, Result, Statistics};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use eris_storage::{AttributeId, Predicate, ReadRequest};

use super::translate::condition_of;
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::fallback::FallbackExecution;
use crate::native::{Access, Bound};

/// A table in a plan.
#[derive(Debug)]
pub struct TableSourceProvider {
    table: Arc<Table>,
    schema: SchemaRef,
    rows: u64,
}

/// What one scan of a fallback plan reads.
#[derive(Clone, Debug)]
pub struct ScanTarget {
    /// The table.
    pub table: Arc<Table>,
    /// Its conditions and attributes.
    pub request: ReadRequest,
    /// No row can qualify.
    pub nothing: bool,
    /// Filters to be evaluated on what is read.
    left: Vec<Expr>,
    /// How many of the columns read were asked for.
    width: usize,
}

impl ScanTarget {
    /// For a projection and filters that the table accepted. What the optimiser made of them afterwards may be
    /// something that storage cannot evaluate: that is left, and the columns it needs are read behind the others.
    pub fn new(table: &Arc<Table>, projection: Option<&[usize]>, filters: &[Expr]) -> Result<Self, SqlError> {
        let mut conditions = Vec::new();
        let mut left = Vec::new();
        for filter in filters {
            match condition_of(filter, table) {
                Some(own) => conditions.extend(own),
                None => left.push(filter.clone()),
            }
        }
        let mut desired: Vec<AttributeId> = match projection {
            Some(projection) => projection.iter().map(|position| AttributeId(*position as u16)).collect(),
            None => table.attributes().to_vec(),
        };
        let width = desired.len();
        let mut needed: Vec<AttributeId> = left
            .iter()
            .flat_map(Expr::column_refs)
            .filter_map(|column| table.column(&column.name).map(|(attribute, _)| attribute))
            .filter(|attribute| !desired.contains(attribute))
            .collect();
        needed.sort_unstable();
        needed.dedup();
        desired.extend(needed);
        let desired: Arc<[AttributeId]> = desired.into();
        let access = Access { table: Arc::clone(table), conditions, desired: Arc::clone(&desired), order: None };
        Ok(match access.bind(&[])? {
            Bound::Read(read) => Self { table: Arc::clone(table), request: read.request, nothing: false, left, width },
            Bound::Nothing => {
                let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
                Self { table: Arc::clone(table), request, nothing: true, left, width }
            }
        })
    }

    /// Whether another target reads the same.
    pub fn same(&self, other: &Self) -> bool {
        self.table.container() == other.table.container()
            && self.nothing == other.nothing
            && self.request == other.request
    }
}

impl TableSourceProvider {
    /// A table that has about this many rows.
    pub fn new(table: Arc<Table>, rows: u64) -> Self {
        Self { schema: table.arrow(), table, rows }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

#[async_trait]
impl TableProvider for TableSourceProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters
            .iter()
            .map(|filter| match condition_of(filter, &self.table) {
                Some(_) => TableProviderFilterPushDown::Exact,
                None => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Inexact(self.rows as usize);
        Some(statistics)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let execution = state
            .config()
            .get_extension::<FallbackExecution>()
            .ok_or_else(|| DataFusionError::Internal("a scan outside of a statement".to_string()))?;
        let target = ScanTarget::new(&self.table, projection.map(Vec::as_slice), filters)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (left, width) = (target.left.clone(), target.width);
        let scan = execution.scan(target)?;
        let Some(filter) = conjunction(left) else { return Ok(scan) };
        let schema = DFSchema::try_from(scan.schema())?;
        let filtered = FilterExec::try_new(state.create_physical_expr(filter, &schema)?, scan)?;
        let schema = filtered.schema();
        let column = |(at, name): (usize, &String)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(name, at));
            (column, name.clone())
        };
        let asked: Vec<_> =
            schema.fields().iter().map(|field| field.name()).take(width).enumerate().map(column).collect();
        Ok(Arc::new(ProjectionExec::try_new(asked, Arc::new(filtered))?))
    }
}
