//! Which group columns determine the others: a primary key determines all columns of its table, and what an inner join
//! makes equal determines each other. Rows that agree in a key agree in all that it determines, NULLs of outer joins
//! included, so that only the key is compared.

use std::collections::BTreeSet;

use datafusion::common::JoinType;
use datafusion::logical_expr::{Expr, LogicalPlan};
use eris_storage::IndexDefinition;

use super::relational::plain_column;
use crate::plan::lower::{Lowering, table_of};

/// A scan of a plan, and a column of its table.
type Attribute = (usize, usize);

/// What a plan's scans and joins say.
#[derive(Debug, Default)]
struct Known {
    /// The primary key of each scan's table.
    keys: Vec<Option<Vec<usize>>>,
    equal: Vec<(Attribute, Attribute)>,
}

/// For each group column over a plan's rows whether it has to be compared, if it is a column of the plan: at which
/// position. At least one has to.
pub(super) fn compared(input: &LogicalPlan, groups: &[Option<usize>]) -> Lowering<Vec<bool>> {
    let mut known = Known::default();
    let attributes = known.attributes(input)?;
    let of_group = |position: &Option<usize>| {
        let position = (*position)?;
        attributes[position].map(|attribute| (attribute, input.schema().field(position).data_type().is_numeric()))
    };
    let groups: Vec<Option<(Attribute, bool)>> = groups.iter().map(of_group).collect();
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

impl Known {
    /// By position in a plan's schema: which column of which scan it is, if any. Notes what the plan says of them.
    fn attributes(&mut self, plan: &LogicalPlan) -> Lowering<Vec<Option<Attribute>>> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let table = table_of(scan)?;
                let number = self.keys.len();
                let key = |index: &IndexDefinition| index.attributes.iter().map(|at| at.index()).collect();
                self.keys.push(table.schema.primary_key().map(key));
                let all: Vec<usize> = (0..table.columns.len()).collect();
                Ok(scan.projection.as_ref().unwrap_or(&all).iter().map(|column| Some((number, *column))).collect())
            }
            LogicalPlan::SubqueryAlias(alias) => self.attributes(&alias.input),
            LogicalPlan::Filter(filter) => self.attributes(&filter.input),
            LogicalPlan::Sort(sort) => self.attributes(&sort.input),
            LogicalPlan::Limit(limit) => self.attributes(&limit.input),
            LogicalPlan::Projection(projection) => {
                let below = self.attributes(&projection.input)?;
                let schema = projection.input.schema();
                let of = |expr: &Expr| below[schema.maybe_index_of_column(plain_column(expr)?)?];
                Ok(projection.expr.iter().map(of).collect())
            }
            LogicalPlan::Join(join) => {
                let (left, right) = (self.attributes(&join.left)?, self.attributes(&join.right)?);
                if join.join_type == JoinType::Inner {
                    let (of_left, of_right) = (join.left.schema(), join.right.schema());
                    self.equal.extend(join.on.iter().filter_map(|(one, other)| {
                        let one = left[of_left.maybe_index_of_column(one.try_as_col()?)?]?;
                        let other = right[of_right.maybe_index_of_column(other.try_as_col()?)?]?;
                        Some((one, other))
                    }));
                }
                Ok(match join.join_type {
                    JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => [left, right].concat(),
                    JoinType::LeftSemi | JoinType::LeftAnti => left,
                    JoinType::RightSemi | JoinType::RightAnti => right,
                    JoinType::LeftMark => [left, vec![None]].concat(),
                    JoinType::RightMark => [right, vec![None]].concat(),
                })
            }
            other => Ok(vec![None; other.schema().fields().len()]),
        }
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
