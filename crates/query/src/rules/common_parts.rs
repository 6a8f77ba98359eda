//! What a relation would compute several times of each row is computed once, below it.
//!
//! ```text
//!   Aggregate  sum(#1 * (1 - #2)), sum(#1 * (1 - #2) * #3)      Aggregate  sum(#8), sum(#8 * #9)
//!     Scan                                                  ->     Project   #8 = #1 * (1 - #2), #9 = #3
//!                                                                     Scan
//! ```
//! A part that is computed only under a condition (a branch of CASE, the argument of a call with FILTER) is not moved
//! for that place alone: the condition may keep an error away from it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::relation::{Projected, Relation};
use crate::scalar::{ColumnId, Scalar, ScalarKind};

/// Relations that compute more parts than this are left as they are: each is compared with all others.
const PARTS_MAX: usize = 400;

/// See the module's documentation. New columns are numbered from `next` on.
pub fn common_parts(relation: Relation, next: &mut u32) -> Relation {
    let mut relation = relation.map_inputs(&mut |input| common_parts(input, next));
    let parts = shared(&relation);
    if parts.is_empty() {
        return relation;
    }
    let mut items: Vec<Projected> = Vec::with_capacity(parts.len());
    let mut made = |value: Scalar| {
        let (column, sql_type) = (ColumnId(*next), value.sql_type);
        *next += 1;
        items.push(Projected { column, value });
        Scalar::column(column, sql_type)
    };
    let parts: Vec<(Scalar, Scalar)> = parts.into_iter().map(|part| (part.clone(), made(part))).collect();
    // What is left of the columns below passes through.
    let mut through: BTreeMap<ColumnId, Scalar> = BTreeMap::new();
    for scalar in relation.scalars() {
        columns_beside(scalar, &parts, &mut |column| {
            if let Some(id) = column.as_column() {
                through.entry(id).or_insert_with(|| made(column.clone()));
            }
        });
    }
    let new = |part: &Scalar| {
        let own = parts.iter().find(|(known, _)| known.is_same(part)).map(|(_, column)| column);
        own.or_else(|| through.get(&part.as_column()?)).cloned()
    };
    for scalar in relation.scalars_mut() {
        let old = std::mem::replace(scalar, Scalar::column(ColumnId(0), scalar.sql_type));
        *scalar = old.replaced(&new);
    }
    relation.map_inputs(&mut |input| Relation::Project { input: Box::new(input), items: std::mem::take(&mut items) })
}

/// Calls `found` with every column of a scalar that stands outside of the parts.
fn columns_beside(scalar: &Scalar, parts: &[(Scalar, Scalar)], found: &mut dyn FnMut(&Scalar)) {
    if parts.iter().any(|(part, _)| part.is_same(scalar)) {
        return;
    }
    if scalar.as_column().is_some() {
        found(scalar);
    }
    scalar.operands().into_iter().for_each(|operand| columns_beside(operand, parts, found));
}

/// A part of what a relation computes.
struct Part<'s> {
    scalar: &'s Scalar,
    size: usize,
    /// How often it is there.
    times: usize,
    /// Somewhere it is computed whatever other parts give.
    is_always: bool,
}

/// The parts that a relation computes several times.
fn shared(relation: &Relation) -> Vec<Scalar> {
    let mut parts = Vec::new();
    match relation {
        Relation::Project { input, items } if !matches!(**input, Relation::OneRow) => {
            for item in items {
                note(&item.value, true, &mut parts);
            }
        }
        Relation::Aggregate(aggregate) => {
            for group in &aggregate.groups {
                note(&group.value, true, &mut parts);
            }
            for call in &aggregate.calls {
                call.argument.iter().for_each(|argument| note(argument, call.filter.is_none(), &mut parts));
                call.filter.iter().for_each(|filter| note(filter, true, &mut parts));
            }
        }
        _ => return Vec::new(),
    }
    if parts.len() > PARTS_MAX || relation.scalars().into_iter().any(Scalar::has_lowered) {
        return Vec::new();
    }
    parts.retain(|part| part.times > 1 && part.is_always);
    // The largest first: what is in it is computed once with it.
    parts.sort_by_key(|part| Reverse(part.size));
    let mut chosen: Vec<&Part<'_>> = Vec::new();
    for part in &parts {
        let spared: usize =
            chosen.iter().map(|larger| occurrences(larger.scalar, part.scalar) * (larger.times - 1)).sum();
        if part.times.saturating_sub(spared) > 1 {
            chosen.push(part);
        }
    }
    chosen.into_iter().map(|part| part.scalar.clone()).collect()
}

/// Notes all parts of a scalar that are worth a column.
fn note<'s>(scalar: &'s Scalar, is_always: bool, parts: &mut Vec<Part<'s>>) {
    if parts.len() > PARTS_MAX {
        return;
    }
    let is_computed = !matches!(
        scalar.kind,
        ScalarKind::Column(_) | ScalarKind::Constant(_) | ScalarKind::Parameter(_) | ScalarKind::Lowered(_)
    );
    if is_computed && scalar.has_columns() && !scalar.is_volatile() {
        match parts.iter_mut().find(|part| part.scalar.is_same(scalar)) {
            Some(part) => {
                part.times += 1;
                part.is_always |= is_always;
            }
            None => parts.push(Part { scalar, size: scalar.size(), times: 1, is_always }),
        }
    }
    let only_first = matches!(scalar.kind, ScalarKind::Case { .. } | ScalarKind::And(_) | ScalarKind::Or(_));
    for (at, operand) in scalar.operands().into_iter().enumerate() {
        note(operand, is_always && (at == 0 || !only_first), parts);
    }
}

/// How often a part is there.
fn occurrences(scalar: &Scalar, part: &Scalar) -> usize {
    if scalar.is_same(part) {
        return 1;
    }
    scalar.operands().into_iter().map(|operand| occurrences(operand, part)).sum()
}
