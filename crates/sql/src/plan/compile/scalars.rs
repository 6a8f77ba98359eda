//! Subqueries that do not refer to rows outside: each becomes a stage whose only value is a parameter from then on,
//! equal ones the same.

use datafusion::common::DataFusionError;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::Placeholder;

use super::relational::is_repeatable;
use super::{Compiler, Needed};
use crate::native::{Scalar, SinkPlan};
use crate::plan::lower::{Lowering, NotNative};

impl Compiler<'_> {
    /// The expression with parameters for its subqueries.
    pub(super) fn without_subqueries(&mut self, expr: &Expr) -> Lowering<Expr> {
        eris_binder::replace_parts(expr.clone(), &mut |part| {
            let Expr::ScalarSubquery(subquery) = part else { return Ok(None) };
            if !subquery.outer_ref_columns.is_empty() {
                return Err(DataFusionError::Plan("a subquery that refers to rows outside".to_string()));
            }
            if let Some((_, known)) = self.values.iter().find(|(plan, _)| *plan == *subquery.subquery) {
                return Ok(Some(known.clone()));
            }
            let field = subquery.subquery.schema().field(0).clone();
            let needed: Needed = [0].into();
            let refused = |reason: NotNative| DataFusionError::Plan(reason.0);
            let stream = self.stream(&subquery.subquery, &needed).and_then(|stream| stream.arranged(&[0]));
            let stream = stream.map_err(refused)?;
            let repeatable = is_repeatable(&subquery.subquery).map_err(refused)?;
            let stage = self.end(&stream, SinkPlan::Collect);
            let parameter = self.next_parameter;
            self.next_parameter += 1;
            self.scalars.push(Scalar { stage, parameter });
            let id = format!("${}", parameter + 1);
            let value = Expr::Placeholder(Placeholder::new_with_field(id, Some(field)));
            if repeatable {
                self.values.push((subquery.subquery.as_ref().clone(), value.clone()));
            }
            Ok(Some(value))
        })
        .map_err(NotNative::because)
    }
}
