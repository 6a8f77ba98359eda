//! A table as DataFusion's planner sees it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use eris_storage::{AttributeId, Predicate, ReadRequest};

use super::lower::condition_of;
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::fallback::FallbackExecution;
use crate::native::{Access, Bound};

/// A table in a plan.
#[derive(Debug)]
pub struct TableSourceProvider {
    table: Arc<Table>,
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
}

impl ScanTarget {
    /// For a projection and filters that the table accepted.
    pub fn new(table: &Arc<Table>, projection: Option<&[usize]>, filters: &[Expr]) -> Result<Self, SqlError> {
        let mut conditions = Vec::new();
        for filter in filters {
            let own = condition_of(filter, table)
                .ok_or_else(|| SqlError::internal(format!("the filter {filter} reached a scan")))?;
            conditions.extend(own);
        }
        let desired: Arc<[AttributeId]> = match projection {
            Some(projection) => projection.iter().map(|position| AttributeId(*position as u16)).collect(),
            None => table.attributes(),
        };
        let access = Access { table: Arc::clone(table), conditions, desired: Arc::clone(&desired), order: None };
        Ok(match access.bind(&[])? {
            Bound::Read(read) => Self { table: Arc::clone(table), request: read.request, nothing: false },
            Bound::Nothing => {
                let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
                Self { table: Arc::clone(table), request, nothing: true }
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
        Self { table, rows }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

#[async_trait]
impl TableProvider for TableSourceProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.table.arrow)
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
        let mut statistics = Statistics::new_unknown(&self.table.arrow);
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
        execution.scan(target)
    }
}
