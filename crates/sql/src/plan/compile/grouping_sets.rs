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

use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan};
use eris_operators::{AggregateCall, AggregateFunction, Expression, GroupCall};
use eris_storage::{DataType, Value};

use super::estimate::{ColumnEstimate, Estimate};
use super::relational::{group_estimates, is_repeatable, only_where};
use super::stream::{Stream, referred};
use super::{Compiler, Needed};
use crate::arrow_view::sql_type_of_arrow;
use crate::native::{Input, SinkPlan, Source, StepPlan};
use crate::plan::lower::{Lowering, NotNative, lower_all, lower_group_call};

/// More are left to the fallback lane; PostgreSQL has as many.
const SETS_MAX: usize = 4_096;
/// Groups by all keys come first if they are at most this share of the rows.
const FINEST_SHARE: f64 = 0.5;

/// One set: which keys it groups by, and its number, as DataFusion counts: a bit for each key that it does not group
/// by, the last key's lowest, and above them how often there was the same set before.
struct Set {
    grouped: Vec<bool>,
    number: i64,
}

/// The keys of all sets, and the sets.
struct Sets<'p> {
    keys: Vec<&'p Expr>,
    sets: Vec<Set>,
}

impl<'p> Sets<'p> {
    fn of(group_expr: &'p [Expr]) -> Lowering<Self> {
        let [Expr::GroupingSet(sets)] = group_expr else {
            return Err(NotNative("GROUPING SETS beside other keys".to_string()));
        };
        let keys = grouping_set_to_exprlist(group_expr).map_err(NotNative::because)?;
        let lists: Vec<Vec<&Expr>> = match sets {
            GroupingSet::GroupingSets(lists) => lists.iter().map(|list| list.iter().collect()).collect(),
            GroupingSet::Rollup(all) => (0..=all.len()).map(|count| all[..count].iter().collect()).collect(),
            GroupingSet::Cube(all) => {
                if 1_usize.checked_shl(all.len() as u32).is_none_or(|sets| sets > SETS_MAX) {
                    return Err(NotNative(format!("a CUBE of {} keys", all.len())));
                }
                let chosen = |bits: usize| all.iter().enumerate().filter(move |(at, _)| bits >> at & 1 != 0);
                (0..1 << all.len()).map(|bits| chosen(bits).map(|(_, key)| key).collect()).collect()
            }
        };
        if lists.len() > SETS_MAX {
            return Err(NotNative(format!("{} grouping sets", lists.len())));
        }
        let mut sets: Vec<Set> = Vec::with_capacity(lists.len());
        for list in lists {
            let grouped: Vec<bool> = keys.iter().map(|key| list.contains(key)).collect();
            let before = sets.iter().filter(|set| set.grouped == grouped).count() as i64;
            let bits = grouped.iter().fold(0, |bits, grouped| bits << 1 | i64::from(!grouped));
            let number = before.checked_shl(keys.len() as u32).filter(|high| high >> keys.len() == before);
            let number = number.ok_or_else(|| NotNative("more grouping sets than numbers".to_string()))? | bits;
            sets.push(Set { grouped, number });
        }
        Ok(Self { keys, sets })
    }
}

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
    fn number(&self, set: &Set) -> Lowering<Expression> {
        let value = match self.number_type {
            DataType::Int16 => Value::Int16(set.number as i16),
            DataType::Int32 => Value::Int32(set.number as i32),
            DataType::Int64 => Value::Int64(set.number),
            other => return Err(NotNative(format!("numbers of grouping sets as {other}"))),
        };
        Ok(Expression::Constant { value, data_type: self.number_type })
    }

    /// The keys of a set, its number, and what is behind them.
    fn expanded(&self, set: &Set, rest: &[Expression]) -> Lowering<Arc<[Expression]>> {
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
        plan: &LogicalPlan,
        aggregate: &Aggregate,
        needed: &Needed,
    ) -> Lowering<Stream> {
        let schema = aggregate.input.schema();
        let Sets { keys, sets } = Sets::of(&aggregate.group_expr)?;
        let width = keys.len();
        let wanted: Vec<usize> = needed.range(width + 1..).map(|position| position - width - 1).collect();
        let keys = keys.into_iter().map(|key| self.without_subqueries(key)).collect::<Lowering<Vec<Expr>>>()?;
        let calls = wanted.iter().map(|call| self.without_subqueries(&aggregate.aggr_expr[*call]));
        let calls = calls.collect::<Lowering<Vec<Expr>>>()?;
        let mut stream = self.stream(&aggregate.input, &referred(keys.iter().chain(&calls), schema)?)?;
        let type_at = |position: usize| {
            Ok::<_, NotNative>(sql_type_of_arrow(aggregate.schema.field(position).data_type())?.data_type())
        };
        let map = stream.columns.clone();
        let scope = Stream::scope(schema, &map);
        let lowered = calls.iter().zip(&wanted);
        let lowered = lowered.map(|(expr, call)| lower_group_call(expr, scope, type_at(width + 1 + call)?));
        let mut grouping = Grouping {
            keys: lower_all(&keys, scope)?,
            calls: lowered.collect::<Lowering<_>>()?,
            counts: Vec::new(),
            number_type: type_at(width)?,
        };
        let (_, finest) = group_estimates(&stream, &grouping.keys, grouping.keys.len());
        if grouping.is_exact() && finest <= stream.estimate.rows * FINEST_SHARE {
            let partial = grouping.calls.iter().map(|call| {
                let result = partial_type(&call.call);
                GroupCall { call: AggregateCall { result, ..call.call.clone() }, ..call.clone() }
            });
            stream = self.grouped(&stream, &grouping.keys, grouping.keys.len(), partial.collect(), Vec::new());
            grouping = grouping.over_groups();
        }
        let (whole, parts): (Vec<Set>, Vec<Set>) = sets.into_iter().partition(|set| !set.grouped.contains(&true));
        let once = whole.is_empty() || parts.is_empty();
        let has_probe = |input: &Input| input.steps.iter().any(|step| matches!(step, StepPlan::Probe(_)));
        let is_stage = |input: &Input| matches!(input.source, Source::Stage(_)) && input.steps.is_empty();
        let is_cheap = !stream.inputs.iter().any(has_probe) && is_repeatable(plan)?;
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
        let mut columns = vec![None; aggregate.schema.fields().len()];
        columns[..=width].iter_mut().enumerate().for_each(|(at, column)| *column = Some(at));
        for (at, call) in wanted.iter().enumerate() {
            columns[width + 1 + call] = Some(width + 1 + at);
        }
        let estimate = Estimate::unknown(rows, types.len());
        Ok(Stream { inputs, columns, types, estimate })
    }

    /// The groups of all sets that have keys.
    fn parts(&mut self, stream: &Stream, grouping: &Grouping, sets: &[Set]) -> Lowering<Stream> {
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
        let Some(first) = lists.first() else { return Err(NotNative("no grouping sets".to_string())) };
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
        let mut expanded = Stream { inputs: stream.inputs.clone(), columns: Vec::new(), types, estimate };
        expanded.push(&StepPlan::Expand(lists));
        Ok(self.grouped(&expanded, &keys, keys.len(), calls, Vec::new()))
    }

    /// The one group of each set without keys.
    fn whole(&mut self, stream: &Stream, grouping: &Grouping, sets: &[Set]) -> Lowering<Vec<Input>> {
        let calls: Arc<[GroupCall]> = grouping.calls.clone().into();
        let one = self.grouped(stream, &Arc::from([]), 0, calls, Vec::new());
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
        Some(filter) => only_where(filter.clone(), argument),
    }
}

/// A count of no groups is zero.
fn or_zero(count: Expression) -> Expression {
    let data_type = count.data_type();
    let is_null = Expression::IsNull { input: Box::new(count.clone()), negated: false };
    let zero = Expression::Constant { value: Value::Int64(0), data_type };
    Expression::Case { branches: [(is_null, zero)].into(), otherwise: Some(Box::new(count)), data_type }
}
