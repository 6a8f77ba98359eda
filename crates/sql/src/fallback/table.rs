//! A pinned table as DataFusion sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::datasource::DefaultTableSource;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use eris_engine::{PinnedScan, SnapshotHandle};
use eris_storage::{AttributeId, Condition, Predicate, ReadRequest};

use super::scan::{PinnedExec, PinnedRows};

/// Turns a filter into a condition that a segment evaluates itself, if it can.
pub type ConditionOf = Arc<dyn Fn(&Expr) -> Option<Condition> + Send + Sync>;

/// A table whose rows were pinned for one query.
pub struct PinnedTable {
    schema: SchemaRef,
    attributes: Arc<[AttributeId]>,
    rows: Arc<PinnedRows>,
    condition_of: ConditionOf,
    partitions: usize,
    statistics: Statistics,
}

impl PinnedTable {
    /// `attributes` are those behind the columns of `schema`; the open rows of `scan` have exactly these columns.
    pub fn new(
        schema: SchemaRef,
        attributes: Arc<[AttributeId]>,
        scan: PinnedScan,
        snapshot: Arc<SnapshotHandle>,
        condition_of: ConditionOf,
        partitions: usize,
        statistics: Statistics,
    ) -> Self {
        assert_eq!(schema.fields().len(), attributes.len(), "every column has its attribute");
        let rows = Arc::new(PinnedRows { segments: scan.segments, open: scan.open, snapshot });
        Self { schema, attributes, rows, condition_of, partitions, statistics }
    }
}

impl fmt::Debug for PinnedTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PinnedTable({} segments)", self.rows.segments.len())
    }
}

#[async_trait]
impl TableProvider for PinnedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns: Vec<usize> =
            projection.cloned().unwrap_or_else(|| (0..self.attributes.len()).collect());
        let mut conditions = Vec::with_capacity(filters.len());
        for filter in filters {
            let condition = (self.condition_of)(filter).ok_or_else(|| {
                DataFusionError::Internal(format!("filter {filter} was pushed down without being a condition"))
            })?;
            conditions.push(condition);
        }
        let request = ReadRequest {
            predicate: Predicate { conditions: conditions.into() },
            desired: columns.iter().map(|column| self.attributes[*column]).collect(),
            order: None,
        };
        let schema = Arc::new(self.schema.project(&columns)?);
        let statistics = self.statistics.clone().project(Some(&columns));
        let exec = PinnedExec::new(schema, columns, request, Arc::clone(&self.rows), self.partitions, statistics);
        Ok(Arc::new(exec))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters
            .iter()
            .map(|filter| match (self.condition_of)(filter) {
                Some(_) => TableProviderFilterPushDown::Exact,
                None => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics.clone())
    }
}

/// Gives every table scan of a plan, subqueries included, its pinned table. Tables are found by name.
pub fn attach(plan: LogicalPlan, tables: &BTreeMap<String, Arc<PinnedTable>>) -> Result<LogicalPlan> {
    let attached = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
        let name = scan.table_name.table();
        let table = tables
            .get(name)
            .ok_or_else(|| DataFusionError::Internal(format!("table {name} was not pinned for this query")))?;
        let provider: Arc<dyn TableProvider> = Arc::clone(table) as _;
        let source = Arc::new(DefaultTableSource::new(provider));
        Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })))
    })?;
    Ok(attached.data)
}
