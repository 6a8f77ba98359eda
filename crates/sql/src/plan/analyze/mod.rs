//! Where DataFusion's expressions mean something else than PostgreSQL's: rewritten while a plan is analysed.
//!
//! ```text
//!   outer_aggregates -> quantified -> bring_together -> DataFusion's rules (coercion of types, ...)
//!       -> correlated_subqueries -> place_predicates -> as_postgres
//! ```
//! What the type of its surroundings depends on is looked at before types are coerced, everything else after that,
//! because coercion adds casts of its own.

mod branches;
mod casts;
mod digits;
mod functions;
mod lists;
mod lookups;
mod moments;
mod operands;
mod outer_aggregates;
mod parts;
mod predicates;
mod quantified;
mod rounding;
mod set_operations;
mod shifts;
mod subqueries;

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::analyzer::{Analyzer, AnalyzerRule};

pub(super) use digits::mark_bare_numeric;
pub(super) use operands::{as_float, binary, sum_of_times};
pub(super) use parts::date_part;
pub(super) use predicates::refused;
pub(super) use quantified::{parameters_of_rows, row_in};

use super::text_growth::TextCalls;

type Rule = Arc<dyn AnalyzerRule + Send + Sync>;

/// DataFusion's rules between ours; what makes texts becomes calls of bounded functions.
pub(super) fn analyzer_rules(texts: TextCalls) -> Vec<Rule> {
    let mut rules: Vec<Rule> =
        vec![Arc::new(outer_aggregates::OuterAggregates), Arc::new(quantified::Quantified), Arc::new(BringTogether)];
    rules.extend(Analyzer::new().rules);
    let prepared = Box::new(|expr: &Expr, _: &DFSchema| subqueries::prepared(expr));
    rules.push(Arc::new(Rewriting { name: "correlated_subqueries", rewrite: prepared }));
    rules.push(Arc::new(PlacePredicates));
    let as_postgres = Box::new(move |expr: &Expr, columns: &DFSchema| as_postgres(expr, columns, &texts));
    rules.push(Arc::new(Rewriting { name: "as_postgres", rewrite: as_postgres }));
    rules
}

/// See [`digits`], [`operands`] and [`set_operations`].
#[derive(Debug)]
struct BringTogether;

impl AnalyzerRule for BringTogether {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let mut rewrite = |expr: Expr, columns: &DFSchema| {
            let kept = digits::keep(&expr, columns)?;
            let new = match operands::bring_together(kept.as_ref().unwrap_or(&expr), columns)? {
                Some(new) => Some(new),
                None => kept,
            };
            Ok(new.map_or_else(|| Transformed::no(expr), Transformed::yes))
        };
        eris_binder::rewrite_plan_and_nodes(plan, &mut rewrite, &mut set_operations::rewrite)
    }

    fn name(&self) -> &'static str {
        "bring_together"
    }
}

/// See [`predicates`].
#[derive(Debug)]
struct PlacePredicates;

impl AnalyzerRule for PlacePredicates {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let predicates = predicates::Predicates::default();
        eris_binder::rewrite_nodes(plan, &mut |node| predicates.node(node))
    }

    fn name(&self) -> &'static str {
        "place_predicates"
    }
}

/// What becomes of an expression over some columns; `None`: it stays.
type Rewrite = Box<dyn Fn(&Expr, &DFSchema) -> Result<Option<Expr>> + Send + Sync>;

fn as_postgres(expr: &Expr, columns: &DFSchema, texts: &TextCalls) -> Result<Option<Expr>> {
    if let Some(call) = texts.rewrite(expr, columns) {
        return Ok(Some(call));
    }
    match expr {
        Expr::Cast(cast) => casts::cast(cast, columns),
        Expr::ScalarFunction(function) => Ok(rounding::rewrite(function, columns)),
        Expr::Negative(operand) => Ok(digits::negative(operand, columns)),
        Expr::ScalarSubquery(subquery) => subqueries::scalar(subquery),
        Expr::InList(list) => match lists::of_constants(list, columns)? {
            Some(new) => Ok(Some(new)),
            None => lookups::plain_floats(expr, columns),
        },
        Expr::BinaryExpr(pair) => Ok(lists::pair(pair, columns)
            .or_else(|| constant_behind(pair))
            .or_else(|| digits::times_zero(pair, columns))),
        Expr::AggregateFunction(_) => lookups::plain_floats(expr, columns),
        Expr::Case(case) => match branches::kept_apart(case, columns)? {
            Some(new) => Ok(Some(new)),
            None => lookups::plain_floats(expr, columns),
        },
        _ => Ok(None),
    }
}

/// A comparison with its constant behind the operator: `'a' = x AND x = 'a'` is taken for two values that differ.
fn constant_behind(pair: &BinaryExpr) -> Option<Expr> {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let is_comparison = matches!(pair.op, Eq | NotEq | Lt | LtEq | Gt | GtEq);
    if !is_comparison || lists::varies(&pair.left) || !lists::varies(&pair.right) {
        return None;
    }
    Some(Expr::BinaryExpr(BinaryExpr::new(pair.right.clone(), pair.op.swap()?, pair.left.clone())))
}

/// Applies a rewrite to every expression of a plan.
struct Rewriting {
    name: &'static str,
    rewrite: Rewrite,
}

impl fmt::Debug for Rewriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl AnalyzerRule for Rewriting {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        eris_binder::rewrite_plan(plan, &mut |expr, columns| {
            Ok(match (self.rewrite)(&expr, columns)? {
                Some(new) => Transformed::yes(new),
                None => Transformed::no(expr),
            })
        })
    }

    fn name(&self) -> &str {
        self.name
    }
}
