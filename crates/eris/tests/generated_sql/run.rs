//! What a query gives: FROM by nested loops, WHERE, GROUP BY, HAVING, the items, DISTINCT, ORDER BY, LIMIT.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::evaluate::{Context, Evaluated, Frame, Mistake};
use crate::expression::{Aggregate, Expr, Node};
use crate::query::{Body, From, JoinKind, Query, Select, SetOperator, Source};
use crate::value::{Decimal, Kind, Row, State, Value, canonical_row};

/// A row that stands for a group, and its rows; or a row alone.
type Group = (Row, Option<Vec<Row>>);
type Rows = Result<Vec<Row>, State>;

/// Combinations of rows that an eager run computes at most.
const COMBINATIONS_MAX: usize = 100_000;

impl Context<'_> {
    pub fn query(&self, query: &Query, outer: Option<&Frame<'_>>) -> Rows {
        let mut rows = self.body(&query.body, outer)?;
        if !query.order.is_empty() {
            rows.sort_by(|left, right| ordered(query, left, right));
        }
        let rows = rows.into_iter().skip(query.offset.unwrap_or(0));
        Ok(rows.take(query.limit.unwrap_or(usize::MAX)).collect())
    }

    fn body(&self, body: &Body, outer: Option<&Frame<'_>>) -> Rows {
        let (operator, left, right) = match body {
            Body::Select(select) => return self.select(select, outer),
            Body::Set(operator, left, right) => (*operator, left, right),
        };
        let (left, right) = (self.body(left, outer), self.body(right, outer));
        let (mut left, right) = (left?, right?);
        let others: BTreeSet<String> = right.iter().map(|row| canonical_row(row)).collect();
        match operator {
            SetOperator::Union | SetOperator::UnionAll => left.extend(right),
            SetOperator::Intersect => left.retain(|row| others.contains(&canonical_row(row))),
            SetOperator::Except => left.retain(|row| !others.contains(&canonical_row(row))),
        }
        Ok(if operator == SetOperator::UnionAll { left } else { distinct(left) })
    }

    fn source(&self, from: &From, outer: Option<&Frame<'_>>) -> Rows {
        match &from.source {
            Source::Table(table, _) => Ok(self.tables[*table].clone()),
            Source::Derived(query) => self.query(query, outer),
        }
    }

    fn join(
        &self,
        left: Vec<Row>,
        right: &[Row],
        from: &From,
        widths: (usize, usize),
        outer: Option<&Frame<'_>>,
    ) -> Rows {
        let mut joined = Vec::new();
        let mut met = vec![false; right.len()];
        let mut fault = None;
        let forgets = self.mistake == Some(Mistake::JoinForgetsUnmatched);
        for left in left {
            let mut found = false;
            for (partner, met) in right.iter().zip(&mut met) {
                let row: Row = left.iter().chain(partner).cloned().collect();
                let frame = Frame { row: &row, group: None, outer };
                let condition = from.condition.as_ref();
                match condition.map_or(Ok(true), |condition| self.met(condition, &frame)) {
                    Ok(true) => {
                        (found, *met) = (true, true);
                        joined.push(row);
                    }
                    Ok(false) => {}
                    Err(state) => fault = Some(state),
                }
            }
            if !found && !forgets && matches!(from.join, JoinKind::Left | JoinKind::Full) {
                joined.push(left.into_iter().chain(vec![Value::Null; widths.1]).collect());
            }
        }
        if matches!(from.join, JoinKind::Right | JoinKind::Full) && !forgets {
            let unmet = right.iter().zip(&met).filter(|(_, met)| !**met);
            joined.extend(unmet.map(|(row, _)| vec![Value::Null; widths.0].into_iter().chain(row.clone()).collect()));
        }
        fault.map_or(Ok(joined), Err)
    }

    fn select(&self, select: &Select, outer: Option<&Frame<'_>>) -> Rows {
        let exprs: Vec<&Expr> = expressions(select).collect();
        for expr in &exprs {
            self.fold(expr);
        }
        let mut sources = Vec::new();
        for from in &select.from {
            sources.push(self.source(from, outer)?);
        }
        if self.eager {
            self.run_eagerly(select, &exprs, &sources, outer);
        }
        let mut rows = vec![Row::new()];
        let mut width = 0;
        for (from, source) in select.from.iter().zip(&sources) {
            rows = self.join(rows, source, from, (width, from.width), outer)?;
            width += from.width;
        }
        // Every row is looked at, also after an error: which one is reported is open.
        let mut fault = None;
        if let Some(filter) = &select.filter {
            rows.retain(|row| match self.met(filter, &Frame { row, group: None, outer }) {
                Ok(kept) => kept,
                Err(state) => {
                    fault = Some(state);
                    false
                }
            });
        }
        let mut result = Vec::new();
        let groups = match &select.group {
            Some(keys) => self.groups(keys, rows, width, outer)?,
            None => rows.into_iter().map(|row| (row, None)).collect(),
        };
        for (row, group) in &groups {
            let frame = Frame { row, group: group.as_deref(), outer };
            let kept = select.having.as_ref().map_or(Ok(true), |having| self.met(having, &frame));
            if kept == Ok(false) {
                // The aggregates of a group are computed before HAVING is.
                select.items.iter().for_each(|item| self.touch(item, &frame));
                continue;
            }
            let items: Vec<Evaluated> = select.items.iter().map(|item| self.value(item, &frame)).collect();
            match (kept, items.into_iter().collect::<Result<Row, State>>()) {
                (Ok(_), Ok(row)) => result.push(row),
                (Err(state), _) | (_, Err(state)) => fault = Some(state),
            }
        }
        if let Some(state) = fault {
            return Err(state);
        }
        Ok(if select.distinct { distinct(result) } else { result })
    }

    /// Each group with a row that stands for it.
    fn groups(
        &self,
        keys: &[Expr],
        rows: Vec<Row>,
        width: usize,
        outer: Option<&Frame<'_>>,
    ) -> Result<Vec<Group>, State> {
        let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        if keys.is_empty() {
            groups.insert(String::new(), Vec::new());
        }
        for row in rows {
            let frame = Frame { row: &row, group: None, outer };
            let key = keys.iter().map(|key| self.value(key, &frame)).collect::<Result<Row, State>>()?;
            groups.entry(canonical_row(&key)).or_default().push(row);
        }
        let first = |rows: &Vec<Row>| rows.first().cloned().unwrap_or_else(|| vec![Value::Null; width]);
        Ok(groups.into_values().map(|rows| (first(&rows), Some(rows))).collect())
    }

    pub fn aggregate(
        &self,
        function: Aggregate,
        distinct: bool,
        argument: Option<&Expr>,
        group: &[Row],
        around: &Frame<'_>,
    ) -> Evaluated {
        let Some(argument) = argument else { return Ok(Value::Int(group.len() as i64)) };
        let value = |row: &Row| self.value(argument, &Frame { row, group: None, outer: around.outer });
        let values: Vec<Evaluated> = group.iter().map(value).collect();
        let mut values = values.into_iter().collect::<Result<Vec<Value>, State>>()?;
        values.retain(|value| !value.is_null());
        if distinct {
            values.sort_by(Value::sort);
            values.dedup_by(|one, other| one.sort(other) == Ordering::Equal);
        }
        let count = values.len() as i128;
        if function == Aggregate::Count {
            return Ok(Value::Int(count as i64));
        }
        if values.is_empty() {
            return Ok(Value::Null);
        }
        let has = |wanted| values.iter().any(|value| matches!(value, Value::Bool(value) if *value == wanted));
        Ok(match function {
            Aggregate::Min => values.into_iter().min_by(Value::sort).unwrap_or(Value::Null),
            Aggregate::Max => values.into_iter().max_by(Value::sort).unwrap_or(Value::Null),
            Aggregate::BoolAnd => Value::Bool(!has(false)),
            Aggregate::BoolOr => Value::Bool(has(true)),
            _ if argument.kind.is_float() => {
                let sum: f64 = values.iter().map(Value::float).sum();
                Value::Float(if function == Aggregate::Sum { sum } else { sum / count as f64 })
            }
            _ => {
                let sum = values.iter().fold(Decimal::of(0), |sum, value| sum.plus(value.decimal()));
                match function {
                    Aggregate::Avg => Value::Numeric(sum.over(count, sum.scale + 10)),
                    _ if argument.kind == Kind::Numeric => Value::Numeric(sum),
                    _ => self.sum_of_integers(&values, sum.digits)?,
                }
            }
        })
    }

    /// A bigint. In some orders the sum is out of its range for a while.
    fn sum_of_integers(&self, values: &[Value], sum: i128) -> Evaluated {
        let (low, high) = Kind::Int8.range();
        let positive: i128 = values.iter().map(|value| value.decimal().digits.max(0)).sum();
        if positive > i128::from(high) || sum - positive < i128::from(low) {
            let _: Evaluated = self.fault(crate::value::OVERFLOW);
        }
        let fits = i64::try_from(sum).is_ok();
        if fits { Ok(Value::Int(sum as i64)) } else { self.fault(crate::value::OVERFLOW) }
    }

    /// Computes everything for all combinations of rows, also those that find no partner, to note errors. What a
    /// condition says about a column it says about those that the column equals: these are looked at, too.
    fn run_eagerly(&self, select: &Select, exprs: &[&Expr], sources: &[Vec<Row>], outer: Option<&Frame<'_>>) {
        let mut combinations = vec![Row::new()];
        for (from, source) in select.from.iter().zip(sources) {
            let none = vec![Value::Null; from.width];
            let with = |left: &Row| {
                let rights = source.iter().chain(std::iter::once(&none));
                rights.map(|right| left.iter().chain(right).cloned().collect()).collect::<Vec<Row>>()
            };
            combinations = combinations.iter().flat_map(with).take(COMBINATIONS_MAX).collect();
        }
        combinations.extend(self.equals(exprs, select.from.iter().map(|from| from.width).sum()));
        for row in &combinations {
            let group = [row.clone()];
            let frame = Frame { row, group: Some(&group), outer };
            for expr in exprs {
                self.touch(expr, &frame);
            }
        }
    }

    /// Rows with one integer alone, any that a table holds.
    fn equals(&self, exprs: &[&Expr], width: usize) -> Vec<Row> {
        let mut columns = BTreeMap::new();
        for expr in exprs {
            integer_columns(expr, &mut columns);
        }
        let value = |value: &Value| if let Value::Int(value) = value { Some(*value) } else { None };
        let values: BTreeSet<i64> = self.tables.iter().flatten().flatten().filter_map(value).collect();
        let rows = columns.into_iter().flat_map(|(at, kind)| {
            let (low, high) = kind.range();
            values.range(low..=high).map(move |value| {
                let mut row = vec![Value::Null; width];
                row[at] = Value::Int(*value);
                row
            })
        });
        rows.take(COMBINATIONS_MAX).collect()
    }

    /// Computes an expression and every part of it.
    pub fn touch(&self, expr: &Expr, frame: &Frame<'_>) {
        let _ = self.value(expr, frame);
        if !matches!(expr.node, Node::Case { .. } | Node::Call(..)) {
            expr.children().into_iter().for_each(|child| self.touch(child, frame));
        }
    }
}

/// The integer columns of the query itself that an expression names.
fn integer_columns(expr: &Expr, columns: &mut BTreeMap<usize, Kind>) {
    if let Node::Column { depth: 0, index, .. } = expr.node
        && expr.kind.is_integer()
    {
        columns.insert(index, expr.kind);
    }
    for child in expr.children() {
        integer_columns(child, columns);
    }
}

fn expressions(select: &Select) -> impl Iterator<Item = &Expr> {
    let conditions = select.from.iter().filter_map(|from| from.condition.as_ref());
    let rest = select.filter.iter().chain(select.group.iter().flatten()).chain(&select.having).chain(&select.items);
    conditions.chain(rest)
}

fn distinct(rows: Vec<Row>) -> Vec<Row> {
    let mut seen = BTreeSet::new();
    rows.into_iter().filter(|row| seen.insert(canonical_row(row))).collect()
}

/// The order of ORDER BY.
pub fn ordered(query: &Query, left: &Row, right: &Row) -> Ordering {
    for key in &query.order {
        let (left, right) = (&left[key.position], &right[key.position]);
        let nulls_first = key.nulls_first.unwrap_or(key.descending);
        let order = match left.compare(right) {
            Some(order) if key.descending => order.reverse(),
            Some(order) => order,
            None if nulls_first => right.is_null().cmp(&left.is_null()),
            None => left.is_null().cmp(&right.is_null()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}
