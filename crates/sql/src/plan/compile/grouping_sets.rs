//! GROUPING SETS, ROLLUP and CUBE: every row once for each set, with NULL for what the set does not group by and a
//! number that tells the sets apart. So a NULL that is a value and one that is none are in different groups.
//!
//! ```text
//!   GROUP BY ROLLUP (a, b)
//!
//!   stage 0   scan t ─────────────────────────────────────────> group by a, b          if that leaves few rows
//!   stage 1   rows of 0 ── expand: (a, b, 0), (a, NULL, 1) ───> group by a, b, number
//!   stage 2   rows of 0 ──────────────────────────────────────> one group              the set ()
//!   result    rows of 1, and of 2 as (NULL, NULL, 3)
//! ```
//! The set `()` has a group without a row, too; therefore it is a stage of its own. Aggregates of aggregates are those
//! that are exact: counts, sums, least and largest values. Others are computed from the rows.

use std::sync::Arc;

use eris_operators::{AggregateCall, AggregateFunction, Expression, GroupCall};
use eris_query::{Aggregate, AggregateItem, GroupingSet, GroupingSets, Unplanned, columns_of};
use eris_storage::{DataType, Value};

use super::estimate::{ColumnEstimate, Estimate};
use super::relational::{group_call, group_estimates};
use super::stream::{Places, Stream, placed};
use super::{Compiler, Lowering, Needed};
use crate::native::{Input, SinkPlan, Source, StepPlan};

/// Groups by all keys come first if they are at most this share of the rows.
const FINEST_SHARE: f64 = 0.5;

/// What the stages of one grouping have in common.
struct Grouping {
    keys: Arc<[Expression]>,
    calls: Vec<GroupCall>,
    /// Calls that count, and add counts up.
    counts: Vec<usize>,
    /// The type of the sets' numbers.
    number_type: DataType,
}

impl Grouping {
    fn number(&self, set: &GroupingSet) -> Lowering<Expression> {
        let value = match self.number_type {
            DataType::Int16 => Value::Int16(set.number as i16),
            DataType::Int32 => Value::Int32(set.number as i32),
            DataType::Int64 => Value::Int64(set.number),
            other => return Err(Unplanned(format!("numbers of grouping sets as {other}"))),
        };
        Ok(Expression::Constant { value, data_type: self.number_type })
    }

    /// The keys of a set, its number, and what is behind them.
    fn expanded(&self, set: &GroupingSet, rest: &[Expression]) -> Lowering<Arc<[Expression]>> {
        let mut all = Vec::with_capacity(self.keys.len() + 1 + rest.len());
        for (key, grouped) in self.keys.iter().zip(&set.grouped) {
            all.push(if *grouped {
                key.clone()
            } else {
                Expression::Constant { value: Value::Null, data_type: key.data_type() }
            });
        }
        all.push(self.number(set)?);
        all.extend_from_slice(rest);
        Ok(all.into())
    }

    /// Whether results of groups can be put together to those of larger ones.
    fn is_exact(&self) -> bool {
        let is_exact = |call: &GroupCall| !call.distinct && call.call.function != AggregateFunction::Average;
        self.calls.iter().all(is_exact)
    }

    /// The same over groups of all keys, which have the calls' results behind the keys.
    fn over_groups(&self) -> Self {
        let columns = self.keys.iter().enumerate();
        let keys = columns.map(|(index, key)| Expression::Column { index, data_type: key.data_type() }).collect();
        let calls = self.calls.iter().enumerate().map(|(at, call)| {
            let (index, data_type) = (self.keys.len() + at, partial_type(&call.call));
            let function = match call.call.function {
                AggregateFunction::CountAll | AggregateFunction::Count => AggregateFunction::Sum,
                other => other,
            };
            let input = Some(Expression::Column { index, data_type });
            GroupCall::from(AggregateCall { function, input, result: call.call.result })
        });
        let is_count =
            |call: &GroupCall| matches!(call.call.function, AggregateFunction::CountAll | AggregateFunction::Count);
        let counts = (0..self.calls.len()).filter(|at| is_count(&self.calls[*at])).collect();
        Self { keys, calls: calls.collect(), counts, number_type: self.number_type }
    }
}

/// The type of a call's result as a part of larger groups' results: wide enough for sums that others bring back.
fn partial_type(call: &AggregateCall) -> DataType {
    match (call.function, call.result) {
        (AggregateFunction::Sum, DataType::Int64) => DataType::Decimal { precision: 38, scale: 0 },
        (AggregateFunction::Sum, DataType::Decimal { scale, .. }) => DataType::Decimal { precision: 38, scale },
        (_, result) => result,
    }
}

impl Compiler<'_> {
    pub(super) fn grouping_sets(
        &mut self,
        aggregate: &Aggregate,
        sets: &GroupingSets,
        is_repeatable: bool,
        needed: &Needed,
    ) -> Lowering<Stream> {
        let calls: Vec<&AggregateItem> =
            aggregate.calls.iter().filter(|call| needed.contains(&call.result.column)).collect();
        let of_calls = || calls.iter().flat_map(|call| call.argument.iter().chain(&call.filter));
        let keys = || aggregate.groups.iter().map(|group| &group.value);
        self.ready(keys().chain(of_calls()))?;
        let mut stream = self.stream(&aggregate.input, &columns_of(keys().chain(of_calls())))?;
        let mut grouping = Grouping {
            keys: stream.lower_all(keys())?,
            calls: calls.iter().map(|call| group_call(call, &stream)).collect::<Lowering<_>>()?,
            counts: Vec::new(),
            number_type: sets.number.sql_type.data_type(),
        };
        let (_, finest) = group_estimates(&stream, &grouping.keys, grouping.keys.len());
        if grouping.is_exact() && finest <= stream.estimate.rows * FINEST_SHARE {
            let partial = grouping.calls.iter().map(|call| {
                let result = partial_type(&call.call);
                GroupCall { call: AggregateCall { result, ..call.call.clone() }, ..call.clone() }
            });
            stream = self.grouped(&stream, &grouping.keys, grouping.keys.len(), partial.collect(), Places::new());
            grouping = grouping.over_groups();
        }
        let (whole, parts): (Vec<&GroupingSet>, Vec<&GroupingSet>) =
            sets.sets.iter().partition(|set| !set.grouped.contains(&true));
        let once = whole.is_empty() || parts.is_empty();
        let has_probe = |input: &Input| input.steps.iter().any(|step| matches!(step, StepPlan::Probe(_)));
        let is_stage = |input: &Input| matches!(input.source, Source::Stage(_)) && input.steps.is_empty();
        let is_cheap = !stream.inputs.iter().any(has_probe) && is_repeatable;
        if !once && !is_cheap && !stream.inputs.iter().all(is_stage) {
            let stage = self.end(&stream, SinkPlan::Collect);
            stream = Stream { inputs: Stream::rows_of(stage, stream.estimate.rows), ..stream };
        }
        let mut inputs = Vec::new();
        let mut rows = 0.0;
        let mut types: Vec<DataType> = grouping.keys.iter().map(Expression::data_type).collect();
        types.push(grouping.number_type);
        types.extend(grouping.calls.iter().map(|call| call.call.result));
        if !parts.is_empty() {
            let grouped = self.parts(&stream, &grouping, &parts)?;
            rows += grouped.estimate.rows;
            inputs.extend(grouped.inputs);
        }
        if !whole.is_empty() {
            inputs.extend(self.whole(&stream, &grouping, &whole)?);
            rows += whole.len() as f64;
        }
        let groups = aggregate.groups.iter().map(|group| group.column);
        let results = calls.iter().map(|call| call.result.column);
        let places = placed(groups.chain([sets.number.column]).chain(results));
        let estimate = Estimate::unknown(rows, types.len());
        Ok(Stream { inputs, places, types, estimate })
    }

    /// The groups of all sets that have keys.
    fn parts(&mut self, stream: &Stream, grouping: &Grouping, sets: &[&GroupingSet]) -> Lowering<Stream> {
        let width = grouping.keys.len();
        // Behind keys and number: what the calls look at, which is computed with them.
        let mut rest = Vec::new();
        let calls = grouping.calls.iter().map(|call| {
            let distinct = call.distinct;
            if call.call.input.is_none() && call.filter.is_none() {
                return call.clone();
            }
            let argument = argument_of(call);
            let index = width + 1 + rest.len();
            let input = Expression::Column { index, data_type: argument.data_type() };
            rest.push(argument);
            let function = match call.call.function {
                AggregateFunction::CountAll => AggregateFunction::Count,
                other => other,
            };
            let call = AggregateCall { function, input: Some(input), result: call.call.result };
            GroupCall { call, distinct, filter: None }
        });
        let calls: Arc<[GroupCall]> = calls.collect();
        let lists = sets.iter().map(|set| grouping.expanded(set, &rest)).collect::<Lowering<Arc<[_]>>>()?;
        let Some(first) = lists.first() else { return Err(Unplanned::because("no grouping sets")) };
        let types: Vec<DataType> = first.iter().map(Expression::data_type).collect();
        let keys = types[..=width].iter().enumerate();
        let keys: Arc<[Expression]> =
            keys.map(|(index, data_type)| Expression::Column { index, data_type: *data_type }).collect();
        let rows = stream.estimate.rows * sets.len() as f64;
        let mut estimate = Estimate::unknown(rows, types.len());
        let (of_keys, _) = group_estimates(stream, &grouping.keys, grouping.keys.len());
        estimate.columns[..width].copy_from_slice(&of_keys);
        let count = sets.len() as f64;
        estimate.columns[width] = ColumnEstimate { distinct: count, domain: count };
        let mut expanded = Stream { inputs: stream.inputs.clone(), places: Places::new(), types, estimate };
        expanded.push(&StepPlan::Expand(lists));
        Ok(self.grouped(&expanded, &keys, keys.len(), calls, Places::new()))
    }

    /// The one group of each set without keys.
    fn whole(&mut self, stream: &Stream, grouping: &Grouping, sets: &[&GroupingSet]) -> Lowering<Vec<Input>> {
        let calls: Arc<[GroupCall]> = grouping.calls.clone().into();
        let one = self.grouped(stream, &Arc::from([]), 0, calls, Places::new());
        let results = grouping.calls.iter().enumerate().map(|(index, call)| {
            let result = Expression::Column { index, data_type: call.call.result };
            if grouping.counts.contains(&index) { or_zero(result) } else { result }
        });
        let results: Vec<Expression> = results.collect();
        let mut inputs = Vec::with_capacity(sets.len());
        for set in sets {
            let project = StepPlan::Project(grouping.expanded(set, &results)?);
            inputs.extend(one.inputs.iter().map(|input| {
                let mut input = input.clone();
                input.steps.push(project.clone());
                input
            }));
        }
        Ok(inputs)
    }
}

/// What a call looks at: its argument where its filter is true, else NULL; of count(*) something.
fn argument_of(call: &GroupCall) -> Expression {
    let any = || Expression::Constant { value: Value::Boolean(true), data_type: DataType::Boolean };
    let argument = call.call.input.clone().unwrap_or_else(any);
    match &call.filter {
        None => argument,
        Some(filter) => Expression::only_where(filter.clone(), argument),
    }
}

/// A count of no groups is zero.
fn or_zero(count: Expression) -> Expression {
    let data_type = count.data_type();
    let is_null = Expression::IsNull { input: Box::new(count.clone()), negated: false };
    let zero = Expression::Constant { value: Value::Int64(0), data_type };
    Expression::Case { branches: [(is_null, zero)].into(), otherwise: Some(Box::new(count)), data_type }
}
