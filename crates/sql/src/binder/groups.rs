//! GROUP BY, aggregate functions, and what may stand beside them.
//!
//! ```text
//!   SELECT a + 1, sum(b) FROM t GROUP BY a      Project   #4 = #2 + 1, #5 = #3
//!                                          ->     Aggregate   #3 = sum(#1) by #2 = #0
//!                                                   Scan        t: #0 = a, #1 = b
//! ```
//! Items are bound over the rows that are grouped; then keys become columns of the groups wherever they stand. What is
//! neither a key nor an aggregate after that is refused.

use eris_operators::AggregateFunction;
use eris_query::{
    Aggregate, AggregateItem, ColumnId, Projected, Relation, Scalar, ScalarKind, TypedColumn, Unplanned, aggregate_of,
};

use super::scope::Scope;
use super::{Binder, Binding};
use crate::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, SelectItem, Value,
};
use crate::plan::folded;
use crate::types::SqlType;

/// The groups of a SELECT.
pub(super) struct Groups {
    keys: Vec<Projected>,
    calls: Vec<AggregateItem>,
}

impl Groups {
    pub fn of(keys: Vec<Projected>, calls: Vec<AggregateItem>) -> Self {
        Self { keys, calls }
    }

    /// A scalar over the groups instead of the rows that are grouped.
    pub fn over(&self, scalar: Scalar) -> Binding<Scalar> {
        let key = |part: &Scalar| {
            let key = self.keys.iter().find(|key| key.value.is_same(part))?;
            Some(Scalar::column(key.column, key.value.sql_type))
        };
        let scalar = scalar.replaced(&key);
        let mut is_known = true;
        scalar.columns(&mut |column| is_known &= self.has(column));
        if is_known { Ok(scalar) } else { Err(Unplanned::because("a column that is not grouped by")) }
    }

    fn has(&self, column: ColumnId) -> bool {
        self.keys.iter().any(|key| key.column == column) || self.calls.iter().any(|call| call.result.column == column)
    }

    pub fn relation(self, input: Relation) -> Relation {
        Relation::Aggregate(Box::new(Aggregate { input, groups: self.keys, calls: self.calls, sets: None }))
    }
}

impl Binder<'_> {
    /// The keys of GROUP BY: a number is that of an item, a name that of a column or else of an item.
    pub(super) fn group_keys(
        &mut self,
        group_by: &GroupByExpr,
        items: &[SelectItem],
        scope: &Scope<'_>,
    ) -> Binding<Vec<Projected>> {
        let GroupByExpr::Expressions(exprs, modifiers) = group_by else {
            return Err(Unplanned::because("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(Unplanned::because("GROUP BY with a modifier"));
        }
        let mut keys: Vec<Projected> = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let expr = key_expression(expr, items, scope)?;
            let value = self.settled(expr, scope)?;
            if !value.has_columns() {
                return Err(Unplanned::because("GROUP BY a constant"));
            }
            if !keys.iter().any(|known| known.value.is_same(&value)) {
                keys.push(Projected { column: self.new_column(), value });
            }
        }
        Ok(keys)
    }

    /// An aggregate function: its result is a column of the groups.
    pub(super) fn aggregate(
        &mut self,
        name: &str,
        function: &Function,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Binding<Scalar> {
        let unplanned = || Unplanned(format!("the aggregate {}", function.name));
        // While its argument is bound there is no place for another one.
        let mut calls = self.calls.take().ok_or_else(unplanned)?;
        let FunctionArguments::List(list) = &function.args else { return Err(unplanned()) };
        let is_plain = function.over.is_none()
            && function.null_treatment.is_none()
            && function.within_group.is_empty()
            && matches!(function.parameters, FunctionArguments::None)
            && list.clauses.is_empty();
        let ([FunctionArg::Unnamed(argument)], true) = (list.args.as_slice(), is_plain) else {
            return Err(unplanned());
        };
        let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let (function_of, argument, sql_type) = match argument {
            FunctionArgExpr::Wildcard if name == "count" && !distinct => {
                (AggregateFunction::CountAll, None, SqlType::BigInt)
            }
            FunctionArgExpr::Expr(argument) => {
                let argument = self.within(argument, scope, depth)?;
                let signature = aggregate_of(name, argument.sql_type).ok_or_else(unplanned)?;
                let is_counted = argument.as_constant().is_some_and(|value| !value.is_null());
                if signature.function == AggregateFunction::Count && is_counted && !distinct {
                    (AggregateFunction::CountAll, None, signature.result)
                } else {
                    (signature.function, Some(argument.cast(signature.argument)), signature.result)
                }
            }
            _ => return Err(unplanned()),
        };
        let filter = function.filter.as_deref().map(|filter| self.truth(filter, scope, depth)).transpose()?;
        let item = AggregateItem {
            result: TypedColumn { column: ColumnId(self.columns), sql_type },
            // The least of different values is the least of all.
            distinct: distinct && !matches!(function_of, AggregateFunction::Min | AggregateFunction::Max),
            function: function_of,
            argument,
            filter,
        };
        let result = if let Some(known) = calls.iter().find(|known| is_same(known, &item)) {
            known.result
        } else {
            self.columns += 1;
            let result = item.result;
            calls.push(item);
            result
        };
        self.calls = Some(calls);
        Ok(Scalar { kind: ScalarKind::Column(result.column), sql_type: result.sql_type })
    }
}

/// What a key of GROUP BY stands for.
fn key_expression<'e>(expr: &'e Expr, items: &'e [SelectItem], scope: &Scope<'_>) -> Binding<&'e Expr> {
    match expr {
        Expr::Value(value) => {
            let Value::Number(digits, false) = &value.value else {
                return Err(Unplanned::because("GROUP BY a literal"));
            };
            let place = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            match place.and_then(|place| items.get(place)) {
                Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. })
                    if items.iter().all(is_one_column) =>
                {
                    Ok(expr)
                }
                _ => Err(Unplanned(format!("GROUP BY position {digits}"))),
            }
        }
        Expr::Identifier(name) => {
            let name = folded(name);
            if scope.has(&name) {
                return Ok(expr);
            }
            let mut found = items.iter().filter_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if folded(alias) == name => Some(expr),
                _ => None,
            });
            match (found.next(), found.next()) {
                (Some(expr), None) => Ok(expr),
                _ => Err(Unplanned(format!("GROUP BY \"{name}\""))),
            }
        }
        Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) | Expr::Tuple(_) => {
            Err(Unplanned::because("GROUPING SETS"))
        }
        other => Ok(other),
    }
}

/// Whether an item is one column of the result.
fn is_one_column(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
}

fn is_same(one: &AggregateItem, other: &AggregateItem) -> bool {
    let same = |one: &Option<Scalar>, other: &Option<Scalar>| match (one, other) {
        (Some(one), Some(other)) => one.is_same(other),
        (one, other) => one.is_none() && other.is_none(),
    };
    (one.function, one.distinct, one.result.sql_type) == (other.function, other.distinct, other.result.sql_type)
        && same(&one.argument, &other.argument)
        && same(&one.filter, &other.filter)
}
