//! UNION, INTERSECT and EXCEPT: the types that both sides have in common, and how often a row is in the result of ALL.
//!
//! The binder makes semi and anti joins of INTERSECT and EXCEPT, in which NULLs are equal, and removes equal rows on
//! the left first, except for ALL, where it forgets that rows may be there several times. So these are numbered:
//!
//! ```text
//!   LeftSemi Join: l.a = r.a      Projection: l.a
//!     l                    ->       LeftSemi Join: l.a = r.a, __number <= __copies       LeftAnti for EXCEPT ALL
//!     r                               Window: row_number() over (partition by l.a) as __number
//!                                       l
//!                                     Aggregate: group by r.a, count(1) as __copies
//!                                       r
//! ```
//! Of `m` equal rows on the left and `n` on the right the first `n` have a partner: `min(m, n)` for INTERSECT ALL; the
//! others, `max(m - n, 0)`, have none.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinConstraint, NullEquality, Result, ScalarValue};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Cast, Distinct, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Union, WindowFrame,
    WindowFunctionDefinition, lit,
};

use super::operands::{common, same_family, untyped};
use crate::plan::window_functions::row_number;

const NUMBER: &str = "__number";
const COPIES: &str = "__copies";

/// A set operation as PostgreSQL has it; other nodes stay.
pub(super) fn rewrite(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Union(union) => self::union(union),
        LogicalPlan::Join(join)
            if matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
                && join.null_equality == NullEquality::NullEqualsNull
                && join.filter.is_none() =>
        {
            intersect_or_except(join)
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The parts of a UNION with the types that they have in common.
fn union(union: Union) -> Result<Transformed<LogicalPlan>> {
    let inputs: Vec<&LogicalPlan> = union.inputs.iter().map(AsRef::as_ref).collect();
    let types = common_types("UNION", &inputs)?;
    if types.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = inputs.into_iter().map(|input| projected(input, &types).map(Arc::new)).collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

fn intersect_or_except(join: Join) -> Result<Transformed<LogicalPlan>> {
    let (left, is_all) = match join.left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(input)) => (Arc::clone(input), false),
        _ => (Arc::clone(&join.left), true),
    };
    let what = if join.join_type == JoinType::LeftSemi { "INTERSECT" } else { "EXCEPT" };
    let mut types = common_types(what, &[&left, &join.right])?;
    for (at, found) in types.iter_mut().enumerate() {
        let pair = [&left, &join.right].map(|side| side.schema().field(at).data_type());
        // NULL alone has no type: it takes that of the other side.
        if found.is_none() && pair.contains(&&ArrowType::Null) {
            *found = Some(pair.into_iter().find(|of| **of != ArrowType::Null).cloned().unwrap_or(ArrowType::Utf8View));
        }
    }
    let (left, right) = if types.iter().any(Option::is_some) {
        (Arc::new(projected(&left, &types)?), Arc::new(projected(&join.right, &types)?))
    } else if is_all {
        (left, Arc::clone(&join.right))
    } else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    let joined = |left: LogicalPlan, right: LogicalPlan, filter: Option<Expr>| {
        let (on, null_equality) = (join.on.clone(), NullEquality::NullEqualsNull);
        let constraint = JoinConstraint::On;
        let joined =
            Join::try_new(left.into(), right.into(), on, filter, join.join_type, constraint, null_equality, false);
        joined.map(LogicalPlan::Join)
    };
    if !is_all {
        let left = LogicalPlanBuilder::from(left).distinct()?.build()?;
        return joined(left, Arc::unwrap_or_clone(right), None).map(Transformed::yes);
    }
    let columns = left.schema().columns();
    let number = Expr::WindowFunction(Box::new(WindowFunction {
        fun: WindowFunctionDefinition::WindowUDF(row_number()),
        params: WindowFunctionParams {
            args: Vec::new(),
            partition_by: columns.iter().cloned().map(Expr::Column).collect(),
            order_by: Vec::new(),
            window_frame: WindowFrame::new(None),
            filter: None,
            null_treatment: None,
            distinct: false,
        },
    }));
    let numbered = LogicalPlanBuilder::from(left).window(vec![number.alias(NUMBER)])?.build()?;
    let keys = right.schema().columns().into_iter().map(Expr::Column);
    let copies = count_udaf().call(vec![lit(1_i64)]).alias(COPIES);
    let counted = LogicalPlanBuilder::from(right).aggregate(keys, [copies])?.build()?;
    let number = Expr::Column(Column::from_name(NUMBER));
    let has_partner = number.lt_eq(Expr::Column(Column::from_name(COPIES)));
    let joined = joined(numbered, counted, Some(has_partner))?;
    let plan = LogicalPlanBuilder::from(joined).project(columns.into_iter().map(Expr::Column))?.build()?;
    Ok(Transformed::yes(plan))
}

/// For each column the type that all inputs have in common; `None`: they may stay as they are.
fn common_types(what: &str, inputs: &[&LogicalPlan]) -> Result<Vec<Option<ArrowType>>> {
    let width = inputs.first().map_or(0, |input| input.schema().fields().len());
    if inputs.iter().any(|input| input.schema().fields().len() != width) {
        return Ok(Vec::new());
    }
    let mut found: Vec<Option<ArrowType>> = Vec::with_capacity(width);
    for at in 0..width {
        let typed = inputs.iter().filter(|input| untyped_column(input, at).is_none());
        let types: Vec<ArrowType> = typed.map(|input| input.schema().field(at).data_type().clone()).collect();
        same_family(what, &types)?;
        found.push(common(&types, types.len() < inputs.len()));
    }
    Ok(found)
}

/// A plan whose columns have these types, where one is given.
pub(super) fn projected(plan: &LogicalPlan, types: &[Option<ArrowType>]) -> Result<LogicalPlan> {
    let columns = plan.schema().iter().zip(types).map(|((qualifier, field), wanted)| {
        let column = Expr::from((qualifier, field));
        Ok(match wanted {
            // Nothing but NULL.
            Some(wanted) if *field.data_type() == ArrowType::Null => {
                Expr::Literal(ScalarValue::try_from(wanted)?, None).alias_qualified(qualifier.cloned(), field.name())
            }
            Some(wanted) if wanted != field.data_type() => Expr::Cast(Cast::new(Box::new(column), wanted.clone()))
                .alias_qualified(qualifier.cloned(), field.name()),
            _ => column,
        })
    });
    let columns = columns.collect::<Result<Vec<Expr>>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan.clone()))?))
}

/// The literal that a column of a plan is, if nothing says its type.
fn untyped_column(plan: &LogicalPlan, at: usize) -> Option<&Expr> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => untyped_column(&alias.input, at),
        LogicalPlan::Projection(projection) => match projection.expr.get(at)? {
            Expr::Alias(alias) => Some(alias.expr.as_ref()).filter(|expr| untyped(expr).is_some()),
            expr => Some(expr).filter(|expr| untyped(expr).is_some()),
        },
        _ => None,
    }
}
