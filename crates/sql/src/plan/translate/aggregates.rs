//! Groups, and the sets of GROUPING SETS, ROLLUP and CUBE.

use datafusion::logical_expr::expr::{AggregateFunction as AggregateExpr, AggregateFunctionParams};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate as AggregateNode, Expr, GroupingSet as SetNode};
use eris_operators::AggregateFunction;
use eris_query::{Aggregate, AggregateItem, GroupingSet, GroupingSets, Projected, Relation, TypedColumn, Unplanned};

use super::scalars::unaliased;
use super::{Node, Scope, Translator};
use crate::arrow_view::sql_type_of_arrow;
use crate::plan::Lowering;

/// More are left to the fallback lane; PostgreSQL has as many.
const SETS_MAX: usize = 4_096;

impl Translator {
    pub(super) fn aggregate(&mut self, aggregate: &AggregateNode) -> Lowering<Node> {
        let input = self.node(&aggregate.input)?;
        let scope = Scope::of(aggregate.input.schema(), &input.columns);
        let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
        let (keys, sets) = if has_sets {
            let (keys, sets) = sets_of(&aggregate.group_expr)?;
            (keys, Some(sets))
        } else {
            (aggregate.group_expr.iter().collect(), None)
        };
        let mut groups = Vec::with_capacity(keys.len());
        for key in keys {
            let value = self.scalar(key, &scope)?;
            groups.push(Projected { column: self.new_column(), value });
        }
        let type_at = |position: usize| sql_type_of_arrow(aggregate.schema.field(position).data_type());
        let mut columns: Vec<_> = groups.iter().map(|group| group.column).collect();
        let sets = match sets {
            None => None,
            Some(sets) => {
                let number = TypedColumn { column: self.new_column(), sql_type: type_at(columns.len())? };
                columns.push(number.column);
                Some(GroupingSets { number, sets })
            }
        };
        let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
        for expr in &aggregate.aggr_expr {
            let sql_type = type_at(columns.len())?;
            let call = self.call(expr, &scope, sql_type)?;
            columns.push(call.result.column);
            calls.push(call);
        }
        let relation = Relation::Aggregate(Box::new(Aggregate { input: input.relation, groups, calls, sets }));
        Ok(Node { relation, columns })
    }

    /// An aggregate over the columns of a schema.
    fn call(&mut self, expr: &Expr, scope: &Scope<'_>, sql_type: crate::types::SqlType) -> Lowering<AggregateItem> {
        let refused = || Unplanned(format!("aggregate {expr}"));
        let Expr::AggregateFunction(AggregateExpr { func, params }) = unaliased(expr) else { return Err(refused()) };
        let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = params;
        if !order_by.is_empty() || null_treatment.is_some() {
            return Err(refused());
        }
        let function = function_named(func.name()).ok_or_else(|| Unplanned(format!("aggregate {}", func.name())))?;
        let (function, argument) = match args.as_slice() {
            [Expr::Literal(value, _)] if function == AggregateFunction::Count && !value.is_null() && !distinct => {
                (AggregateFunction::CountAll, None)
            }
            [argument] => (function, Some(self.scalar(argument, scope)?)),
            _ => return Err(refused()),
        };
        let filter = filter.as_ref().map(|filter| self.scalar(filter, scope)).transpose()?;
        let result = TypedColumn { column: self.new_column(), sql_type };
        Ok(AggregateItem { result, function, argument, distinct: *distinct, filter })
    }
}

/// The aggregate of this name, if there is an operator for it.
pub(super) fn function_named(name: &str) -> Option<AggregateFunction> {
    Some(match name {
        "count" => AggregateFunction::Count,
        "sum" => AggregateFunction::Sum,
        // Of two truth values false is the smaller one.
        "min" | "bool_and" => AggregateFunction::Min,
        "max" | "bool_or" => AggregateFunction::Max,
        "avg" => AggregateFunction::Average,
        _ => return None,
    })
}

/// The keys of all sets, and the sets. Their numbers are DataFusion's: a bit for each key that a set does not group by,
/// the last key's lowest, and above them how often there was the same set before.
fn sets_of(group_expr: &[Expr]) -> Lowering<(Vec<&Expr>, Vec<GroupingSet>)> {
    let [Expr::GroupingSet(sets)] = group_expr else {
        return Err(Unplanned::because("GROUPING SETS beside other keys"));
    };
    let keys = grouping_set_to_exprlist(group_expr).map_err(Unplanned::because)?;
    let lists: Vec<Vec<&Expr>> = match sets {
        SetNode::GroupingSets(lists) => lists.iter().map(|list| list.iter().collect()).collect(),
        SetNode::Rollup(all) => (0..=all.len()).map(|count| all[..count].iter().collect()).collect(),
        SetNode::Cube(all) => {
            if 1_usize.checked_shl(all.len() as u32).is_none_or(|sets| sets > SETS_MAX) {
                return Err(Unplanned(format!("a CUBE of {} keys", all.len())));
            }
            let chosen = |bits: usize| all.iter().enumerate().filter(move |(at, _)| bits >> at & 1 != 0);
            (0..1 << all.len()).map(|bits| chosen(bits).map(|(_, key)| key).collect()).collect()
        }
    };
    if lists.len() > SETS_MAX {
        return Err(Unplanned(format!("{} grouping sets", lists.len())));
    }
    let mut sets: Vec<GroupingSet> = Vec::with_capacity(lists.len());
    for list in lists {
        let grouped: Vec<bool> = keys.iter().map(|key| list.contains(key)).collect();
        let before = sets.iter().filter(|set| set.grouped == grouped).count() as i64;
        let bits = grouped.iter().fold(0, |bits, grouped| bits << 1 | i64::from(!grouped));
        let number = before.checked_shl(keys.len() as u32).filter(|high| high >> keys.len() == before);
        let number = number.ok_or_else(|| Unplanned::because("more grouping sets than numbers"))? | bits;
        sets.push(GroupingSet { grouped, number });
    }
    Ok((keys, sets))
}
