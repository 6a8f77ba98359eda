//! Subqueries in expressions. Scalar ones: no row is NULL, more than one an error.
//!
//! DataFusion makes joins of those that refer to columns outside, and puts the columns compared with these beside
//! the ones selected: `IN (SELECT x AS k FROM u WHERE u.k = t.k)` would have two `k`, so what is selected gets a name
//! of its own here. It takes `(SELECT id FROM t ...)` for not nullable if `id` is, and fails, or answers wrongly, when
//! there is no row: a function around the subquery says that its result is nullable. And it takes scalar subqueries
//! that refer to columns outside only if they aggregate, because it makes joins of them; so
//!
//! ```text
//!   (SELECT x FROM u WHERE u.k = t.k)                      ->  only_row((SELECT array_agg(x) FROM u WHERE u.k = t.k))
//!   (SELECT x FROM u WHERE u.k = t.k ORDER BY y LIMIT 1)   ->  (SELECT first_value(x ORDER BY y) FROM u WHERE ...)
//!   (SELECT x FROM u WHERE u.k = t.k AND t.b)              ->  CASE WHEN t.b THEN (SELECT x ... u.k = t.k) END
//! ```
//! `only_row` fails for two values. It sees those that a row outside asks for, so it fails when PostgreSQL does.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Exists, GroupingSet, InSubquery};
use datafusion::logical_expr::expr_rewriter::strip_outer_reference;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort, SortExpr, Subquery,
    SubqueryAlias, lit, when,
};

use super::functions::Function;
use super::predicates::{has_one_row, having, refused};

/// An expression with a subquery that DataFusion makes the right join of, or the refusal if there is none; `None`: the
/// subquery does not refer to columns outside.
pub(super) fn prepared(expr: &Expr) -> Result<Option<Expr>> {
    let (Expr::ScalarSubquery(subquery)
    | Expr::InSubquery(InSubquery { subquery, .. })
    | Expr::Exists(Exists { subquery, .. })) = expr
    else {
        return Ok(None);
    };
    if subquery.outer_ref_columns.is_empty() {
        return Ok(None);
    }
    let plan = without_idle_limits(&subquery.subquery)?;
    refuse(expr, &plan)?;
    let plan = if let Expr::Exists(_) = expr { without_selection(plan)? } else { plan };
    let plan = without_names(&plan, &mut Vec::new())?;
    if compares_namesakes(&plan)? {
        return Err(refused(
            "columns of two tables that are named alike and compared with columns outside in this way",
        ));
    }
    let mut subquery = subquery.with_plan(Arc::new(plan));
    subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
    Ok(Some(match expr {
        Expr::InSubquery(within) => Expr::InSubquery(InSubquery { subquery, ..within.clone() }),
        Expr::Exists(exists) => Expr::Exists(Exists { subquery, negated: exists.negated }),
        _ => Expr::ScalarSubquery(subquery),
    }))
}

/// DataFusion moves conditions on columns outside to where they see other rows: through a window, and through an
/// aggregate without groups, which has a row then for those outside that have rows. A subquery in such a condition
/// moves with it, to where the columns that it refers to have other names.
fn refuse(expr: &Expr, plan: &LogicalPlan) -> Result<()> {
    let any = |test: &dyn Fn(&LogicalPlan) -> bool| plan.exists(|node| Ok(test(node) && refers_outside(node)));
    if any(&|node| matches!(node, LogicalPlan::Window(_)))? {
        return Err(refused("a window function in a subquery that refers to columns outside"));
    }
    // It becomes a window.
    if any(&|node| matches!(node, LogicalPlan::Distinct(Distinct::On(_))))? {
        return Err(refused("DISTINCT ON in a subquery that refers to columns outside"));
    }
    if any(&|node| matches!(node, LogicalPlan::Filter(filter) if moves_a_subquery(&filter.predicate)))? {
        return Err(refused("a subquery that refers to columns outside, in a condition on columns further outside"));
    }
    let fits = match expr {
        Expr::ScalarSubquery(_) => true,
        Expr::Exists(_) => has_one_row(plan) || having(plan).is_some(),
        _ => has_one_row(plan),
    };
    if !fits && any(&has_lone_group)? {
        return Err(refused("an aggregate without GROUP BY in such a subquery of IN or EXISTS"));
    }
    Ok(())
}

fn moves_a_subquery(predicate: &Expr) -> bool {
    let refers = |part: &Expr| match part {
        Expr::ScalarSubquery(subquery)
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::Exists(Exists { subquery, .. }) => !subquery.outer_ref_columns.is_empty(),
        _ => false,
    };
    let holds_one = |condition: &&Expr| condition.exists(|part| Ok(refers(part))).unwrap_or(true);
    split_conjunction(predicate).iter().any(|condition| condition.contains_outer() && holds_one(condition))
}

fn refers_outside(plan: &LogicalPlan) -> bool {
    !plan.all_out_ref_exprs().is_empty()
}

/// Whether a node has a row for all rows of its input, also if there are none.
fn has_lone_group(node: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(Aggregate { group_expr, .. }) = node else { return false };
    group_expr.is_empty()
        || group_expr.iter().any(|group| match group {
            Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
            Expr::GroupingSet(_) => true,
            _ => false,
        })
}

/// A plan without DISTINCT and LIMIT where there is one row anyway.
pub(super) fn without_idle_limits(plan: &LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            let input = without_idle_limits(plan.inputs()[0])?;
            plan.with_new_exprs(plan.expressions(), vec![input])
        }
        LogicalPlan::Distinct(Distinct::All(input)) if has_one_row(input) => Ok(input.as_ref().clone()),
        LogicalPlan::Limit(Limit { skip: None, fetch: Some(fetch), input })
            if has_one_row(input) && !matches!(fetch.as_ref(), Expr::Literal(ScalarValue::Int64(Some(0)), _)) =>
        {
            Ok(input.as_ref().clone())
        }
        other => Ok(other.clone()),
    }
}

/// A plan that selects a constant where only the rows count: columns of two tables that are selected and named alike
/// would be taken for each other.
fn without_selection(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => without_selection(Arc::unwrap_or_clone(input)),
        LogicalPlan::Projection(Projection { input, .. }) => {
            Ok(LogicalPlan::Projection(Projection::try_new(vec![lit(1)], input)?))
        }
        other => Ok(other),
    }
}

/// A plan with other names for what it selects; the old and the new ones are put into `names`. Columns of tables keep
/// theirs, unless another table's is compared that is named alike.
pub(super) fn without_names(plan: &LogicalPlan, names: &mut Vec<(Column, Column)>) -> Result<LogicalPlan> {
    if let LogicalPlan::Filter(Filter { predicate, input, .. }) = plan
        && has_namesakes(plan)
    {
        // Both would become columns of the subquery. Inner subqueries may refer to them, so they stay, too.
        let other = |at: usize| Column::new_unqualified(format!("__compared_{at}"));
        let compared: Vec<(Column, Column)> = compared_columns(predicate)
            .into_iter()
            .enumerate()
            .map(|(at, column)| (column.clone(), other(at)))
            .collect();
        let own = input.schema().columns().into_iter().map(Expr::Column);
        let copies = compared.iter().map(|(column, copy)| Expr::Column(column.clone()).alias(&copy.name));
        let input = LogicalPlan::Projection(Projection::try_new(own.chain(copies).collect(), Arc::clone(input))?);
        let conditions = split_conjunction(predicate).into_iter().cloned();
        let conditions =
            conditions.map(|test| if test.contains_outer() { with_names(test, &compared) } else { Ok(test) });
        let predicate = conjunction(conditions.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
        return Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?));
    }
    if !matches!(
        plan,
        LogicalPlan::Projection(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Distinct(Distinct::All(_))
    ) {
        return Ok(plan.clone());
    }
    let input = without_names(plan.inputs()[0], names)?;
    let expressions = plan.expressions().into_iter().map(|expr| with_names(expr, names)).collect::<Result<Vec<_>>>()?;
    let LogicalPlan::Projection(Projection { expr, .. }) = plan else {
        return plan.with_new_exprs(expressions, vec![input]);
    };
    names.clear();
    let named = expr.iter().zip(expressions).enumerate().map(|(at, (old, new))| {
        if let Expr::Column(column) = &new
            && column.relation.is_some()
            && !has_compared_namesake(&input, column)?
        {
            return Ok(new);
        }
        let name = format!("__selected_{at}");
        let (relation, old) = old.qualified_name();
        names.push((Column::new(relation, old), Column::new_unqualified(&name)));
        Ok(new.unalias().alias(name))
    });
    let named = named.collect::<Result<_>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(named, Arc::new(input))?))
}

/// Whether the column of another table that has this one's name is compared with columns outside: it is put beside what
/// is selected, and the subquery's own name does not tell them apart.
fn has_compared_namesake(plan: &LogicalPlan, column: &Column) -> Result<bool> {
    plan.exists(|node| {
        let LogicalPlan::Filter(Filter { predicate, .. }) = node else { return Ok(false) };
        Ok(compared_columns(predicate).into_iter().any(|other| other.name == column.name && other != column))
    })
}

/// Whether columns of two tables that have one name are compared with columns outside.
fn has_namesakes(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(Filter { predicate, .. }) = plan else { return false };
    let columns = compared_columns(predicate);
    let names: BTreeSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    names.len() < columns.len()
}

/// The same of all conditions of a plan together: WHERE and HAVING may compare one each.
fn compares_namesakes(plan: &LogicalPlan) -> Result<bool> {
    let mut compared = BTreeSet::new();
    plan.apply(|node| {
        if let LogicalPlan::Filter(Filter { predicate, .. }) = node {
            compared.extend(compared_columns(predicate).into_iter().cloned());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let names: BTreeSet<&str> = compared.iter().map(|column| column.name.as_str()).collect();
    Ok(names.len() < compared.len())
}

/// The columns in conditions that have columns outside, too.
fn compared_columns(predicate: &Expr) -> BTreeSet<&Column> {
    let outside = split_conjunction(predicate).into_iter().filter(|condition| condition.contains_outer());
    outside.flat_map(Expr::column_refs).collect()
}

fn with_names(expr: Expr, names: &[(Column, Column)]) -> Result<Expr> {
    eris_binder::replace_parts(expr, &mut |part| {
        let Expr::Column(column) = part else { return Ok(None) };
        Ok(names.iter().find(|(old, _)| old == column).map(|(_, new)| Expr::Column(new.clone())))
    })
}

/// What a scalar subquery becomes.
pub(super) fn scalar(subquery: &Subquery) -> Result<Option<Expr>> {
    if !subquery.outer_ref_columns.is_empty() && !is_aggregated(&subquery.subquery) {
        return correlated(subquery);
    }
    let nullable = subquery.subquery.schema().fields().first().is_none_or(|field| field.is_nullable());
    let around = !nullable && !has_a_row(&subquery.subquery);
    Ok(around.then(|| Function::Maybe.call(Expr::ScalarSubquery(subquery.clone()))))
}

fn correlated(subquery: &Subquery) -> Result<Option<Expr>> {
    if subquery.subquery.schema().fields().len() != 1 {
        return Ok(None);
    }
    // A condition on columns outside only cannot become part of a join: it decides whether to look at all.
    let mut outside = Vec::new();
    let plan = without_outside(&subquery.subquery, &mut outside)?;
    let value = one_value(&plan, subquery)?;
    Ok(Some(match conjunction(outside) {
        None => value,
        Some(condition) => when(condition, value).end()?,
    }))
}

/// The value of a subquery's only row.
fn one_value(plan: &LogicalPlan, subquery: &Subquery) -> Result<Expr> {
    let with_plan = |plan: LogicalPlan| {
        let outer_ref_columns = plan.all_out_ref_exprs();
        Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() })
    };
    if plan.all_out_ref_exprs().is_empty() {
        return Ok(Function::Maybe.call(with_plan(plan.clone())));
    }
    if let Some((input, value, keys)) = first_row(plan) {
        let call = AggregateFunction::new_udf(first_value_udaf(), vec![value], false, None, keys, None);
        return Ok(with_plan(aggregated(input, call)?));
    }
    let value = Expr::Column(plan.schema().columns()[0].clone());
    let call = AggregateFunction::new_udf(array_agg_udaf(), vec![value], false, None, Vec::new(), None);
    Ok(Function::OnlyRow.call(with_plan(aggregated(plan, call)?)))
}

/// A plan without the conditions of its WHERE that mention columns outside only; they are put into `outside`.
fn without_outside(plan: &LogicalPlan, outside: &mut Vec<Expr>) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Sort(_) | LogicalPlan::SubqueryAlias(_) => {
            let input = without_outside(plan.inputs()[0], outside)?;
            plan.with_new_exprs(plan.expressions(), vec![input])
        }
        LogicalPlan::Filter(Filter { predicate, input, .. }) => {
            let (only_outside, inside): (Vec<Expr>, Vec<Expr>) = split_conjunction(predicate)
                .into_iter()
                .cloned()
                .partition(|condition| condition.contains_outer() && !condition.any_column_refs());
            if only_outside.is_empty() {
                return Ok(plan.clone());
            }
            outside.extend(only_outside.into_iter().map(strip_outer_reference));
            match conjunction(inside) {
                None => Ok(input.as_ref().clone()),
                Some(condition) => Ok(LogicalPlan::Filter(Filter::try_new(condition, Arc::clone(input))?)),
            }
        }
        other => Ok(other.clone()),
    }
}

fn aggregated(input: &LogicalPlan, call: AggregateFunction) -> Result<LogicalPlan> {
    LogicalPlanBuilder::from(input.clone()).aggregate(Vec::<Expr>::new(), vec![Expr::AggregateFunction(call)])?.build()
}

/// `SELECT value FROM input ORDER BY keys LIMIT 1`, taken apart.
fn first_row(plan: &LogicalPlan) -> Option<(&LogicalPlan, Expr, Vec<SortExpr>)> {
    match plan {
        LogicalPlan::Limit(Limit { skip: None, fetch: Some(fetch), input }) if is_one(fetch) => match input.as_ref() {
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                Some((input, Expr::Column(input.schema().columns().first()?.clone()), expr.clone()))
            }
            // Keys that are not selected are projected away above the sort.
            LogicalPlan::Projection(Projection { expr, input, .. }) => match (expr.as_slice(), input.as_ref()) {
                ([value], LogicalPlan::Sort(Sort { expr: keys, input, fetch: None })) => {
                    Some((input, value.clone().unalias(), keys.clone()))
                }
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn is_one(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Int64(Some(1)), _))
}

/// Whether a subquery is what DataFusion makes a join of.
fn is_aggregated(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
        | LogicalPlan::Filter(Filter { input, .. }) => is_aggregated(input),
        LogicalPlan::Aggregate(_) => true,
        _ => false,
    }
}

fn has_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(Projection { input, .. }) | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => {
            has_a_row(input)
        }
        LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}
