//! Which of DataFusion's rules run, and those of ours between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Filter, JoinType, LogicalPlan, Operator};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use super::distinct_on::FirstOfGroups;
use super::extremes::Extremes;
use super::marks::Marks;
use crate::fallback::{PaddedSides, SampledFilters};

/// Rules for what no plan has here: comparisons with ANY and ALL, which are taken apart before, fields of structures.
const IDLE: [&str; 3] = ["rewrite_set_comparison", "extract_leaf_expressions", "push_down_leaf_projections"];

/// Rules that found more to do in a second pass over TPC-H's queries; none of the others did. What they would find in
/// another query is lost time, not a wrong answer; subqueries that are left get all rules again. Constants go behind
/// whenever filters are pushed down.
const AGAIN: [&str; 7] = [
    "constants_behind",
    "eliminate_join",
    "extract_equijoin_predicate",
    "eliminate_cross_join",
    "push_down_limit",
    "push_down_filter",
    "optimize_projections",
];

/// Rules for logical plans that are applied once more, behind all.
pub(super) fn rules_again() -> Optimizer {
    let again = optimizer_rules().into_iter().filter(|rule| AGAIN.contains(&rule.name()));
    Optimizer::with_rules(again.collect())
}

/// Rules for logical plans.
pub(super) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Vec::new();
    for rule in Optimizer::new().rules.into_iter().filter(|rule| !IDLE.contains(&rule.name())) {
        let simplifies = rule.name() == "simplify_expressions";
        if rule.name() == "decorrelate_predicate_subquery" {
            rules.push(Arc::new(Marks));
        }
        if rule.name() == "push_down_filter" {
            rules.push(Arc::new(ConstantsBehind));
        }
        if rule.name() == "replace_distinct_aggregate" {
            rules.push(Arc::new(FirstOfGroups));
        }
        rules.push(match rule.name() {
            "common_sub_expression_eliminate" => Arc::new(Sparing { rule, spares: computes_one_row }),
            "push_down_filter" => Arc::new(Sparing { rule, spares: filters_one_group }),
            "extract_equijoin_predicate" => Arc::new(Sparing { rule, spares: takes_nulls_for_equal }),
            "eliminate_cross_join" => {
                Arc::new(Sparing { rule: Arc::new(KeepingKeys(rule)), spares: has_nulls_taken_for_equal })
            }
            "eliminate_duplicated_expr" => Arc::new(Sparing { rule, spares: sorts }),
            "single_distinct_aggregation_to_group_by" => Arc::new(Sparing { rule, spares: adds_numerics }),
            _ => rule,
        });
        if simplifies {
            rules.push(Arc::new(NeverTrue));
        }
    }
    // When conditions on one side alone have left the join.
    rules.push(Arc::new(Extremes));
    rules
}

/// Rules for physical plans, without two that find columns by name and position and take those of one side of a join
/// for those of the other: filters are where the optimiser of logical plans put them, and a projection that was once
/// moved into a filter must not be moved through it again. Shares of filters are told before anybody asks for
/// estimates; padded sides get their operator when groups have become constants, which asks for no order yet.
pub fn physical_rules(sides: PaddedSides) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut projections = 0;
    let wanted = |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| match rule.name() {
        "FilterPushdown" => false,
        "ProjectionPushdown" => {
            projections += 1;
            projections == 1
        }
        _ => true,
    };
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![Arc::new(SampledFilters)];
    for rule in PhysicalOptimizer::new().rules.into_iter().filter(wanted) {
        let makes_constants = rule.name() == "aggregate_statistics";
        rules.push(rule);
        if makes_constants {
            rules.push(Arc::new(sides));
        }
    }
    rules
}

/// One of DataFusion's rules, which some nodes have to be kept from.
#[derive(Debug)]
struct Sparing {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    /// Whether a node stays as it is.
    spares: fn(&LogicalPlan) -> bool,
}

impl OptimizerRule for Sparing {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if (self.spares)(&plan) { Ok(Transformed::no(plan)) } else { self.rule.rewrite(plan, config) }
    }
}

/// A select list without a table, as VALUES of INSERT are planned: it is one row of expressions and has to stay one.
/// An expression that is there twice is computed twice.
fn computes_one_row(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Projection(projection) = plan else { return false };
    matches!(projection.input.as_ref(), LogicalPlan::EmptyRelation(_))
}

/// A join of keys among which NULL meets NULL, all of them: an equality that is made a key of it would let NULLs meet.
fn takes_nulls_for_equal(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join) if !join.on.is_empty() && join.null_equality == NullEquality::NullEqualsNull)
}

/// A whole plan with such an inner join. Of all inner joins below each other one takes the keys, as that join does.
fn has_nulls_taken_for_equal(plan: &LogicalPlan) -> bool {
    let look = |node: &LogicalPlan| {
        Ok(match node {
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner && takes_nulls_for_equal(node) => {
                TreeNodeRecursion::Stop
            }
            _ => TreeNodeRecursion::Continue,
        })
    };
    plan.apply_with_subqueries(look).is_ok_and(|walk| walk == TreeNodeRecursion::Stop)
}

/// The rule that puts inner joins in another order. A key whose one side has columns of several tables, as in
/// `(a.x = b.y) = c.z`, fits an order only where those are joined already, and is lost in another: then all stays.
#[derive(Debug)]
struct KeepingKeys(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepingKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let spanning = keys(&plan, of_several_tables)?;
        if spanning.is_empty() {
            return self.0.rewrite(plan, config);
        }
        let rewritten = self.0.rewrite(plan.clone(), config)?;
        let kept = keys(&rewritten.data, of_several_tables)?;
        let is_kept = |(key, times): (&(String, String), &usize)| kept.get(key).is_some_and(|kept| kept >= times);
        Ok(if spanning.iter().all(is_kept) { rewritten } else { Transformed::no(plan) })
    }
}

/// The keys of inner joins for which `wanted` holds, with both sides' parts in one order, and how often each is there.
fn keys(plan: &LogicalPlan, wanted: fn(&Expr) -> bool) -> Result<BTreeMap<(String, String), usize>> {
    let mut found = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node
            && join.join_type == JoinType::Inner
        {
            for (left, right) in join.on.iter().filter(|(left, right)| wanted(left) || wanted(right)) {
                let (left, right) = (left.to_string(), right.to_string());
                *found.entry(if left < right { (left, right) } else { (right, left) }).or_insert(0) += 1;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn of_several_tables(expr: &Expr) -> bool {
    expr.column_refs().into_iter().map(|column| &column.relation).collect::<BTreeSet<_>>().len() > 1
}

/// A filter of groups of which one is there even if no row is. Below them a condition without columns, or one that is
/// never true (`max(a) = 1 AND max(a) = 2`), would leave that one.
/// What lies between is of no matter: filters are merged on their way.
fn filters_one_group(plan: &LogicalPlan) -> bool {
    fn is_one_group(plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Aggregate(aggregate) => {
                let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
                aggregate.group_expr.is_empty() || aggregate.group_expr.iter().any(is_set)
            }
            LogicalPlan::Filter(_) | LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
                is_one_group(plan.inputs()[0])
            }
            _ => false,
        }
    }
    matches!(plan, LogicalPlan::Filter(filter) if is_one_group(&filter.input))
}

/// A sort by several keys. What depends on keys in front of it is taken out of them, and of a join of tables with keys
/// too much is thought to depend.
fn sorts(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Sort(sort) if sort.expr.len() > 1)
}

/// Groups in which a numeric is added up. To group by the argument of a DISTINCT beside it first would make a sum of
/// sums, which is wider, and what is computed of it was typed before.
fn adds_numerics(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else { return false };
    aggregate.aggr_expr.iter().any(|call| {
        let Expr::AggregateFunction(call) = call else { return false };
        let numeric =
            |argument: &Expr| matches!(argument.get_type(aggregate.input.schema()), Ok(ArrowType::Decimal128(..)));
        call.func.name() == "sum" && call.params.args.iter().any(numeric)
    })
}

/// A filter one of whose conditions is never true is false. Simplification leaves `x IS NULL AND NULL` of
/// `NOT (x = x)`, and the rule that moves conditions below an outer join loses one without columns.
#[derive(Debug)]
struct NeverTrue;

fn is_never_true(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Boolean(None | Some(false)) | ScalarValue::Null, _))
}

impl OptimizerRule for NeverTrue {
    fn name(&self) -> &'static str {
        "never_true"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
        let parts = split_conjunction(&filter.predicate);
        if parts.len() < 2 || !parts.into_iter().any(is_never_true) {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let never = Expr::Literal(ScalarValue::Boolean(Some(false)), None);
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(never, filter.input)?)))
    }
}

/// In conditions of filters and joins, constants stand behind what they are equal to. Where filters are pushed down
/// those of a column are put together, and `1 = x AND x = 1` is taken for never true; simplification has turned such
/// conditions before, but `1 IN (SELECT x ...)` becomes one behind it.
#[derive(Debug)]
struct ConstantsBehind;

fn with_constants_behind(condition: Expr) -> Result<Transformed<Expr>> {
    condition.transform_up(|expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
                if left.as_literal().is_some() && right.as_literal().is_none() =>
            {
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: right, op: Operator::Eq, right: left }))
            }
            other => Transformed::no(other),
        })
    })
}

impl OptimizerRule for ConstantsBehind {
    fn name(&self) -> &'static str {
        "constants_behind"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(Filter { predicate, input, .. }) => with_constants_behind(predicate)?
                .map_data(|predicate| Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?))),
            LogicalPlan::Join(mut join) => {
                let Some(filter) = join.filter.take() else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
                with_constants_behind(filter)?.map_data(|filter| {
                    join.filter = Some(filter);
                    Ok(LogicalPlan::Join(join))
                })
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_are_told_apart_by_name_are_there() {
        let all = Optimizer::new().rules;
        for name in IDLE {
            assert!(all.iter().any(|rule| rule.name() == name), "{name}");
        }
        assert_eq!(rules_again().rules.len(), AGAIN.len());
        let physical = physical_rules(PaddedSides::Outer);
        let place = |name: &str| physical.iter().position(|rule| rule.name() == name).unwrap();
        assert_eq!(place("padded_sides"), place("aggregate_statistics") + 1);
        assert!(place("sampled_filters") < place("join_selection") && place("padded_sides") < place("join_selection"));
        assert!(place("padded_sides") < place("EnsureRequirements"));
    }
}
