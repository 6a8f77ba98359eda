//! Subqueries that refer to rows outside: the conditions by which they do are taken out of them, so that they can be
//! joined with those rows.
//!
//! ```text
//!   exists (select from u where u.t = #0 and u.m > 1)      join by  #3 = #0   with     Filter  #4 > 1
//!                                                                                       Scan    u  #3, #4
//! ```
//! A condition goes up through filters, projections and inner joins as it is; through groups it goes if it is an
//! equality: its value inside becomes a key. This is the case in which no rows of outside are needed inside (Kim, *On
//! optimizing an SQL-like nested query*, 1982, with Ganski and Wong's correction of 1987 for groups without rows, which
//! is the caller's to make).

use std::collections::BTreeSet;

use eris_storage::Comparison;

use crate::Unplanned;
use crate::operators::Kernel;
use crate::relation::{Aggregate, Join, JoinKind, Projected, Relation};
use crate::scalar::{ColumnId, Scalar, ScalarKind};

/// The columns that a relation refers to and that none of its own relations yields.
pub fn outside_columns(relation: &Relation) -> BTreeSet<ColumnId> {
    let own = own_columns(relation);
    let mut outside = BTreeSet::new();
    relation.visit(&mut |relation| {
        for scalar in relation.scalars() {
            scalar.columns(&mut |column| {
                if !own.contains(&column) {
                    outside.insert(column);
                }
            });
        }
    });
    outside
}

/// The columns that are made in a relation or below.
fn own_columns(relation: &Relation) -> BTreeSet<ColumnId> {
    let mut own = BTreeSet::new();
    relation.visit(&mut |relation| own.extend(relation.columns()));
    own
}

/// A relation without its conditions on rows outside, and those conditions. New columns are numbered from `next` on.
pub fn unnested(relation: Relation, next: &mut u32) -> Result<(Relation, Vec<Scalar>), Unplanned> {
    let own = own_columns(&relation);
    let mut unnesting = Unnesting { own, conditions: Vec::new(), next };
    let relation = unnesting.relation(relation)?;
    Ok((relation, unnesting.conditions))
}

/// The same for groups: each condition becomes one on a key.
pub fn unnested_groups(aggregate: Aggregate, next: &mut u32) -> Result<(Aggregate, Vec<Scalar>), Unplanned> {
    let own = own_columns(&aggregate.input);
    let mut unnesting = Unnesting { own, conditions: Vec::new(), next };
    let aggregate = unnesting.groups(aggregate)?;
    Ok((aggregate, unnesting.conditions))
}

struct Unnesting<'n> {
    /// The columns that are made inside.
    own: BTreeSet<ColumnId>,
    /// Those that were taken out, over what the relation yields now.
    conditions: Vec<Scalar>,
    next: &'n mut u32,
}

impl Unnesting<'_> {
    fn new_column(&mut self) -> ColumnId {
        let column = ColumnId(*self.next);
        *self.next += 1;
        self.own.insert(column);
        column
    }

    fn is_inside(&self, scalar: &Scalar) -> bool {
        let mut is_inside = true;
        scalar.columns(&mut |column| is_inside &= self.own.contains(&column));
        is_inside
    }

    fn is_outside(&self, scalar: &Scalar) -> bool {
        let mut is_outside = true;
        scalar.columns(&mut |column| is_outside &= !self.own.contains(&column));
        is_outside
    }

    /// The column inside that a condition says equals something outside. Rows that agree in a value computed from
    /// columns may differ in these, so only a column itself keeps the number of different rows for each row outside.
    fn equal_column(&self, condition: &Scalar) -> Option<ColumnId> {
        let ScalarKind::Call { operator, operands } = &condition.kind else { return None };
        let (Kernel::Compare(Comparison::Equal), [one, other]) = (operator.kernel, operands.as_slice()) else {
            return None;
        };
        let (inside, outside) = if self.is_outside(one) { (other, one) } else { (one, other) };
        let column = inside.as_column().filter(|column| self.own.contains(column))?;
        self.is_outside(outside).then_some(column)
    }

    /// The parts of a condition that are about rows inside alone; the others are taken out.
    fn kept(&mut self, condition: Scalar) -> Vec<Scalar> {
        let (kept, out): (Vec<Scalar>, Vec<Scalar>) =
            condition.into_conjuncts().into_iter().partition(|part| self.is_inside(part));
        self.conditions.extend(out);
        kept
    }

    fn relation(&mut self, relation: Relation) -> Result<Relation, Unplanned> {
        if outside_columns(&relation).is_empty() {
            return Ok(relation);
        }
        let refused = |what: &str| Err(Unplanned(format!("a subquery with rows of outside below {what}")));
        match relation {
            Relation::Filter { input, condition } => {
                let input = self.relation(*input)?;
                let kept = self.kept(condition);
                Ok(if kept.is_empty() {
                    input
                } else {
                    Relation::Filter { input: Box::new(input), condition: Scalar::and(kept) }
                })
            }
            Relation::Project { input, items } => self.projection(*input, items),
            Relation::Join(join) => self.join(*join),
            Relation::Aggregate(aggregate) if !aggregate.groups.is_empty() => {
                Ok(Relation::Aggregate(Box::new(self.groups(*aggregate)?)))
            }
            Relation::Aggregate(_) => refused("one group"),
            Relation::Distinct { input, mut columns } => {
                let input = self.relation(*input)?;
                for condition in self.conditions.iter().filter(|condition| !self.is_outside(condition)) {
                    let column = self.equal_column(condition);
                    let column =
                        column.ok_or_else(|| Unplanned::because("DISTINCT and a condition of another kind"))?;
                    if !columns.contains(&column) {
                        columns.push(column);
                    }
                }
                Ok(Relation::Distinct { input: Box::new(input), columns })
            }
            Relation::Sort { input, fetch: None, .. } => self.relation(*input),
            Relation::Sort { .. } | Relation::Limit { .. } => refused("LIMIT"),
            Relation::Window { .. } => refused("window functions"),
            Relation::Union { .. } => refused("UNION"),
            Relation::OneRow | Relation::Values { .. } | Relation::Scan { .. } => refused("constants"),
        }
    }

    /// What conditions are about goes through as further columns.
    fn projection(&mut self, input: Relation, mut items: Vec<Projected>) -> Result<Relation, Unplanned> {
        if items.iter().any(|item| !self.is_inside(&item.value)) {
            return Err(Unplanned::because("a subquery whose result is of rows outside"));
        }
        let input = self.relation(input)?;
        let conditions = std::mem::take(&mut self.conditions);
        for condition in conditions {
            let mut through: Vec<Scalar> = Vec::new();
            columns(&condition, &mut through);
            for column in through {
                let is_there = items.iter().any(|item| item.value.is_same(&column));
                if self.is_inside(&column) && !is_there {
                    let new = self.new_column();
                    items.push(Projected { column: new, value: column });
                }
            }
            self.conditions.push(condition.replaced(&|part| {
                part.as_column()?;
                let item = items.iter().find(|item| item.value.is_same(part))?;
                Some(Scalar::column(item.column, part.sql_type))
            }));
        }
        Ok(Relation::Project { input: Box::new(input), items })
    }

    fn join(&mut self, join: Join) -> Result<Relation, Unplanned> {
        let Join { kind, left, right, keys, condition, null_equal } = join;
        if keys.iter().any(|(one, other)| !self.is_inside(one) || !self.is_inside(other)) {
            return Err(Unplanned::because("a subquery with keys of rows outside"));
        }
        let is_inner = kind == JoinKind::Inner;
        let left = self.relation(left)?;
        let right = if is_inner {
            self.relation(right)?
        } else if outside_columns(&right).iter().all(|column| self.own.contains(column)) {
            right
        } else {
            return Err(Unplanned::because("a subquery with rows of outside in an outer join"));
        };
        let condition = match condition {
            None => None,
            Some(condition) if is_inner => {
                let kept = self.kept(condition);
                (!kept.is_empty()).then(|| Scalar::and(kept))
            }
            Some(condition) if self.is_inside(&condition) => Some(condition),
            Some(_) => return Err(Unplanned::because("a subquery with rows of outside in ON")),
        };
        Ok(Relation::Join(Box::new(Join { kind, left, right, keys, condition, null_equal })))
    }

    fn groups(&mut self, aggregate: Aggregate) -> Result<Aggregate, Unplanned> {
        let Aggregate { input, mut groups, calls, sets } = aggregate;
        let values = groups.iter().map(|group| &group.value);
        let of_calls = calls.iter().flat_map(|call| call.argument.iter().chain(&call.filter));
        if sets.is_some() || values.chain(of_calls).any(|value| !self.is_inside(value)) {
            return Err(Unplanned::because("a subquery that groups by rows outside"));
        }
        let input = self.relation(input)?;
        for condition in std::mem::take(&mut self.conditions) {
            let refused = || Unplanned::because("a subquery with groups and an inequality with rows outside");
            let ScalarKind::Call { operator, operands } = condition.kind else { return Err(refused()) };
            let operands = <[Scalar; 2]>::try_from(operands).map_err(|_| refused())?;
            if operator.kernel != Kernel::Compare(Comparison::Equal) {
                return Err(refused());
            }
            let operands = operands.map(|operand| {
                if self.is_outside(&operand) {
                    return Some(operand);
                }
                if !self.is_inside(&operand) {
                    return None;
                }
                let known = groups.iter().find(|group| group.value.is_same(&operand)).map(|group| group.column);
                let sql_type = operand.sql_type;
                let column = known.unwrap_or_else(|| {
                    let column = self.new_column();
                    groups.push(Projected { column, value: operand });
                    column
                });
                Some(Scalar::column(column, sql_type))
            });
            let operands = operands.into_iter().collect::<Option<Vec<Scalar>>>().ok_or_else(refused)?;
            self.conditions.push(Scalar::condition(ScalarKind::Call { operator, operands }));
        }
        Ok(Aggregate { input, groups, calls, sets })
    }
}

/// The columns of a scalar, each time it is there.
fn columns(scalar: &Scalar, found: &mut Vec<Scalar>) {
    if scalar.as_column().is_some() {
        found.push(scalar.clone());
    }
    scalar.operands().into_iter().for_each(|operand| columns(operand, found));
}
