//! `IN (SELECT ...)` and `EXISTS (SELECT ...)` wherever they stand.
//!
//! DataFusion makes semi, anti and mark joins of those that stand in a filter, and takes a row that is not found for
//! *false*. That is right as long as nothing above tells *false* from NULL: in a condition of WHERE, below AND and OR.
//! Everywhere else `IN` has three answers:
//!
//! ```text
//!   x IN (Q)   ->   CASE WHEN EXISTS (SELECT ... FROM Q WHERE y = x) THEN true
//!                        WHEN (x IS NULL and Q has a row) or Q has a row whose y IS NULL THEN NULL
//!                        ELSE false END
//! ```
//! `EXISTS` with references to columns outside stays one, as a filter's or a projection's (see `plan::marks`);
//! without them it is the same for every row, a scalar subquery that counts. Nodes that cannot hold subqueries get
//! theirs computed by a projection below, or a filter beside them.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue, Spans};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Filter, Join, JoinType, Limit, LogicalPlan, LogicalPlanBuilder,
    Operator, Projection, Subquery, SubqueryAlias, lit, when,
};

use super::functions::Function;
use crate::errors::SqlError;

/// What `IN` or `EXISTS` with this is refused with.
pub(in crate::plan) fn refused(what: &str) -> DataFusionError {
    let hint = "Write a join, or an aggregate in place of LIMIT, UNION or ORDER BY inside of the subquery.";
    DataFusionError::External(Box::new(SqlError::unsupported(what, hint)))
}

fn is_predicate(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))
}

/// Subqueries that only filters and projections can hold.
fn is_bound_to_place(expr: &Expr) -> bool {
    is_predicate(expr) || matches!(expr, Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty())
}

pub(super) fn contains(expr: &Expr, test: &dyn Fn(&Expr) -> bool) -> Result<bool> {
    use datafusion::common::tree_node::TreeNode;
    expr.exists(|part| Ok(test(part)))
}

/// One pass over a plan.
#[derive(Default)]
pub(super) struct Predicates {
    names: Cell<usize>,
}

impl Predicates {
    /// A node whose inputs and subqueries have been seen to.
    pub fn node(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match node {
            LogicalPlan::Filter(filter) if contains(&filter.predicate, &is_predicate)? => {
                self.filter(filter).map(Transformed::yes)
            }
            LogicalPlan::Projection(projection)
                if eris_binder::node_has(&LogicalPlan::Projection(projection.clone()), &is_predicate)? =>
            {
                self.projection(projection).map(Transformed::yes)
            }
            LogicalPlan::Filter(_) | LogicalPlan::Projection(_) | LogicalPlan::Subquery(_) => Ok(Transformed::no(node)),
            other if !eris_binder::node_has(&other, &is_bound_to_place)? => Ok(Transformed::no(other)),
            LogicalPlan::Join(join) => self.join(&join).map(Transformed::yes),
            LogicalPlan::Aggregate(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_) => {
                self.below(&node).map(Transformed::yes)
            }
            _ => Err(refused("a subquery in this place")),
        }
    }

    fn name(&self, prefix: &str) -> String {
        self.names.set(self.names.get() + 1);
        format!("__{prefix}_{}", self.names.get())
    }

    fn filter(&self, filter: Filter) -> Result<LogicalPlan> {
        let columns = Arc::clone(filter.input.schema());
        let conditions = split_conjunction_owned(filter.predicate)
            .into_iter()
            .map(|condition| self.condition(condition, &columns, true))
            .collect::<Result<Vec<_>>>()?;
        let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
        Ok(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?))
    }

    /// A condition for which NULL is as good as false; `alone` if nothing is above it but AND.
    fn condition(&self, condition: Expr, columns: &DFSchema, alone: bool) -> Result<Expr> {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let alone = alone && op == Operator::And;
                let left = self.condition(*left, columns, alone)?;
                let right = self.condition(*right, columns, alone)?;
                Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
            }
            Expr::Not(inner) => match *inner {
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    self.condition(Expr::InSubquery(InSubquery::new(expr, subquery, !negated)), columns, alone)
                }
                other => self.value(Expr::Not(Box::new(other)), columns),
            },
            Expr::InSubquery(predicate) if is_join(&predicate, columns, alone)? => Ok(Expr::InSubquery(predicate)),
            other => self.value(other, columns),
        }
    }

    /// An expression that may be NULL, or is a part of one.
    fn value(&self, expr: Expr, columns: &DFSchema) -> Result<Expr> {
        eris_binder::replace_parts(expr, &mut |part| match part {
            Expr::InSubquery(predicate) => self.in_subquery(predicate, columns).map(Some),
            Expr::Exists(Exists { subquery, negated }) => {
                let exists = exists(&subquery.subquery)?;
                Ok(Some(if *negated { negation(exists) } else { exists }))
            }
            _ => Ok(None),
        })
    }

    fn projection(&self, projection: Projection) -> Result<LogicalPlan> {
        let names = NamePreserver::new_for_projection();
        let columns = Arc::clone(projection.input.schema());
        let exprs = projection
            .expr
            .into_iter()
            .map(|expr| {
                let name = names.save(&expr);
                Ok(name.restore(self.value(expr, &columns)?))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, projection.input)?))
    }

    fn in_subquery(&self, predicate: &InSubquery, columns: &DFSchema) -> Result<Expr> {
        let InSubquery { expr: x, subquery, negated } = predicate;
        // What is in brackets may itself contain such a predicate.
        let x = self.value(x.as_ref().clone(), columns)?;
        let found = if has_one_row(&subquery.subquery) {
            x.eq(Expr::ScalarSubquery(subquery.clone()))
        } else {
            self.is_found(&x, &subquery.subquery, columns)?
        };
        Ok(if *negated { negation(found) } else { found })
    }

    fn is_found(&self, x: &Expr, query: &LogicalPlan, columns: &DFSchema) -> Result<Expr> {
        let x_outside = outside(x, columns)?;
        let correlated = !query.all_out_ref_exprs().is_empty();
        if correlated && has_limit(query)? {
            return Err(refused("LIMIT in a subquery of IN that refers to columns outside"));
        }
        let (x_nullable, y_nullable) = (may_be_null(x, columns)?, column_may_be_null(query, 0)?);
        // A name of its own keeps its column apart from those outside that are named alike.
        let name = self.name("in");
        let y = selected(query, 0)?.alias(&name);
        let named = LogicalPlan::Projection(Projection::try_new(vec![y], Arc::new(query.clone()))?);
        let y = Expr::Column(Column::from_name(name));
        let found = exists(&filtered(&named, y.clone().eq(x_outside.clone()))?)?;
        let mut unknown = Vec::new();
        if y_nullable {
            unknown.push(exists(&filtered(&named, y.is_null())?)?);
        }
        if x_nullable {
            unknown.push(x.clone().is_null().and(exists(&named)?));
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        let mut case = when(found, lit(true));
        for unknown in unknown {
            case = case.when(unknown, Expr::Literal(ScalarValue::Boolean(None), None));
        }
        case.otherwise(lit(false))
    }

    /// Subqueries in ON: those of an inner join are conditions on its rows, those of an outer join on its inner side.
    fn join(&self, join: &Join) -> Result<LogicalPlan> {
        let on = join.on.iter().flat_map(|(left, right)| [left, right]);
        for expr in on {
            if contains(expr, &is_bound_to_place)? {
                return Err(refused("a subquery in ON that is compared with a column"));
            }
        }
        let filter = join.filter.clone().map(split_conjunction_owned).unwrap_or_default();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for condition in filter {
            let side = if contains(&condition, &is_bound_to_place)? { &mut with } else { &mut without };
            side.push(condition);
        }
        let rest = |left: Arc<LogicalPlan>, right: Arc<LogicalPlan>| -> Result<LogicalPlan> {
            Ok(LogicalPlan::Join(Join::try_new(
                left,
                right,
                join.on.clone(),
                conjunction(without.clone()),
                join.join_type,
                join.join_constraint,
                join.null_equality,
                join.null_aware,
            )?))
        };
        let Some(condition) = conjunction(with) else { return rest(Arc::clone(&join.left), Arc::clone(&join.right)) };
        let inner = match join.join_type {
            JoinType::Inner => {
                let joined = rest(Arc::clone(&join.left), Arc::clone(&join.right))?;
                return self.filter(Filter::try_new(condition, Arc::new(joined))?);
            }
            JoinType::Left => &join.right,
            JoinType::Right => &join.left,
            _ => return Err(refused("a subquery in ON of this kind of join")),
        };
        if !columns_of(&condition)?.iter().all(|column| inner.schema().has_column(column)) {
            return Err(refused("a subquery in ON that depends on both sides of an outer join"));
        }
        let inner = Arc::new(self.filter(Filter::try_new(condition, Arc::clone(inner))?)?);
        if join.join_type == JoinType::Left {
            rest(Arc::clone(&join.left), inner)
        } else {
            rest(inner, Arc::clone(&join.right))
        }
    }

    /// A node with its subqueries computed by a projection below.
    fn below(&self, node: &LogicalPlan) -> Result<LogicalPlan> {
        let input = node.inputs()[0].clone();
        let names = NamePreserver::new(node);
        let keep_names = !matches!(node, LogicalPlan::Sort(_));
        let mut computed: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut exprs = Vec::new();
        for expr in node.expressions() {
            let name = names.save(&expr);
            let expr = eris_binder::replace_parts(expr, &mut |part| {
                Ok(is_bound_to_place(part).then(|| {
                    let name = self.name("subquery");
                    computed.push(part.clone().alias(&name));
                    Expr::Column(Column::from_name(name))
                }))
            })?;
            exprs.push(if keep_names { name.restore(expr) } else { expr });
        }
        let input = self.projection(Projection::try_new(computed, Arc::new(input))?)?;
        let shown = node.schema().columns();
        let node = node.with_new_exprs(exprs, vec![input])?;
        if node.schema().fields().len() == shown.len() {
            return Ok(node);
        }
        LogicalPlanBuilder::from(node).project(shown.into_iter().map(Expr::Column))?.build()
    }
}

/// Whether DataFusion's join for a predicate of a filter gives the right rows.
fn is_join(predicate: &InSubquery, columns: &DFSchema, alone: bool) -> Result<bool> {
    let InSubquery { expr: x, subquery, negated } = predicate;
    let query = &subquery.subquery;
    if has_one_row(query) || contains(x, &is_predicate)? {
        return Ok(false);
    }
    if !negated {
        return Ok(true);
    }
    // DataFusion makes joins of NOT IN that know about NULL, but for one pair of columns only, and at times also where
    // there is no NULL. What may turn out to be a constant is no column.
    let correlated = !query.all_out_ref_exprs().is_empty();
    let nullable = may_be_null(x, columns)? || column_may_be_null(query, 0)?;
    Ok(!correlated && stays_column(x) && (!nullable || alone))
}

/// Whether an expression is that of a column whatever the optimiser does with it: `coalesce('a', x)` is not.
fn stays_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(cast) => stays_column(&cast.expr),
        Expr::Negative(operand) => stays_column(operand),
        _ => false,
    }
}

/// Whether a query has rows, as an expression over the columns outside.
fn exists(query: &LogicalPlan) -> Result<Expr> {
    if has_one_row(query) {
        return Ok(lit(true));
    }
    if let LogicalPlan::Sort(sort) = query
        && sort.fetch.is_none()
    {
        return exists(&sort.input);
    }
    if query.all_out_ref_exprs().is_empty() {
        let one = LogicalPlanBuilder::from(query.clone()).limit(0, Some(1))?.build()?;
        let count = AggregateFunction::new_udf(count_udaf(), vec![lit(1_i64)], false, None, Vec::new(), None);
        let counted = Expr::AggregateFunction(count);
        let counted = LogicalPlanBuilder::from(one).aggregate(Vec::<Expr>::new(), vec![counted])?.build()?;
        let count = Expr::Column(counted.schema().columns()[0].clone());
        let plan = LogicalPlanBuilder::from(counted).project(vec![count.gt(lit(0_i64)).alias("exists")])?.build()?;
        return Ok(Expr::ScalarSubquery(subquery(plan)));
    }
    if let Some((condition, aggregated)) = having(query) {
        let plan = LogicalPlanBuilder::from(aggregated.clone()).project(vec![condition.clone()])?.build()?;
        return Ok(Expr::IsTrue(Box::new(Expr::ScalarSubquery(subquery(plan)))));
    }
    if skips(query)? {
        return Err(refused("OFFSET in a subquery of EXISTS that refers to columns outside"));
    }
    Ok(Expr::Exists(Exists::new(subquery(query.clone()), false)))
}

fn negation(expr: Expr) -> Expr {
    match expr {
        Expr::Exists(Exists { subquery, negated }) => Expr::Exists(Exists::new(subquery, !negated)),
        other => Expr::Not(Box::new(other)),
    }
}

pub(super) fn subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::default() }
}

pub(super) fn filtered(plan: &LogicalPlan, condition: Expr) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan.clone()))?))
}

/// An expression as it is written inside of a subquery.
pub(super) fn outside(expr: &Expr, columns: &DFSchema) -> Result<Expr> {
    eris_binder::replace_parts(expr.clone(), &mut |part| match part {
        Expr::Column(column) => {
            let (_, field) = columns.qualified_field_from_column(column)?;
            Ok(Some(Expr::OuterReferenceColumn(Arc::clone(field), column.clone())))
        }
        Expr::OuterReferenceColumn(..) => Err(refused("IN of a column two queries further outside")),
        part if is_bound_to_place(part) => Err(refused("IN of a subquery that refers to columns outside")),
        _ => Ok(None),
    })
}

/// The columns that a condition depends on, also through its subqueries.
fn columns_of(condition: &Expr) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = condition.column_refs().into_iter().cloned().collect();
    let found = contains(condition, &|part| matches!(part, Expr::OuterReferenceColumn(..)))?;
    if found {
        return Err(refused("a subquery in ON that refers to columns further outside"));
    }
    eris_binder::replace_parts(condition.clone(), &mut |part| {
        let (Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })) = part
        else {
            return Ok(None);
        };
        for outer in &subquery.outer_ref_columns {
            if let Expr::OuterReferenceColumn(_, column) = outer {
                columns.push(column.clone());
            }
        }
        Ok(None)
    })?;
    Ok(columns)
}

/// Whether a query has one row, whatever its tables hold.
pub(super) fn has_one_row(query: &LogicalPlan) -> bool {
    match query {
        LogicalPlan::Projection(Projection { input, .. }) | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => {
            has_one_row(input)
        }
        LogicalPlan::Sort(sort) => sort.fetch.is_none() && has_one_row(&sort.input),
        LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => group_expr.is_empty(),
        _ => false,
    }
}

/// `SELECT ... FROM ... HAVING condition` without groups: the condition and what it is about.
pub(super) fn having(query: &LogicalPlan) -> Option<(&Expr, &LogicalPlan)> {
    match query {
        LogicalPlan::Projection(Projection { input, .. }) | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => {
            having(input)
        }
        LogicalPlan::Filter(Filter { predicate, input, .. }) if has_one_row(input) => Some((predicate, input)),
        _ => None,
    }
}

fn any_node(plan: &LogicalPlan, test: &dyn Fn(&LogicalPlan) -> bool) -> Result<bool> {
    let mut found = false;
    eris_binder::visit_nodes(plan, &mut |node| {
        found |= test(node);
        Ok(())
    })?;
    Ok(found)
}

/// Whether a part that refers to columns outside is limited.
pub(super) fn has_limit(plan: &LogicalPlan) -> Result<bool> {
    any_node(plan, &|node| matches!(node, LogicalPlan::Limit(_)) && !node.all_out_ref_exprs().is_empty())
}

/// Whether rows of a part that refers to columns outside are skipped.
fn skips(plan: &LogicalPlan) -> Result<bool> {
    any_node(plan, &|node| {
        matches!(node, LogicalPlan::Limit(Limit { skip: Some(_), .. })) && !node.all_out_ref_exprs().is_empty()
    })
}

/// Whether an expression may be NULL. Of a scalar subquery without rows the schema does not know.
pub(super) fn may_be_null(expr: &Expr, columns: &DFSchema) -> Result<bool> {
    Ok(contains(expr, &is_scalar)? || expr.nullable(columns)?)
}

/// The same of a query's column.
pub(super) fn column_may_be_null(query: &LogicalPlan, at: usize) -> Result<bool> {
    let mut has_scalar = false;
    eris_binder::visit_nodes(query, &mut |node| {
        has_scalar = has_scalar || eris_binder::node_has(node, &is_scalar)?;
        Ok(())
    })?;
    Ok(has_scalar || query.schema().field(at).is_nullable())
}

/// A query's column, as nullable as it is.
pub(super) fn selected(query: &LogicalPlan, at: usize) -> Result<Expr> {
    let (qualifier, field) = query.schema().qualified_field(at);
    let column = Expr::from((qualifier, field));
    let is_known = field.is_nullable() || !column_may_be_null(query, at)?;
    Ok(if is_known { column } else { Function::Maybe.call(column) })
}

fn is_scalar(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_))
}
