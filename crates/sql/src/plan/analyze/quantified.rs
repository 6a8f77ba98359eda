//! Comparisons with a subquery: `x op ANY (Q)`, `x op ALL (Q)`, `(a, b) IN (Q)`. They are taken apart before types are
//! coerced, so that what they become is coerced as if it had been written.
//!
//! ALL is NOT of ANY with the opposite operator, so there is one question: is there a row `y` in Q with `x op y`? It
//! has three answers; *unknown* if there is none, but one might be, were a NULL known.
//!
//! ```text
//!   Q has one row                      x op (Q)
//!   Q does not refer to columns        x < ANY (Q)   ->   s IS NOT FALSE AND (x < max(y) OR NOT s)
//!   outside, the type has an order     x < ALL (Q)   ->   s IS FALSE OR (x < min(y) AND s)
//!                                      s: NULL if Q has a NULL, false if it has no row, else true
//!   otherwise                          CASE WHEN EXISTS (... WHERE x op y) THEN true
//!                                           WHEN x IS NULL AND EXISTS (...) OR EXISTS (... WHERE y IS NULL) THEN NULL
//!                                           ELSE false END
//! ```
//! Where *unknown* is as good as *false*, in a condition of WHERE below AND and OR, only what makes it true is asked:
//! `x < max(y)`, a condition that scans can answer, or EXISTS, which becomes a semi, anti or mark join.
//!
//! A row is found if all of its columns are, and unknown if some are found and the others might be. So there is a
//! question for each way to divide the columns: those that are found by their values, so by keys of a join, those whose
//! `x` is NULL, and those whose `y` is.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue, exec_err};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::expr::{Exists, ScalarFunction, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit, when,
};
use datafusion::optimizer::analyzer::AnalyzerRule;

use super::predicates::{
    column_may_be_null, contains, filtered, has_limit, has_one_row, may_be_null, outside, refused, selected, subquery,
};
use super::subqueries::{without_idle_limits, without_names};
use crate::errors::{SqlError, SqlState};
use crate::plan::quantifiers::ROW_IN;

/// As many questions are asked at most about whether a row might be in a subquery; beyond, one that no keys help with.
const QUESTIONS_MAX: usize = 27;

/// Stands for `(a, b) IN (SELECT ...)` until this rule has seen it: the entries, then EXISTS of the subquery.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RowIn {
    signature: Signature,
}

/// The function of that name.
pub(in crate::plan) fn row_in() -> ScalarUDF {
    ScalarUDF::new_from_impl(RowIn { signature: Signature::variadic_any(Volatility::Immutable) })
}

impl ScalarUDFImpl for RowIn {
    fn name(&self) -> &'static str {
        ROW_IN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{ROW_IN} is not computed row by row")
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Quantified;

impl AnalyzerRule for Quantified {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let mut found = false;
        eris_binder::visit_nodes(&plan, &mut |node| {
            found = found || eris_binder::node_has(node, &is_quantified)?;
            Ok(())
        })?;
        if !found {
            return Ok(plan);
        }
        let rewriting = Rewriting::default();
        let plan = eris_binder::rewrite_nodes(plan, &mut |node| match node {
            LogicalPlan::Filter(filter) if contains(&filter.predicate, &is_quantified)? => {
                let predicate = rewriting.condition(filter.predicate, filter.input.schema())?;
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        eris_binder::rewrite_plan(plan, &mut |expr, columns| match Test::of(&expr)? {
            Some(test) => Ok(Transformed::yes(rewriting.value(&test, columns)?)),
            None => Ok(Transformed::no(expr)),
        })
    }

    fn name(&self) -> &'static str {
        "quantified"
    }
}

fn is_quantified(expr: &Expr) -> bool {
    match expr {
        Expr::SetComparison(_) => true,
        Expr::ScalarFunction(function) => is_row_in(function),
        _ => false,
    }
}

fn is_row_in(function: &ScalarFunction) -> bool {
    function.name() == ROW_IN
}

/// The parameters that are entries of rows, by name, with the types of the columns that they are compared with.
pub(in crate::plan) fn parameters_of_rows(plan: &LogicalPlan) -> Result<Vec<(String, ArrowType)>> {
    let found = RefCell::new(Vec::new());
    let note = |expr: &Expr| {
        if let Expr::ScalarFunction(function) = expr
            && is_row_in(function)
            && let Some((Expr::Exists(rows), values)) = function.args.split_last()
        {
            for (value, field) in values.iter().zip(rows.subquery.subquery.schema().fields()) {
                if let Expr::Placeholder(parameter) = value {
                    found.borrow_mut().push((parameter.id.clone(), field.data_type().clone()));
                }
            }
        }
        false
    };
    eris_binder::visit_nodes(plan, &mut |node| eris_binder::node_has(node, &note).map(|_| ()))?;
    Ok(found.into_inner())
}

/// Whether there is a row in `query` that each of `values` has this relation to, column by column; `negated`: or not.
struct Test {
    values: Vec<Expr>,
    op: Operator,
    query: Arc<LogicalPlan>,
    negated: bool,
}

impl Test {
    fn of(expr: &Expr) -> Result<Option<Self>> {
        match expr {
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                let negated = *quantifier == SetQuantifier::All;
                let op = if negated { op.negate() } else { Some(*op) };
                let Some(op) = op else { return Err(refused("ALL with this operator")) };
                let query = rows_of(&subquery.subquery)?;
                Ok(Some(Self { values: vec![expr.as_ref().clone()], op, query, negated }))
            }
            Expr::ScalarFunction(function) if is_row_in(function) => {
                let Some((Expr::Exists(Exists { subquery, negated: false }), values)) = function.args.split_last()
                else {
                    return Err(refused("a row without a subquery"));
                };
                let (given, wanted) = (subquery.subquery.schema().fields().len(), values.len());
                if given != wanted {
                    let amount = if given > wanted { "many" } else { "few" };
                    let message = format!("subquery has too {amount} columns");
                    return Err(DataFusionError::External(Box::new(SqlError::new(SqlState::SYNTAX, message))));
                }
                let query = rows_of(&subquery.subquery)?;
                Ok(Some(Self { values: values.to_vec(), op: Operator::Eq, query, negated: false }))
            }
            _ => Ok(None),
        }
    }

    /// The relations of the values to other ones: all of them, or NOT that.
    fn compared(&self, others: impl IntoIterator<Item = Expr>) -> Expr {
        let pairs = self.values.iter().zip(others).map(|(value, other)| related(value, self.op, other));
        let all = conjunction(pairs).unwrap_or_else(|| lit(true));
        if !self.negated {
            return all;
        }
        match all {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op.negate() {
                Some(op) => Expr::BinaryExpr(BinaryExpr::new(left, op, right)),
                None => !Expr::BinaryExpr(BinaryExpr::new(left, op, right)),
            },
            other => !other,
        }
    }
}

/// A subquery in which columns that are compared with those outside have names of their own.
fn rows_of(query: &LogicalPlan) -> Result<Arc<LogicalPlan>> {
    let query = without_idle_limits(query)?;
    let is_correlated = !query.all_out_ref_exprs().is_empty();
    let query = if is_correlated { without_names(&query, &mut Vec::new())? } else { query };
    Ok(Arc::new(query))
}

fn related(left: &Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right)))
}

/// A question for which the rows of a plan matter, and for which rows outside it is asked.
struct Question {
    asked: Option<Expr>,
    rows: LogicalPlan,
}

/// One pass over a plan.
#[derive(Default)]
struct Rewriting {
    names: Cell<usize>,
}

impl Rewriting {
    /// A condition for which NULL is as good as false.
    fn condition(&self, condition: Expr, columns: &DFSchema) -> Result<Expr> {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let left = self.condition(*left, columns)?;
                let right = self.condition(*right, columns)?;
                Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
            }
            Expr::Not(inner) => match Test::of(&inner)? {
                Some(test) => self.holds(Test { negated: !test.negated, ..test }, columns),
                None => Ok(Expr::Not(inner)),
            },
            other => match Test::of(&other)? {
                Some(test) => self.holds(test, columns),
                None => Ok(other),
            },
        }
    }

    /// An expression without tests in it.
    fn taken_apart(&self, expr: Expr, columns: &DFSchema) -> Result<Expr> {
        eris_binder::rewrite_expression(expr, &mut |part| match Test::of(&part)? {
            Some(test) => Ok(Transformed::yes(self.value(&test, columns)?)),
            None => Ok(Transformed::no(part)),
        })
    }

    /// An expression that is true if a test is.
    fn holds(&self, mut test: Test, columns: &DFSchema) -> Result<Expr> {
        let values = test.values.into_iter().map(|value| self.taken_apart(value, columns));
        test.values = values.collect::<Result<_>>()?;
        if has_one_row(&test.query) {
            return by_value(&test);
        }
        if let Some(extremes) = Extremes::of(&test, test.negated)? {
            return if test.negated { extremes.answer(&test) } else { extremes.compared(&test) };
        }
        let (found, unknown) = self.questions(&test, columns)?;
        if !test.negated {
            return exists(found);
        }
        let mut conditions = vec![!exists(found)?];
        for question in unknown {
            let none = !exists(question.rows)?;
            conditions.push(match question.asked {
                None => none,
                Some(asked) => (!asked).or(none),
            });
        }
        Ok(conjunction(conditions).unwrap_or_else(|| lit(true)))
    }

    /// The three answers to a test.
    fn value(&self, test: &Test, columns: &DFSchema) -> Result<Expr> {
        if has_one_row(&test.query) {
            return by_value(test);
        }
        if let Some(extremes) = Extremes::of(test, true)? {
            return extremes.answer(test);
        }
        let (found, unknown) = self.questions(test, columns)?;
        let mut answer = when(exists(found)?, lit(!test.negated));
        for question in unknown {
            let is_unknown = exists(question.rows)?;
            let is_unknown = question.asked.map_or(is_unknown.clone(), |asked| asked.and(is_unknown));
            answer = answer.when(is_unknown, Expr::Literal(ScalarValue::Boolean(None), None));
        }
        answer.otherwise(lit(test.negated))
    }

    /// The rows that a test finds, and the questions of which one makes it unknown if it finds none.
    fn questions(&self, test: &Test, columns: &DFSchema) -> Result<(LogicalPlan, Vec<Question>)> {
        if !test.query.all_out_ref_exprs().is_empty() && has_limit(&test.query)? {
            return Err(refused("LIMIT in a subquery of ANY, ALL or IN that refers to columns outside"));
        }
        self.names.set(self.names.get() + 1);
        // Names of their own keep the columns apart from those outside that are named alike.
        let name = |at: usize| format!("__quantified_{}_{at}", self.names.get());
        let named = (0..test.values.len()).map(|at| Ok(selected(&test.query, at)?.alias(name(at))));
        let named = Projection::try_new(named.collect::<Result<_>>()?, Arc::clone(&test.query))?;
        let named = LogicalPlan::Projection(named);
        let mut pairs = Vec::with_capacity(test.values.len());
        for (at, value) in test.values.iter().enumerate() {
            let inner = Expr::Column(Column::from_name(name(at)));
            pairs.push(Pair {
                related: related(&outside(value, columns)?, test.op, inner.clone()),
                null_outside: may_be_null(value, columns)?.then(|| value.clone().is_null()),
                null_inside: column_may_be_null(&test.query, at)?.then(|| inner.is_null()),
            });
        }
        let related = pairs.iter().map(|pair| pair.related.clone());
        let found = conjunction(related).map_or_else(|| Ok(named.clone()), |condition| filtered(&named, condition))?;
        let ways: usize = pairs.iter().map(Pair::ways).product();
        if ways > QUESTIONS_MAX {
            let mut conditions = Vec::with_capacity(pairs.len());
            for (pair, value) in pairs.iter().zip(&test.values) {
                let unknown = pair.null_outside.is_some().then(|| outside(value, columns)).transpose()?;
                let unknown = unknown.map(Expr::is_null).into_iter().chain(pair.null_inside.clone());
                conditions.push(unknown.fold(pair.related.clone(), Expr::or));
            }
            let rows = filtered(&named, conjunction(conditions).unwrap_or_else(|| lit(true)))?;
            return Ok((found, vec![Question { asked: None, rows }]));
        }
        // The first way is that all values are found.
        let unknown = (1..ways).map(|way| question(&pairs, way, &named)).collect::<Result<Vec<_>>>()?;
        Ok((found, unknown))
    }
}

/// A value outside and a column inside.
struct Pair {
    related: Expr,
    /// That the value is NULL, if it may be.
    null_outside: Option<Expr>,
    /// That the column is NULL, if it may be.
    null_inside: Option<Expr>,
}

impl Pair {
    /// In how many ways it may be the reason why a row is found, or might be.
    fn ways(&self) -> usize {
        1 + usize::from(self.null_outside.is_some()) + usize::from(self.null_inside.is_some())
    }
}

/// The question whether there is a row for one of the ways in which all pairs together may be related: a number in
/// which each pair has its digit.
fn question(pairs: &[Pair], mut way: usize, rows: &LogicalPlan) -> Result<Question> {
    let (mut asked, mut conditions) = (Vec::new(), Vec::new());
    for pair in pairs {
        let digit = way % pair.ways();
        way /= pair.ways();
        match (digit, &pair.null_inside, &pair.null_outside) {
            (0, _, _) => conditions.push(pair.related.clone()),
            (1, Some(is_null), _) => conditions.push(is_null.clone()),
            (_, _, Some(is_null)) => asked.push(is_null.clone()),
            (_, _, None) => unreachable!("a pair has no more ways"),
        }
    }
    let rows = conjunction(conditions).map_or_else(|| Ok(rows.clone()), |condition| filtered(rows, condition))?;
    Ok(Question { asked: conjunction(asked), rows })
}

fn exists(rows: LogicalPlan) -> Result<Expr> {
    Ok(Expr::Exists(Exists::new(subquery(rows), false)))
}

/// A test of a query that has one row: a comparison with its values.
fn by_value(test: &Test) -> Result<Expr> {
    let columns = test.query.schema().columns();
    let values = columns.into_iter().map(|column| scalar(Expr::Column(column), &test.query));
    Ok(test.compared(values.collect::<Result<Vec<_>>>()?))
}

/// What is computed of a query's rows.
fn scalar(value: Expr, query: &Arc<LogicalPlan>) -> Result<Expr> {
    let plan = LogicalPlan::Projection(Projection::try_new(vec![value.alias("__value")], Arc::clone(query))?);
    Ok(Expr::ScalarSubquery(subquery(plan)))
}

/// The least and the largest value of a query's column, and the numbers of its rows, as far as a test needs them.
struct Extremes {
    least: Option<Expr>,
    largest: Option<Expr>,
    /// Of all rows, and of those that are not NULL.
    counts: Option<(Expr, Expr)>,
    groups: Arc<LogicalPlan>,
}

impl Extremes {
    /// `None`: they do not say what the rows would. With `counts` if there may be NULLs.
    fn of(test: &Test, counts: bool) -> Result<Option<Self>> {
        use Operator::{Gt, GtEq, Lt, LtEq, NotEq};
        let needs_least = matches!(test.op, Gt | GtEq | NotEq);
        let needs_largest = matches!(test.op, Lt | LtEq | NotEq);
        let is_correlated = !test.query.all_out_ref_exprs().is_empty();
        let ([_], [field]) = (test.values.as_slice(), test.query.schema().fields().as_ref()) else { return Ok(None) };
        if is_correlated || !(needs_least || needs_largest) || !has_extremes(field.data_type()) {
            return Ok(None);
        }
        let column = || Expr::Column(test.query.schema().columns()[0].clone());
        let mut calls = Vec::new();
        calls.extend(needs_least.then(|| min_udaf().call(vec![column()])));
        calls.extend(needs_largest.then(|| max_udaf().call(vec![column()])));
        if counts && column_may_be_null(&test.query, 0)? {
            calls.extend([count_udaf().call(vec![lit(1_i64)]), count_udaf().call(vec![column()])]);
        }
        let groups = LogicalPlanBuilder::from(Arc::clone(&test.query)).aggregate(Vec::<Expr>::new(), calls)?.build()?;
        let mut columns = groups.schema().columns().into_iter().map(Expr::Column);
        let least = needs_least.then(|| columns.next()).flatten();
        let largest = needs_largest.then(|| columns.next()).flatten();
        let counts = columns.next().zip(columns.next());
        Ok(Some(Self { least, largest, counts, groups: Arc::new(groups) }))
    }

    /// A result of the groups as a subquery. The plan of the groups is the same for all of them, so they are computed
    /// once: each mentions all results, in a condition that always holds.
    fn scalar(&self, result: Expr) -> Result<Expr> {
        let mut conditions = Vec::new();
        if let (Some(least), Some(largest)) = (&self.least, &self.largest) {
            conditions.push(least.clone().lt_eq(largest.clone()));
        }
        if let Some((rows, values)) = &self.counts {
            conditions.push(rows.clone().gt_eq(values.clone()));
        }
        match conjunction(conditions) {
            None => scalar(result, &self.groups),
            Some(condition) => scalar(when(condition, result).end()?, &self.groups),
        }
    }

    /// What is true of the extremes if there are rows, none of them NULL, for which the test holds.
    fn compared(&self, test: &Test) -> Result<Expr> {
        let compared = |extreme: &Expr| Ok(test.compared([self.scalar(extreme.clone())?]));
        let tests = self.least.iter().chain(&self.largest).map(compared).collect::<Result<Vec<_>>>()?;
        let link = if test.negated { Expr::and } else { Expr::or };
        Ok(tests.into_iter().reduce(link).unwrap_or_else(|| lit(test.negated)))
    }

    /// The three answers to a test.
    fn answer(&self, test: &Test) -> Result<Expr> {
        let compared = self.compared(test)?;
        let mut extremes = self.least.iter().chain(&self.largest).cloned();
        let Some((rows, values)) = &self.counts else {
            let extreme = self.scalar(extremes.next().unwrap_or_else(|| lit(true)))?;
            return Ok(if test.negated { extreme.is_null().or(compared) } else { extreme.is_not_null().and(compared) });
        };
        let complete = extremes.fold(rows.clone().eq(values.clone()), |all, extreme| all.and(extreme.is_not_null()));
        let state = when(rows.clone().eq(lit(0_i64)), lit(false)).when(complete, lit(true)).end()?;
        let state = scalar(state, &self.groups)?;
        Ok(if test.negated {
            Expr::IsFalse(Box::new(state.clone())).or(compared.and(state))
        } else {
            Expr::IsNotFalse(Box::new(state.clone())).and(compared.or(!state))
        })
    }
}

/// Whether values of a type have an order in which extremes can be found.
fn has_extremes(data_type: &ArrowType) -> bool {
    data_type.is_integer()
        || data_type.is_floating()
        || data_type.is_string()
        || matches!(data_type, ArrowType::Decimal128(..) | ArrowType::Date32 | ArrowType::Timestamp(..))
}
