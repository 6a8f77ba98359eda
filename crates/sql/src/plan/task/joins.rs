//! Joins by key: few outer rows, and for each of them the rows of a table with that key.

use eris_query::{Join, JoinKind, Relation, Scalar, Unplanned, columns_of, lower};
use eris_storage::Comparison;

use super::{Lowering, Needed, Planned, Tables, all_of};
use crate::native::{ConditionTemplate, Expected, Node, Slot, TestTemplate};

impl Tables<'_> {
    /// Tries the left side as the outer one, then the right.
    pub(super) fn join(self, join: &Join, needed: &Needed) -> Lowering<Planned> {
        let is_left = match join.kind {
            JoinKind::Inner => false,
            JoinKind::Left => true,
            JoinKind::Full | JoinKind::Semi | JoinKind::Anti { .. } | JoinKind::Mark { .. } => {
                return Err(Unplanned::because("a join of another kind"));
            }
        };
        if join.null_equal {
            return Err(Unplanned::because("a join in which NULL equals NULL"));
        }
        let forward = self.by_key(join, &join.left, &join.right, |(left, right)| (left, right), needed);
        if forward.is_ok() || is_left {
            return forward;
        }
        self.by_key(join, &join.right, &join.left, |(left, right)| (right, left), needed)
    }

    fn by_key(
        self,
        join: &Join,
        outer: &Relation,
        inner: &Relation,
        sides: impl Fn(&(Scalar, Scalar)) -> (&Scalar, &Scalar),
        needed: &Needed,
    ) -> Lowering<Planned> {
        let (scan, condition) = match inner {
            Relation::Filter { input, condition } => (input.as_ref(), Some(condition)),
            other => (other, None),
        };
        let Relation::Scan { table, columns } = scan else {
            return Err(Unplanned::because("a join whose inner side is not a table"));
        };
        let keys: Vec<(&Scalar, &Scalar)> = join.keys.iter().map(sides).collect();
        let mut wanted = columns_of(keys.iter().map(|(outer, _)| *outer).chain(&join.condition));
        wanted.extend(needed);
        let of = |relation: &Relation| -> Needed {
            let columns: Needed = relation.columns().into_iter().collect();
            wanted.intersection(&columns).copied().collect()
        };
        let outer = self.planned(outer, &of(outer))?;
        if !outer.node.is_small() {
            return Err(Unplanned::because("a join of many rows"));
        }
        let inner = self.scan(*table, columns, condition, &of(inner))?;
        let Node::Scan { mut access, filter, projection: None } = inner.node else {
            return Err(Unplanned::because("a join whose inner side is computed"));
        };
        let types = outer.node.types();
        for (outer_key, inner_key) in keys {
            let position = outer_key.as_column().and_then(outer.place());
            let attribute = inner_key.as_column().and_then(|column| columns.iter().find(|own| own.column == column));
            let (Some(position), Some(own)) = (position, attribute) else {
                return Err(Unplanned::because("a join on expressions"));
            };
            let (attribute, data_type) = (own.attribute, own.sql_type.data_type());
            if types[position] != data_type {
                return Err(Unplanned::because("a join of columns of different types"));
            }
            let test = TestTemplate::Compare(Comparison::Equal, Slot::Outer(position));
            access.conditions.push(ConditionTemplate { attribute, data_type, test });
        }
        if access.expected() == Expected::Many {
            return Err(Unplanned::because("a join without a key of the inner table"));
        }
        let width = outer.columns.len();
        let mut filters = Vec::new();
        if let Some(filter) = filter {
            let moved = filter.moved(&mut |column| Some(column + width));
            filters.push(moved.ok_or_else(|| Unplanned::because("a column that is not there"))?);
        }
        let columns: Vec<_> = outer.columns.iter().chain(&inner.columns).copied().collect();
        if let Some(condition) = &join.condition {
            filters.push(lower(condition, &|column| columns.iter().position(|known| *known == column))?);
        }
        let left = join.kind == JoinKind::Left;
        let node = Node::KeyJoin { outer: Box::new(outer.node), inner: access, filter: all_of(filters), left };
        Ok(Planned { node, columns })
    }
}
