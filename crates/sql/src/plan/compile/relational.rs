//! Relations with one input: filters, projections, groups, sorts, limits, unions; and rows of constants.

use std::sync::Arc;

use eris_operators::{AggregateCall, Expression, GroupCall, SortKey, SortKeys};
use eris_query::{
    Aggregate, AggregateItem, ColumnId, Fingerprint, Projected, Query, Relation, Scalar, SortItem, TypedColumn,
    Unplanned, columns_of,
};
use eris_storage::DataType;

use super::determined::compared;
use super::estimate::{ColumnEstimate, Estimate, UniqueKey};
use super::stream::{Places, Stream, placed};
use super::{Compiler, Known, Lowering, Needed};
use crate::native::{LimitPlan, SinkPlan, Source, StepPlan};
use crate::plan::task::slot_of;

impl Compiler<'_> {
    /// The rows for which all conditions are true.
    pub(super) fn filtered(&self, stream: Stream, conditions: &[&Scalar]) -> Lowering<Stream> {
        let condition = match conditions {
            [] => return Ok(stream),
            [one] => stream.lower(one)?,
            several => Expression::and(stream.lower_all(several.iter().copied())?.to_vec()),
        };
        Ok(self.filtered_by(stream, condition))
    }

    /// The rows for which a condition is true.
    pub(super) fn filtered_by(&self, mut stream: Stream, condition: Expression) -> Stream {
        stream.estimate = stream.estimate.filtered(&condition, &self.parameters);
        stream.push(&StepPlan::Filter(Arc::new(condition)));
        stream
    }

    pub(super) fn projection(&mut self, input: &Relation, items: &[Projected], needed: &Needed) -> Lowering<Stream> {
        let items: Vec<&Projected> = items.iter().filter(|item| needed.contains(&item.column)).collect();
        let values = || items.iter().map(|item| &item.value);
        self.ready(values())?;
        let mut stream = self.stream(input, &columns_of(values()))?;
        let source = |item: &&Projected| stream.places.get(&item.value.as_column()?).copied();
        let sources: Vec<Option<usize>> = items.iter().map(source).collect();
        if let Some(places) = sources.iter().copied().collect::<Option<Vec<usize>>>() {
            stream.places = items.iter().map(|item| item.column).zip(places).collect();
        } else {
            let expressions = stream.lower_all(values())?;
            stream.computed(expressions, &sources);
            stream.places = placed(items.iter().map(|item| item.column));
        }
        Ok(stream)
    }

    pub(super) fn aggregate(
        &mut self,
        relation: &Relation,
        aggregate: &Aggregate,
        needed: &Needed,
    ) -> Lowering<Stream> {
        if self.repeated.is_empty() {
            return self.any_groups(aggregate, relation, needed);
        }
        let groups = Fingerprint::of(relation);
        if let Some(known) = self.known.iter().find(|known| known.groups.is_same(&groups))
            && let Some(stream) = known.again(&groups, needed)
        {
            return stream;
        }
        if !self.repeated.iter().any(|repeated| repeated.is_same(&groups)) {
            return self.any_groups(aggregate, relation, needed);
        }
        let columns: Needed = relation.columns().into_iter().collect();
        let stream = self.any_groups(aggregate, relation, &columns)?;
        self.known.push(Known { groups, columns: columns.clone(), stream: stream.clone() });
        narrowed(stream, &columns, needed)
    }

    fn any_groups(&mut self, aggregate: &Aggregate, relation: &Relation, needed: &Needed) -> Lowering<Stream> {
        match &aggregate.sets {
            Some(sets) => self.grouping_sets(aggregate, sets, relation.is_repeatable(), needed),
            None => self.groups(aggregate, needed),
        }
    }

    fn groups(&mut self, aggregate: &Aggregate, needed: &Needed) -> Lowering<Stream> {
        let calls: Vec<&AggregateItem> =
            aggregate.calls.iter().filter(|call| needed.contains(&call.result.column)).collect();
        let of_calls = || calls.iter().flat_map(|call| call.argument.iter().chain(&call.filter));
        let of_groups = || aggregate.groups.iter().map(|group| &group.value);
        self.ready(of_groups().chain(of_calls()))?;
        let stream = self.stream(&aggregate.input, &columns_of(of_groups().chain(of_calls())))?;
        let groups = stream.lower_all(of_groups())?;
        let columns: Vec<Option<ColumnId>> = of_groups().map(Scalar::as_column).collect();
        let (order, determining) = compared_first(&aggregate.input, &columns, self.tables)?;
        let groups = order.iter().map(|at| groups[*at].clone()).collect();
        let lowered = calls.iter().map(|call| group_call(call, &stream)).collect::<Lowering<Arc<[GroupCall]>>>()?;
        let keys = order.iter().map(|at| aggregate.groups[*at].column);
        let places = placed(keys.chain(calls.iter().map(|call| call.result.column)));
        Ok(self.grouped(&stream, &groups, determining, lowered, places))
    }

    /// Ends a pipeline with groups: a stage whose rows have the keys, of which so many of the first determine the
    /// others, then the results.
    pub(super) fn grouped(
        &mut self,
        stream: &Stream,
        groups: &Arc<[Expression]>,
        determining: usize,
        calls: Arc<[GroupCall]>,
        places: Places,
    ) -> Stream {
        let (mut estimates, rows) = group_estimates(stream, groups, determining);
        let of_call = ColumnEstimate { distinct: rows, domain: rows };
        estimates.extend(calls.iter().map(|_| of_call));
        let domain: f64 = estimates[..determining].iter().map(|column| column.domain).product();
        let key = UniqueKey { columns: (0..determining).collect(), domain: domain.max(rows).min(rows.max(1.0) * 1e3) };
        let types: Vec<DataType> =
            groups.iter().map(Expression::data_type).chain(calls.iter().map(|call| call.call.result)).collect();
        let stage = self.end(stream, SinkPlan::Group { groups: Arc::clone(groups), determining, calls });
        let estimate = Estimate { rows, columns: estimates, unique: vec![key], sample: None };
        Stream::of(Source::Stage(stage), places, types, estimate)
    }

    pub(super) fn distinct(&mut self, input: &Relation, columns: &[ColumnId]) -> Lowering<Stream> {
        let stream = self.stream(input, &columns.iter().copied().collect())?;
        let all: Vec<Option<ColumnId>> = columns.iter().copied().map(Some).collect();
        let (order, determining) = compared_first(input, &all, self.tables)?;
        let groups = order.iter().map(|at| stream.column_expression(columns[*at])).collect::<Lowering<Arc<[_]>>>()?;
        let places = placed(order.iter().map(|at| columns[*at]));
        Ok(self.grouped(&stream, &groups, determining, Arc::from([]), places))
    }

    pub(super) fn sort(
        &mut self,
        input: &Relation,
        keys: &[SortItem],
        fetch: Option<usize>,
        needed: &Needed,
    ) -> Lowering<Stream> {
        let values = || keys.iter().map(|key| &key.value);
        self.ready(values())?;
        let mut wanted = columns_of(values());
        wanted.extend(needed);
        let mut stream = self.stream(input, &wanted)?;
        let lowered = stream.lower_all(values())?.to_vec();
        let columns = stream.with_columns(lowered).into_iter().zip(keys);
        let key = |(column, by): (usize, &SortItem)| SortKey {
            column,
            descending: by.descending,
            nulls_first: by.nulls_first,
        };
        let keys = SortKeys(columns.map(key).collect());
        let stage = self.end(&stream, SinkPlan::Sort { keys, limit: fetch });
        let mut estimate = stream.estimate;
        if let Some(fetch) = fetch {
            estimate.rows = estimate.rows.min(fetch as f64);
        }
        Ok(Stream::of(Source::Stage(stage), stream.places, stream.types, estimate))
    }

    pub(super) fn limit(
        &mut self,
        input: &Relation,
        skip: Option<&Scalar>,
        fetch: Option<&Scalar>,
        needed: &Needed,
    ) -> Lowering<Stream> {
        let mut stream = self.stream(input, needed)?;
        let plan = LimitPlan { skip: skip.map(slot_of).transpose()?, fetch: fetch.map(slot_of).transpose()? };
        if let Some(rows) = plan.fetch_constant() {
            stream.estimate.rows = stream.estimate.rows.min(rows as f64);
        }
        let stage = match stream.inputs.as_slice() {
            // Of a stage that nothing else reads the limit can be its own.
            [input]
                if let Source::Stage(stage) = input.source
                    && input.steps.is_empty()
                    && stage + 1 == self.stages.len()
                    && self.stages[stage].limit.is_none()
                    && !self.known.iter().any(|known| known.stream.reads(stage)) =>
            {
                stage
            }
            _ => self.end(&stream, SinkPlan::Collect),
        };
        self.stages[stage].limit = Some(plan);
        Ok(Stream { inputs: Stream::rows_of(stage, stream.estimate.rows), ..stream })
    }

    pub(super) fn union(
        &mut self,
        inputs: &[(Relation, Vec<ColumnId>)],
        columns: &[TypedColumn],
        needed: &Needed,
    ) -> Lowering<Stream> {
        let wanted: Vec<usize> = (0..columns.len()).filter(|at| needed.contains(&columns[*at].column)).collect();
        let mut united: Option<Stream> = None;
        for (input, own) in inputs {
            let own: Vec<ColumnId> = wanted.iter().map(|at| own[*at]).collect();
            let stream = self.stream(input, &own.iter().copied().collect())?.arranged(&own)?;
            united = Some(match united {
                None => stream,
                Some(mut united) => {
                    if united.types != stream.types {
                        return Err(Unplanned::because("a UNION of different types"));
                    }
                    united.inputs.extend(stream.inputs);
                    let rows = united.estimate.rows + stream.estimate.rows;
                    united.estimate = Estimate::unknown(rows, united.types.len());
                    united
                }
            });
        }
        let mut united = united.ok_or_else(|| Unplanned::because("a UNION of nothing"))?;
        united.places = placed(wanted.iter().map(|at| columns[*at].column));
        Ok(united)
    }
}

impl Known {
    /// The same groups under the names of another occurrence, if all that is needed there was made.
    fn again(&self, groups: &Fingerprint, needed: &Needed) -> Option<Lowering<Stream>> {
        let here =
            |column: &ColumnId| self.columns.iter().find(|own| self.groups.column_of(groups, **own) == Some(*column));
        let columns: Vec<ColumnId> = needed.iter().map(|column| here(column).copied()).collect::<Option<_>>()?;
        let there =
            columns.iter().map(|column| self.stream.places.get(column).copied()).collect::<Option<Vec<usize>>>()?;
        let all = self.columns.len() == needed.len();
        let mut stream = self.stream.clone();
        stream.places = needed.iter().copied().zip(there).collect();
        Some(if all { Ok(stream) } else { stream.arranged(&needed.iter().copied().collect::<Vec<_>>()) })
    }
}

/// The call of an aggregate on what a pipeline yields.
pub(super) fn group_call(item: &AggregateItem, stream: &Stream) -> Lowering<GroupCall> {
    let lower = |scalar: &Option<Scalar>| scalar.as_ref().map(|scalar| stream.lower(scalar)).transpose();
    let result = item.result.sql_type.data_type();
    let call = AggregateCall { function: item.function, input: lower(&item.argument)?, result };
    Ok(GroupCall { call, distinct: item.distinct, filter: lower(&item.filter)? })
}

/// Of the columns that are there those that are needed.
fn narrowed(stream: Stream, there: &Needed, needed: &Needed) -> Lowering<Stream> {
    if there == needed {
        return Ok(stream);
    }
    stream.arranged(&needed.iter().copied().collect::<Vec<_>>())
}

/// The groups of a query that occur more than once and give the same each time, subqueries included.
pub(super) fn repeated_groups(query: &Query) -> Vec<Fingerprint> {
    let mut all: Vec<&Relation> = Vec::new();
    let relations = query.values.iter().map(|value| &value.relation).chain([&query.relation]);
    for relation in relations {
        relation.visit(&mut |relation| {
            if matches!(relation, Relation::Aggregate(_)) {
                all.push(relation);
            }
        });
    }
    let mut repeated: Vec<Fingerprint> = Vec::new();
    if all.len() > 1 {
        let all: Vec<(&Relation, Fingerprint)> =
            all.into_iter().map(|relation| (relation, Fingerprint::of(relation))).collect();
        for (at, (relation, own)) in all.iter().enumerate() {
            let is_met = all[..at].iter().any(|(_, other)| own.is_same(other));
            if is_met && relation.is_repeatable() && !repeated.iter().any(|known| known.is_same(own)) {
                repeated.push(own.clone());
            }
        }
    }
    repeated
}

/// Rows of constants.
pub(super) fn values(columns: &[TypedColumn], rows: &[Vec<Scalar>], needed: &Needed) -> Lowering<Stream> {
    let wanted: Vec<usize> = (0..columns.len()).filter(|at| needed.contains(&columns[*at].column)).collect();
    let lowered = |row: &Vec<Scalar>| {
        wanted.iter().map(|at| eris_query::lower(&row[*at], &|_| None)).collect::<Lowering<Arc<[Expression]>>>()
    };
    let rows = rows.iter().map(lowered).collect::<Lowering<Arc<[Arc<[Expression]>]>>>()?;
    let types: Vec<DataType> = wanted.iter().map(|at| columns[*at].sql_type.data_type()).collect();
    let estimate = Estimate::unknown(rows.len() as f64, types.len());
    let places = placed(wanted.iter().map(|at| columns[*at].column));
    Ok(Stream::of(Source::Values { rows, types: types.clone().into() }, places, types, estimate))
}

/// What is expected of the keys of groups, and how many groups.
pub(super) fn group_estimates(
    stream: &Stream,
    groups: &[Expression],
    determining: usize,
) -> (Vec<ColumnEstimate>, f64) {
    let known = |expression: &Expression| {
        if let Expression::Column { index, .. } = expression {
            return stream.estimate.columns[*index];
        }
        let guess = stream.estimate.rows.max(1.0).powf(0.75);
        ColumnEstimate { distinct: guess, domain: guess }
    };
    let mut estimates: Vec<ColumnEstimate> = groups.iter().map(known).collect();
    let rows = if groups.is_empty() {
        1.0
    } else {
        let product: f64 = estimates[..determining].iter().map(|column| column.distinct).product();
        product.min(stream.estimate.rows).max(1.0)
    };
    for column in &mut estimates {
        column.distinct = column.distinct.min(rows);
    }
    (estimates, rows)
}

/// An order of group columns, which may be columns of the input, in which so many of the first determine the others.
fn compared_first(
    input: &Relation,
    groups: &[Option<ColumnId>],
    tables: &[Arc<crate::catalog::Table>],
) -> Lowering<(Vec<usize>, usize)> {
    let is_compared = compared(input, groups, tables)?;
    let (mut order, others): (Vec<usize>, Vec<usize>) = (0..groups.len()).partition(|at| is_compared[*at]);
    let determining = order.len();
    order.extend(others);
    Ok((order, determining))
}
