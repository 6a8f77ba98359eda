//! Scans: what partitions evaluate themselves, and what is known of a table.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_operators::Expression;
use eris_query::{ColumnId, ScannedColumn, TableId};
use eris_storage::{AttributeId, Batch};

use super::estimate::{ColumnEstimate, Estimate, UniqueKey};
use super::stream::{Stream, placed};
use super::{Compiler, Lowering, Needed};
use crate::catalog::Table;
use crate::native::{Access, Source};
use crate::plan::access::{Inside, table_of};

impl Compiler<'_> {
    /// A scan with the conditions that storage evaluates.
    pub(super) fn scan(
        &mut self,
        table: TableId,
        scanned: &[ScannedColumn],
        inside: Vec<Inside>,
        needed: &Needed,
    ) -> Lowering<Stream> {
        let table = table_of(self.tables, table)?;
        let wanted = scanned.iter().filter(|column| needed.contains(&column.column));
        let (columns, desired): (Vec<ColumnId>, Vec<AttributeId>) =
            wanted.map(|column| (column.column, column.attribute)).unzip();
        let desired: Arc<[AttributeId]> = desired.into();
        let estimate = self.estimate_of(table, inside.iter().map(|inside| &inside.expression), &desired);
        let conditions = inside.into_iter().flat_map(|inside| inside.conditions).collect();
        let access = Access { table: Arc::clone(table), conditions, desired, order: None };
        let types = access.types();
        Ok(Stream::of(Source::Scan(access), placed(columns), types, estimate))
    }

    /// What is known of a table's rows that satisfy conditions on its attributes.
    fn estimate_of<'e>(
        &self,
        table: &Table,
        conditions: impl Iterator<Item = &'e Expression>,
        desired: &[AttributeId],
    ) -> Estimate {
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
        for condition in conditions {
            estimate = estimate.filtered(condition, &self.parameters);
        }
        let chosen: Vec<usize> = desired.iter().map(|attribute| attribute.index()).collect();
        estimate.chosen(&chosen)
    }
}
