//! Subqueries in expressions: EXISTS, IN, and those that give a value.
//!
//! ```text
//!   SELECT x FROM t WHERE id IN (SELECT t FROM u) AND n > (SELECT avg(m) FROM u WHERE u.t = t.id)
//!
//!     Filter   #1 > #8
//!       Join     left, #6 = #0
//!         Join     semi, #0 = #4
//!           Scan     t  #0, #1 ...
//!           Scan     u  #4 ...
//!         Project  #8 = #7, #6
//!           Aggregate  #7 = avg(m) by #6 = t
//!             Scan     u
//! ```
//! A subquery becomes a side of a join with the rows that the expression is computed of; what it refers to outside
//! becomes the condition of that join. One that refers to nothing outside and gives a value is computed once, and is a
//! parameter to the rest.

use eris_operators::AggregateFunction;
use eris_query::rules::{equal_keys, outside_columns, unnested, unnested_groups};
use eris_query::{
    Aggregate, ColumnId, Fingerprint, Join, JoinKind, Projected, Relation, Scalar, ScalarKind, Unplanned, ValueQuery,
    call, lower,
};
use eris_storage::Value;

use super::scope::Scope;
use super::{Binder, Binding, BoundSelect};
use crate::ast::Query;
use crate::types::SqlType;

/// Parameters from here on are subqueries that give a value, until it is known how many others there are.
const VALUES: usize = 1 << 24;

/// A subquery that is to be joined with the rows that the expression it stands in is computed of.
pub(super) struct Pending {
    kind: PendingKind,
    /// Its rows.
    relation: Relation,
    /// What is equal in a row and its partners.
    keys: Vec<(Scalar, Scalar)>,
    /// What else is true of them.
    conditions: Vec<Scalar>,
}

#[derive(Clone, Copy)]
enum PendingKind {
    /// Whether there is a partner.
    Mark {
        column: ColumnId,
        /// NULLs may be partners.
        null_aware: bool,
    },
    /// The only partner, or NULLs.
    Value,
}

impl Binder<'_> {
    /// `[NOT] EXISTS (query)`.
    pub(super) fn exists(&mut self, query: &Query, negated: bool, scope: &Scope<'_>) -> Binding<Scalar> {
        let bound = self.subquery(query, scope)?;
        let relation = rows_of(bound.relation);
        if matches!(&relation, Relation::Aggregate(aggregate) if aggregate.groups.is_empty()) {
            return Err(Unplanned::because("EXISTS of one group"));
        }
        let (relation, conditions) = self.unnest(relation)?;
        let mark = self.mark(relation, Vec::new(), conditions, false)?;
        Ok(if negated { mark.negated() } else { mark })
    }

    /// `input [NOT] IN (query)`.
    pub(super) fn in_subquery(
        &mut self,
        input: Scalar,
        query: &Query,
        negated: bool,
        scope: &Scope<'_>,
    ) -> Binding<Scalar> {
        let bound = self.subquery(query, scope)?;
        let [result] = bound.output.as_slice() else { return Err(Unplanned::because("IN of several columns")) };
        if input.sql_type == SqlType::Unknown {
            return Err(Unplanned::because("IN of a literal"));
        }
        let equal = call("=", vec![input, Scalar::column(result.column, result.sql_type)], self)?;
        let keys = equal_keys(&equal).ok_or_else(|| Unplanned::because("IN of another type"))?;
        let (relation, conditions) = self.unnest(bound.relation)?;
        let mark = self.mark(relation, vec![keys], conditions, true)?;
        Ok(if negated { mark.negated() } else { mark })
    }

    /// A subquery that gives a value.
    pub(super) fn value_of(&mut self, query: &Query, scope: &Scope<'_>) -> Binding<Scalar> {
        let bound = self.subquery(query, scope)?;
        let [result] = bound.output.as_slice() else { return Err(Unplanned::because("a value of several columns")) };
        let (column, sql_type) = (result.column, result.sql_type);
        if outside_columns(&bound.relation).is_empty() {
            return Ok(Scalar::parameter(self.parameter_of(bound.relation, column), sql_type));
        }
        let Relation::Project { input, mut items } = without_order(bound.relation) else {
            return Err(Unplanned::because("a value of a subquery of another kind"));
        };
        let (input, having) = match *input {
            Relation::Filter { input, condition } => (*input, Some(condition)),
            other => (other, None),
        };
        let Relation::Aggregate(aggregate) = input else {
            return Err(Unplanned::because("a value of more than one group"));
        };
        if let Some(having) = having {
            // The value of a group that is not there is NULL.
            for item in &mut items {
                let sql_type = item.value.sql_type;
                let value = std::mem::replace(&mut item.value, Scalar::constant(Value::Null, sql_type));
                let branches = vec![(having.clone(), value)];
                item.value = Scalar { kind: ScalarKind::Case { branches, otherwise: None }, sql_type };
            }
        }
        if !aggregate.groups.is_empty() {
            return Err(Unplanned::because("a value of more than one group"));
        }
        let without_rows = without_rows(&aggregate, &items, column)?;
        let (aggregate, conditions) = unnested_groups(*aggregate, &mut self.columns)?;
        let found = aggregate.groups.first().map(|group| Scalar::column(group.column, group.value.sql_type));
        let found = found.ok_or_else(|| Unplanned::because("a value without a key"))?;
        let keys = aggregate.groups.iter().map(|group| {
            let value = Scalar::column(group.column, group.value.sql_type);
            (group.column, value)
        });
        // The keys pass through the projection under new names.
        let mut renamed = Vec::new();
        let mut items: Vec<Projected> = items.into_iter().filter(|item| item.column == column).collect();
        for (key, value) in keys {
            let new = ColumnId(self.columns);
            self.columns += 1;
            renamed.push((key, Scalar::column(new, value.sql_type)));
            items.push(Projected { column: new, value });
        }
        let rename = |part: &Scalar| {
            let key = part.as_column()?;
            renamed.iter().find(|(known, _)| *known == key).map(|(_, new)| new.clone())
        };
        let conditions = conditions.into_iter().map(|condition| condition.replaced(&rename)).collect();
        let relation = Relation::Project { input: Box::new(Relation::Aggregate(Box::new(aggregate))), items };
        self.push(Pending { kind: PendingKind::Value, relation, keys: Vec::new(), conditions })?;
        let value = Scalar::column(column, sql_type);
        if without_rows.as_constant().is_some_and(Value::is_null) {
            return Ok(value);
        }
        // A key equals something outside, so it is not NULL where there is a group.
        let is_there = ScalarKind::IsNull { input: Box::new(found.replaced(&rename)), negated: true };
        let kind = ScalarKind::Case {
            branches: vec![(Scalar::condition(is_there), value)],
            otherwise: Some(Box::new(without_rows.cast(sql_type))),
        };
        Ok(Scalar { kind, sql_type })
    }

    /// The parameter of a subquery that gives a value: that of an equal one, if there is one.
    fn parameter_of(&mut self, relation: Relation, column: ColumnId) -> usize {
        if !self.values.is_empty() && relation.is_repeatable() {
            let own = Fingerprint::of(&relation);
            let is_same = |known: &&ValueQuery| {
                let other = Fingerprint::of(&known.relation);
                own.is_same(&other) && own.column_of(&other, column) == Some(known.column)
            };
            if let Some(known) = self.values.iter().find(is_same) {
                return known.parameter;
            }
        }
        let parameter = VALUES + self.values.len();
        self.values.push(ValueQuery { parameter, relation, column });
        parameter
    }

    fn subquery(&mut self, query: &Query, scope: &Scope<'_>) -> Binding<BoundSelect> {
        if self.pending.is_none() {
            return Err(Unplanned::because("a subquery here"));
        }
        self.query_below(query, Some(scope))
    }

    fn unnest(&mut self, relation: Relation) -> Binding<(Relation, Vec<Scalar>)> {
        if outside_columns(&relation).is_empty() {
            return Ok((relation, Vec::new()));
        }
        unnested(relation, &mut self.columns)
    }

    fn mark(
        &mut self,
        relation: Relation,
        keys: Vec<(Scalar, Scalar)>,
        conditions: Vec<Scalar>,
        null_aware: bool,
    ) -> Binding<Scalar> {
        let column = self.new_column();
        self.push(Pending { kind: PendingKind::Mark { column, null_aware }, relation, keys, conditions })?;
        Ok(Scalar::column(column, SqlType::Boolean))
    }

    fn push(&mut self, pending: Pending) -> Binding<()> {
        self.pending.as_mut().ok_or_else(|| Unplanned::because("a subquery here"))?.push(pending);
        Ok(())
    }

    /// The subqueries that give values, and the relation, with the numbers of parameters that follow those of the
    /// statement.
    pub(super) fn numbered_values(&mut self, relation: &mut Relation, parameters: usize) -> Vec<ValueQuery> {
        let mut values = std::mem::take(&mut self.values);
        let number = |relation: &mut Relation| {
            relation.each_relation(&mut |relation| {
                for scalar in relation.scalars_mut() {
                    scalar.each_parameter(&mut |parameter| {
                        if let Some(number) = parameter.checked_sub(VALUES) {
                            *parameter = parameters + number;
                        }
                    });
                }
            });
        };
        number(relation);
        for value in &mut values {
            number(&mut value.relation);
            value.parameter = parameters + value.parameter - VALUES;
        }
        values
    }
}

/// The rows for which a condition is true, whose subqueries are joined with them. One that is a part of the
/// condition by itself takes rows away.
pub(super) fn filtered_with(mut rows: Relation, condition: Scalar, pending: Vec<Pending>) -> Binding<Relation> {
    if pending.is_empty() {
        return Ok(Relation::Filter { input: Box::new(rows), condition });
    }
    let mut parts = condition.into_conjuncts();
    for pending in pending {
        let asks = match pending.kind {
            PendingKind::Mark { column, null_aware } => {
                parts.iter().position(|part| asked(part) == Some(column)).map(|at| (at, null_aware))
            }
            PendingKind::Value => None,
        };
        let Some((at, null_aware)) = asks else {
            rows = pending.joined(rows)?;
            continue;
        };
        let part = parts.remove(at);
        let is_negated = matches!(part.kind, ScalarKind::Not(_));
        if is_negated && null_aware && !pending.conditions.is_empty() {
            return Err(Unplanned::because("NOT IN of a subquery that refers to rows outside"));
        }
        let kind = if is_negated { JoinKind::Anti { null_aware } } else { JoinKind::Semi };
        rows = join(kind, rows, pending);
    }
    if parts.is_empty() {
        return Ok(rows);
    }
    Ok(Relation::Filter { input: Box::new(rows), condition: Scalar::and(parts) })
}

impl Pending {
    /// The rows with the answer.
    pub(super) fn joined(self, rows: Relation) -> Binding<Relation> {
        let kind = match self.kind {
            PendingKind::Mark { null_aware: true, .. } if !self.conditions.is_empty() => {
                return Err(Unplanned::because("IN of a subquery that refers to rows outside, as a value"));
            }
            PendingKind::Mark { column, null_aware } => JoinKind::Mark { column, null_aware },
            PendingKind::Value => JoinKind::Left,
        };
        Ok(join(kind, rows, self))
    }
}

fn join(kind: JoinKind, left: Relation, pending: Pending) -> Relation {
    let Pending { relation: right, keys, conditions, .. } = pending;
    let condition = (!conditions.is_empty()).then(|| Scalar::and(conditions));
    Relation::Join(Box::new(Join { kind, left, right, keys, condition, null_equal: false }))
}

/// The column that a condition is, or is the negation of.
fn asked(condition: &Scalar) -> Option<ColumnId> {
    match &condition.kind {
        ScalarKind::Not(inner) => inner.as_column(),
        _ => condition.as_column(),
    }
}

/// The rows of a query of which only the number matters, or whether there are any.
fn rows_of(relation: Relation) -> Relation {
    match relation {
        Relation::Project { input, .. } | Relation::Distinct { input, .. } => rows_of(*input),
        Relation::Sort { input, fetch: None, .. } => rows_of(*input),
        other => other,
    }
}

/// One row needs no order.
fn without_order(relation: Relation) -> Relation {
    match relation {
        Relation::Sort { input, fetch: None, .. } => without_order(*input),
        other => other,
    }
}

/// What a result is where there are no rows: a constant.
fn without_rows(aggregate: &Aggregate, items: &[Projected], column: ColumnId) -> Binding<Scalar> {
    let refused = || Unplanned::because("a value that is not of the group");
    let item = items.iter().find(|item| item.column == column).ok_or_else(refused)?;
    let value = item.value.clone().replaced(&|part| {
        let column = part.as_column()?;
        let call = aggregate.calls.iter().find(|call| call.result.column == column)?;
        let value = match call.function {
            AggregateFunction::CountAll | AggregateFunction::Count => Value::Int64(0),
            _ => Value::Null,
        };
        Some(Scalar::constant(value, part.sql_type))
    });
    if value.has_columns() {
        return Err(refused());
    }
    let known = lower(&value, &|_| None)?.constant(&[]).map_err(Unplanned::because)?;
    Ok(Scalar::constant(known, value.sql_type))
}
