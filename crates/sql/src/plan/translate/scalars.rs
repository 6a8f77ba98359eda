//! Expressions as scalars. What is below a column is lowered at once; subqueries become parameters.

use datafusion::common::{Column, DataFusionError};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable};
use eris_operators::Expression;
use eris_query::{ColumnId, Scalar, ScalarKind, Unplanned, ValueQuery};

use super::expressions::lower;
use super::{Node, Scope, Translator};
use crate::arrow_view::sql_type_of_arrow;
use crate::plan::Lowering;

/// The column that an expression is, whatever it is called.
pub(super) fn plain_column(expr: &Expr) -> Option<&Column> {
    match unaliased(expr) {
        Expr::Column(column) => Some(column),
        _ => None,
    }
}

/// An expression without the names that it was given.
pub(super) fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

impl Translator {
    /// An expression over the columns of a schema; of a conjunction each part by itself.
    pub(super) fn scalar(&mut self, expr: &Expr, scope: &Scope<'_>) -> Lowering<Scalar> {
        let expr = self.without_subqueries(expr)?;
        let parts = split_conjunction(&expr).into_iter().map(|part| {
            let expression = lower(part, scope.columns())?;
            let sql_type = sql_type_of_arrow(&part.get_type(scope.schema).map_err(Unplanned::because)?)?;
            let kind = match expression {
                Expression::Column { index, .. } => ScalarKind::Column(ColumnId(index as u32)),
                expression => ScalarKind::Lowered(expression),
            };
            Ok(Scalar { kind, sql_type })
        });
        Ok(Scalar::and(parts.collect::<Lowering<Vec<Scalar>>>()?))
    }

    /// The expression with parameters for its subqueries, equal ones the same.
    pub(super) fn without_subqueries(&mut self, expr: &Expr) -> Lowering<Expr> {
        eris_binder::replace_parts(expr.clone(), &mut |part| {
            let Expr::ScalarSubquery(subquery) = part else { return Ok(None) };
            if !subquery.outer_ref_columns.is_empty() {
                return Err(DataFusionError::Plan("a subquery that refers to rows outside".to_string()));
            }
            if let Some((_, known)) = self.known_values.iter().find(|(plan, _)| *plan == *subquery.subquery) {
                return Ok(Some(known.clone()));
            }
            let field = subquery.subquery.schema().field(0).clone();
            let refused = |reason: Unplanned| DataFusionError::Plan(reason.0);
            let Node { relation, columns } = self.node(&subquery.subquery).map_err(refused)?;
            let parameter = self.next_parameter;
            self.next_parameter += 1;
            let id = format!("${}", parameter + 1);
            let value = Expr::Placeholder(Placeholder::new_with_field(id, Some(field)));
            if relation.is_repeatable() {
                self.known_values.push((subquery.subquery.as_ref().clone(), value.clone()));
            }
            self.values.push(ValueQuery { parameter, relation, column: columns[0] });
            Ok(Some(value))
        })
        .map_err(Unplanned::because)
    }
}
