//! Scans: what partitions evaluate themselves, and what is known of a table.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, SubqueryAlias, TableScan};
use eris_storage::{AttributeId, Batch};

use super::estimate::{ColumnEstimate, Estimate, UniqueKey};
use super::stream::Stream;
use super::{Compiler, Needed};
use crate::catalog::Table;
use crate::native::{Access, Source};
use crate::plan::lower::{Columns, Lowering, access_conditions, condition_of, lower, table_of};

/// A filter directly above a scan: the scan, and which parts of the filter storage evaluates.
pub(super) struct FilteredScan<'p> {
    pub scan: &'p TableScan,
    /// Parts that storage evaluates, and those that it cannot.
    pub inside: Vec<Expr>,
    pub outside: Vec<Expr>,
}

/// Splits a predicate above a scan; `None` if there is another node between them.
pub(super) fn filtered_scan<'p>(predicate: &Expr, input: &'p LogicalPlan) -> Lowering<Option<FilteredScan<'p>>> {
    let scan = match input {
        LogicalPlan::TableScan(scan) => scan,
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => match input.as_ref() {
            LogicalPlan::TableScan(scan) => scan,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let table = table_of(scan)?;
    let (inside, outside) =
        split_conjunction(predicate).into_iter().cloned().partition(|part: &Expr| condition_of(part, &table).is_some());
    Ok(Some(FilteredScan { scan, inside, outside }))
}

impl Compiler<'_> {
    pub(super) fn scan(&mut self, scan: &TableScan, needed: &Needed) -> Lowering<Stream> {
        self.scan_where(scan, &[], needed)
    }

    /// A scan with further conditions, which storage evaluates.
    pub(super) fn scan_where(&mut self, scan: &TableScan, further: &[Expr], needed: &Needed) -> Lowering<Stream> {
        let table = table_of(scan)?;
        let attributes: Vec<AttributeId> = match &scan.projection {
            Some(projection) => projection.iter().map(|position| AttributeId(*position as u16)).collect(),
            None => table.attributes().to_vec(),
        };
        let mut conditions = access_conditions(&scan.filters, &table)?;
        conditions.extend(access_conditions(further, &table)?);
        let desired: Arc<[AttributeId]> = needed.iter().map(|position| attributes[*position]).collect();
        let mut columns = vec![None; attributes.len()];
        for (column, position) in needed.iter().enumerate() {
            columns[*position] = Some(column);
        }
        let filters: Vec<&Expr> = scan.filters.iter().chain(further).collect();
        let estimate = self.estimate_of(&table, &filters, &desired);
        let access = Access { table, conditions, desired, order: None };
        let types = access.types();
        Ok(Stream::of(Source::Scan(access), columns, types, estimate))
    }

    /// What is known of a table's rows that satisfy the filters.
    fn estimate_of(&self, table: &Arc<Table>, filters: &[&Expr], desired: &[AttributeId]) -> Estimate {
        let Some(known) = self.statistics.of(table.container()) else {
            return Estimate::unknown(1_000.0, desired.len());
        };
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let columns =
            known.distinct.iter().map(|distinct| ColumnEstimate { distinct: *distinct, domain: *distinct }).collect();
        let unique = table.schema.indexes.iter().filter(|index| index.unique).map(|index| UniqueKey {
            columns: index.attributes.iter().map(|attribute| attribute.index()).collect::<BTreeSet<usize>>(),
            domain: known.rows,
        });
        let sample: Batch = known.sample.project(&all);
        let mut estimate = Estimate { rows: known.rows, columns, unique: unique.collect(), sample: Some(sample) };
        if let Ok(schema) = datafusion::common::DFSchema::try_from(table.arrow()) {
            for filter in filters {
                // Qualified or not, a column of the table is known by its name.
                let unqualified = datafusion::logical_expr::expr_rewriter::unnormalize_col((*filter).clone());
                if let Ok(condition) = lower(&unqualified, Columns::of(&schema)) {
                    estimate = estimate.filtered(&condition, &self.parameters);
                }
            }
        }
        let chosen: Vec<usize> = desired.iter().map(|attribute| attribute.index()).collect();
        estimate.chosen(&chosen)
    }
}
