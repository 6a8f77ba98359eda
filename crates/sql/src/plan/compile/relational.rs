//! Nodes with one input: filters, projections, groups, sorts, limits, unions; and rows of constants.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, EmptyRelation, Expr, Filter, Limit, LogicalPlan, Projection, Sort, SortExpr, Union, Values,
};
use eris_operators::{Expression, GroupCall, SortKey, SortKeys};
use eris_storage::DataType;

use super::determined::compared;
use super::estimate::{ColumnEstimate, Estimate, UniqueKey};
use super::scan::filtered_scan;
use super::stream::{Stream, referred};
use super::{Compiler, Needed};
use crate::arrow_view::sql_type_of_arrow;
use crate::native::{LimitPlan, SinkPlan, Source, StepPlan};
use crate::plan::lower::{Columns, Lowering, NotNative, limit_slot, lower, lower_all, lower_group_call};

/// Whether an expression is a column as it is, whatever it is called.
pub(super) fn plain_column(expr: &Expr) -> Option<&datafusion::common::Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}

impl Compiler<'_> {
    pub(super) fn filter(&mut self, filter: &Filter, needed: &Needed) -> Lowering<Stream> {
        let predicate = self.without_subqueries(&filter.predicate)?;
        let schema = filter.input.schema();
        if let Some(found) = filtered_scan(&predicate, &filter.input)? {
            let Some(outside) = conjunction(found.outside) else {
                return self.scan_where(found.scan, &found.inside, needed);
            };
            let mut wanted = referred([&outside], schema)?;
            wanted.extend(needed);
            let stream = self.scan_where(found.scan, &found.inside, &wanted)?;
            return self.filtered(stream, &outside, schema);
        }
        let mut wanted = referred([&predicate], schema)?;
        wanted.extend(needed);
        let stream = self.stream(&filter.input, &wanted)?;
        self.filtered(stream, &predicate, schema)
    }

    pub(super) fn filtered(&mut self, mut stream: Stream, predicate: &Expr, schema: &DFSchema) -> Lowering<Stream> {
        let condition = lower(predicate, Stream::scope(schema, &stream.columns.clone()))?;
        stream.estimate = stream.estimate.filtered(&condition, &self.parameters);
        stream.push(&StepPlan::Filter(Arc::new(condition)));
        Ok(stream)
    }

    pub(super) fn projection(&mut self, projection: &Projection, needed: &Needed) -> Lowering<Stream> {
        let schema = projection.input.schema();
        let mut exprs = Vec::with_capacity(needed.len());
        for position in needed {
            exprs.push(self.without_subqueries(&projection.expr[*position])?);
        }
        let mut stream = self.stream(&projection.input, &referred(&exprs, schema)?)?;
        let width = projection.expr.len();
        let map = stream.columns.clone();
        let sources = exprs
            .iter()
            .map(|expr| match plain_column(expr) {
                Some(column) => Ok(schema.maybe_index_of_column(column).and_then(|position| map[position])),
                None => Ok(None),
            })
            .collect::<Lowering<Vec<Option<usize>>>>()?;
        let mut columns = vec![None; width];
        if sources.iter().all(Option::is_some) {
            for (position, source) in needed.iter().zip(sources) {
                columns[*position] = source;
            }
        } else {
            let expressions = lower_all(&exprs, Stream::scope(schema, &map))?;
            stream.computed(expressions, &sources);
            for (column, position) in needed.iter().enumerate() {
                columns[*position] = Some(column);
            }
        }
        stream.columns = columns;
        Ok(stream)
    }

    pub(super) fn aggregate(&mut self, plan: &LogicalPlan, aggregate: &Aggregate, needed: &Needed) -> Lowering<Stream> {
        let is_known = |known: &LogicalPlan, columns: &Needed| known == plan && columns.is_superset(needed);
        if let Some((_, columns, known)) = self.known.iter().find(|(known, columns, _)| is_known(known, columns)) {
            return narrowed(known.clone(), columns, needed);
        }
        let all =
            if self.repeated.contains(plan) { (0..plan.schema().fields().len()).collect() } else { needed.clone() };
        let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
        let grouped = if has_sets { self.grouping_sets(plan, aggregate, &all)? } else { self.groups(aggregate, &all)? };
        if is_repeatable(plan)? {
            self.known.push((plan.clone(), all.clone(), grouped.clone()));
        }
        narrowed(grouped, &all, needed)
    }

    fn groups(&mut self, aggregate: &Aggregate, needed: &Needed) -> Lowering<Stream> {
        let schema = aggregate.input.schema();
        let group_count = aggregate.group_expr.len();
        let wanted_calls: Vec<usize> =
            needed.iter().filter(|position| **position >= group_count).map(|position| position - group_count).collect();
        let mut groups = Vec::with_capacity(group_count);
        for expr in &aggregate.group_expr {
            groups.push(self.without_subqueries(expr)?);
        }
        let mut calls = Vec::with_capacity(wanted_calls.len());
        for call in &wanted_calls {
            calls.push(self.without_subqueries(&aggregate.aggr_expr[*call])?);
        }
        let stream = self.stream(&aggregate.input, &referred(groups.iter().chain(&calls), schema)?)?;
        let map = stream.columns.clone();
        let scope = Stream::scope(schema, &map);
        let groups = lower_all(&groups, scope)?;
        let positions = aggregate.group_expr.iter().map(|expr| schema.maybe_index_of_column(expr.try_as_col()?));
        let (order, determining) = compared_first(&aggregate.input, &positions.collect::<Vec<_>>())?;
        let groups = order.iter().map(|at| groups[*at].clone()).collect();
        let calls = calls
            .iter()
            .zip(&wanted_calls)
            .map(|(expr, call)| {
                let field = aggregate.schema.field(group_count + call);
                lower_group_call(expr, scope, sql_type_of_arrow(field.data_type())?.data_type())
            })
            .collect::<Lowering<Vec<GroupCall>>>()?;
        let mut columns = vec![None; aggregate.schema.fields().len()];
        order.iter().enumerate().for_each(|(place, at)| columns[*at] = Some(place));
        for (at, call) in wanted_calls.iter().enumerate() {
            columns[group_count + call] = Some(group_count + at);
        }
        Ok(self.grouped(&stream, &groups, determining, calls.into(), columns))
    }

    /// Ends a pipeline with groups: a stage whose rows have the keys, of which so many of the first determine the
    /// others, then the results.
    pub(super) fn grouped(
        &mut self,
        stream: &Stream,
        groups: &Arc<[Expression]>,
        determining: usize,
        calls: Arc<[GroupCall]>,
        columns: Vec<Option<usize>>,
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
        Stream::of(Source::Stage(stage), columns, types, estimate)
    }

    pub(super) fn distinct(&mut self, distinct: &Distinct) -> Lowering<Stream> {
        let Distinct::All(input) = distinct else { return Err(NotNative("DISTINCT ON".to_string())) };
        let positions: Vec<usize> = (0..input.schema().fields().len()).collect();
        let stream = self.stream(input, &positions.iter().copied().collect())?;
        let all: Vec<Option<usize>> = positions.iter().copied().map(Some).collect();
        let (order, determining) = compared_first(input, &all)?;
        let groups = order.iter().map(|at| stream.column_expression(*at)).collect::<Lowering<Arc<[_]>>>()?;
        let mut columns = vec![None; positions.len()];
        order.iter().enumerate().for_each(|(place, at)| columns[*at] = Some(place));
        Ok(self.grouped(&stream, &groups, determining, Arc::from([]), columns))
    }

    pub(super) fn sort(&mut self, sort: &Sort, needed: &Needed) -> Lowering<Stream> {
        let schema = sort.input.schema();
        let exprs: Vec<&Expr> = sort.expr.iter().map(|key| &key.expr).collect();
        let mut wanted = referred(exprs.iter().copied(), schema)?;
        wanted.extend(needed);
        let mut stream = self.stream(&sort.input, &wanted)?;
        let map = stream.columns.clone();
        let keys = lower_all(exprs, Stream::scope(schema, &map))?.to_vec();
        let places = stream.with_columns(keys).into_iter().zip(&sort.expr);
        let key =
            |(column, by): (usize, &SortExpr)| SortKey { column, descending: !by.asc, nulls_first: by.nulls_first };
        let keys = SortKeys(places.map(key).collect());
        let stage = self.end(&stream, SinkPlan::Sort { keys, limit: sort.fetch });
        let mut estimate = stream.estimate;
        if let Some(fetch) = sort.fetch {
            estimate.rows = estimate.rows.min(fetch as f64);
        }
        Ok(Stream::of(Source::Stage(stage), stream.columns, stream.types, estimate))
    }

    pub(super) fn limit(&mut self, limit: &Limit, needed: &Needed) -> Lowering<Stream> {
        let mut stream = self.stream(&limit.input, needed)?;
        let slot = |expr: &Option<Box<Expr>>| expr.as_ref().map(|expr| limit_slot(expr)).transpose();
        let plan = LimitPlan { skip: slot(&limit.skip)?, fetch: slot(&limit.fetch)? };
        if let Some(rows) = plan.fetch_constant() {
            stream.estimate.rows = stream.estimate.rows.min(rows as f64);
        }
        let stage = match stream.inputs.as_slice() {
            // Of a stage that nobody else reads the limit can be its own.
            [input]
                if let Source::Stage(stage) = input.source
                    && input.steps.is_empty()
                    && stage + 1 == self.stages.len()
                    && self.stages[stage].limit.is_none()
                    && !self.known.iter().any(|(_, _, known)| known.reads(stage)) =>
            {
                stage
            }
            _ => self.end(&stream, SinkPlan::Collect),
        };
        self.stages[stage].limit = Some(plan);
        Ok(Stream { inputs: Stream::rows_of(stage, stream.estimate.rows), ..stream })
    }

    pub(super) fn union(&mut self, union: &Union, needed: &Needed) -> Lowering<Stream> {
        let positions: Vec<usize> = needed.iter().copied().collect();
        let mut united: Option<Stream> = None;
        for input in &union.inputs {
            let stream = self.stream(input, needed)?.arranged(&positions)?;
            united = Some(match united {
                None => stream,
                Some(mut united) => {
                    if united.types != stream.types {
                        return Err(NotNative("a UNION of different types".to_string()));
                    }
                    united.inputs.extend(stream.inputs);
                    let rows = united.estimate.rows + stream.estimate.rows;
                    united.estimate = Estimate::unknown(rows, united.types.len());
                    united
                }
            });
        }
        united.ok_or_else(|| NotNative("a UNION of nothing".to_string()))
    }
}

/// Of the columns that are there those that are needed.
fn narrowed(stream: Stream, there: &Needed, needed: &Needed) -> Lowering<Stream> {
    if there == needed {
        return Ok(stream);
    }
    stream.arranged(&needed.iter().copied().collect::<Vec<_>>())
}

/// The groups of a plan that occur more than once and give the same each time, subqueries included.
pub(super) fn repeated_groups(plan: &LogicalPlan) -> Lowering<Vec<LogicalPlan>> {
    let (mut seen, mut repeated) = (Vec::new(), Vec::new());
    eris_binder::visit_nodes(plan, &mut |node| {
        if matches!(node, LogicalPlan::Aggregate(_)) {
            if !seen.contains(node) {
                seen.push(node.clone());
            } else if !repeated.contains(node) {
                repeated.push(node.clone());
            }
        }
        Ok(())
    })
    .map_err(NotNative::because)?;
    let mut result = Vec::new();
    for plan in repeated {
        if is_repeatable(&plan)? {
            result.push(plan);
        }
    }
    Ok(result)
}

/// No rows, or one without columns.
pub(super) fn empty(empty: &EmptyRelation, needed: &Needed) -> Lowering<Stream> {
    let rows: Arc<[Arc<[Expression]>]> = if empty.produce_one_row { [Arc::from([])].into() } else { [].into() };
    let types = needed
        .iter()
        .map(|position| Ok(sql_type_of_arrow(empty.schema.field(*position).data_type())?.data_type()))
        .collect::<Lowering<Vec<DataType>>>()?;
    let count = rows.len() as f64;
    let columns = placed(empty.schema.fields().len(), needed);
    let source = Source::Values { rows, types: types.clone().into() };
    let width = types.len();
    Ok(Stream::of(source, columns, types, Estimate::unknown(count, width)))
}

/// Rows of constants.
pub(super) fn values(values: &Values, needed: &Needed) -> Lowering<Stream> {
    let nothing = DFSchema::empty();
    let rows = values
        .values
        .iter()
        .map(|row| lower_all(needed.iter().map(|position| &row[*position]), Columns::of(&nothing)))
        .collect::<Lowering<Vec<Arc<[Expression]>>>>()?;
    let types = needed
        .iter()
        .map(|position| Ok(sql_type_of_arrow(values.schema.field(*position).data_type())?.data_type()))
        .collect::<Lowering<Vec<DataType>>>()?;
    let estimate = Estimate::unknown(rows.len() as f64, types.len());
    let columns = placed(values.schema.fields().len(), needed);
    let source = Source::Values { rows: rows.into(), types: types.clone().into() };
    Ok(Stream::of(source, columns, types, estimate))
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

/// An order of group columns, which may be at positions of a plan, in which so many of the first determine the others.
fn compared_first(input: &LogicalPlan, groups: &[Option<usize>]) -> Lowering<(Vec<usize>, usize)> {
    let is_compared = compared(input, groups)?;
    let (mut order, others): (Vec<usize>, Vec<usize>) = (0..groups.len()).partition(|at| is_compared[*at]);
    let determining = order.len();
    order.extend(others);
    Ok((order, determining))
}

/// A value where a condition is true, else NULL. Where it is not, the value is not computed.
pub(super) fn only_where(condition: Expression, value: Expression) -> Expression {
    let data_type = value.data_type();
    Expression::Case { branches: [(condition, value)].into(), otherwise: None, data_type }
}

/// Whether a plan gives the same each time: none of its functions is volatile.
pub(super) fn is_repeatable(plan: &LogicalPlan) -> Lowering<bool> {
    let mut repeatable = true;
    eris_binder::visit_nodes(plan, &mut |node| {
        repeatable &= !eris_binder::node_has(node, &|expr| expr.is_volatile_node())?;
        Ok(())
    })
    .map_err(NotNative::because)?;
    Ok(repeatable)
}

/// Needed positions in order.
fn placed(width: usize, needed: &Needed) -> Vec<Option<usize>> {
    let mut columns = vec![None; width];
    for (column, position) in needed.iter().enumerate() {
        columns[*position] = Some(column);
    }
    columns
}
