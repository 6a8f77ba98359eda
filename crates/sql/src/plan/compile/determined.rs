//! Which group columns determine the others: a primary key determines all columns of its table, and what an inner join
//! makes equal determines each other. Rows that agree in a key agree in all that it determines, NULLs of outer joins
//! included, so that only the key is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eris_query::{ColumnId, JoinKind, Relation};
use eris_storage::{DataType, IndexDefinition};

use super::Lowering;
use crate::catalog::Table;
use crate::plan::access::table_of;

/// A scan of a query, and a column of its table.
type Attribute = (usize, usize);

/// What a query's scans and joins say.
#[derive(Default)]
struct Known {
    /// The primary key of each scan's table.
    keys: Vec<Option<Vec<usize>>>,
    equal: Vec<(Attribute, Attribute)>,
    /// Which column of which scan a column is, if any; and whether it is a number.
    attributes: BTreeMap<ColumnId, (Attribute, bool)>,
}

/// For each group column over a relation's rows whether it has to be compared; if it is a column of the relation, which
/// one. At least one has to.
pub(super) fn compared(input: &Relation, groups: &[Option<ColumnId>], tables: &[Arc<Table>]) -> Lowering<Vec<bool>> {
    let mut known = Known::default();
    known.note(input, tables)?;
    let groups: Vec<Option<(Attribute, bool)>> =
        groups.iter().map(|column| known.attributes.get(column.as_ref()?).copied()).collect();
    let mut compared = vec![true; groups.len()];
    // Numbers are the last to be left out: they are compared at least cost.
    for numbers in [false, true] {
        for (at, group) in groups.iter().enumerate().rev() {
            let Some((attribute, is_number)) = *group else { continue };
            if is_number != numbers {
                continue;
            }
            compared[at] = false;
            let rest = groups.iter().zip(&compared).filter(|(_, compared)| **compared);
            let rest = rest.filter_map(|(group, _)| group.map(|(attribute, _)| attribute)).collect();
            compared[at] = !known.determined(rest).contains(&attribute);
        }
    }
    Ok(compared)
}

fn is_number(data_type: DataType) -> bool {
    match data_type {
        DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal { .. } => true,
        DataType::Boolean | DataType::Date | DataType::Timestamp | DataType::Text | DataType::Bytes => false,
    }
}

impl Known {
    /// Notes what a relation says of the columns that it yields.
    fn note(&mut self, relation: &Relation, tables: &[Arc<Table>]) -> Lowering<()> {
        match relation {
            Relation::Scan { table, columns } => {
                let table = table_of(tables, *table)?;
                let number = self.keys.len();
                let key = |index: &IndexDefinition| index.attributes.iter().map(|at| at.index()).collect();
                self.keys.push(table.schema.primary_key().map(key));
                for column in columns {
                    let attribute = (number, column.attribute.index());
                    self.attributes.insert(column.column, (attribute, is_number(column.sql_type.data_type())));
                }
            }
            Relation::Filter { input, .. } | Relation::Sort { input, .. } | Relation::Limit { input, .. } => {
                self.note(input, tables)?;
            }
            Relation::Project { input, items } => {
                self.note(input, tables)?;
                for item in items {
                    let source = item.value.as_column().and_then(|column| self.attributes.get(&column).copied());
                    if let Some(source) = source {
                        self.attributes.insert(item.column, source);
                    }
                }
            }
            Relation::Join(join) => {
                self.note(&join.left, tables)?;
                if matches!(join.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Full) {
                    self.note(&join.right, tables)?;
                }
                if join.kind == JoinKind::Inner {
                    self.equal.extend(join.keys.iter().filter_map(|(one, other)| {
                        let one = self.attributes.get(&one.as_column()?)?.0;
                        let other = self.attributes.get(&other.as_column()?)?.0;
                        Some((one, other))
                    }));
                }
            }
            Relation::OneRow
            | Relation::Values { .. }
            | Relation::Aggregate(_)
            | Relation::Window { .. }
            | Relation::Distinct { .. }
            | Relation::Union { .. } => {}
        }
        Ok(())
    }

    /// What some columns determine, themselves included.
    fn determined(&self, mut columns: BTreeSet<Attribute>) -> Columns {
        let mut scans = BTreeSet::new();
        loop {
            let has = |columns: &BTreeSet<Attribute>, scans: &BTreeSet<usize>, at: &Attribute| {
                scans.contains(&at.0) || columns.contains(at)
            };
            let before = (columns.len(), scans.len());
            for (scan, key) in self.keys.iter().enumerate() {
                if key.as_ref().is_some_and(|key| key.iter().all(|column| columns.contains(&(scan, *column)))) {
                    scans.insert(scan);
                }
            }
            for (one, other) in &self.equal {
                if has(&columns, &scans, one) || has(&columns, &scans, other) {
                    columns.extend([*one, *other]);
                }
            }
            if (columns.len(), scans.len()) == before {
                return Columns { columns, scans };
            }
        }
    }
}

/// Single columns, and all columns of some scans.
struct Columns {
    columns: BTreeSet<Attribute>,
    scans: BTreeSet<usize>,
}

impl Columns {
    fn contains(&self, attribute: &Attribute) -> bool {
        self.scans.contains(&attribute.0) || self.columns.contains(attribute)
    }
}
