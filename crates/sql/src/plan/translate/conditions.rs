//! Which of DataFusion's filters a partition evaluates itself.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use eris_query::Unplanned;

use super::expressions::{Columns, lower};
use crate::catalog::Table;
use crate::native::ConditionTemplate;
use crate::plan::Lowering;
use crate::plan::access::conditions_of;

/// The conditions that are equivalent to an expression over a table's columns; `None` if there are none.
pub fn condition_of(expr: &Expr, table: &Table) -> Option<Vec<ConditionTemplate>> {
    let schema = schema_of(table).ok()?;
    let attributes: Vec<Option<usize>> = (0..table.columns.len()).map(Some).collect();
    // Qualified or not, a column of the table is known by its name.
    let expression = lower(&unnormalize_col(expr.clone()), Columns { schema: &schema, map: &attributes }).ok()?;
    conditions_of(&expression, table)
}

/// A table's columns by their names.
pub(super) fn schema_of(table: &Table) -> Lowering<DFSchema> {
    DFSchema::try_from(Arc::clone(&table.arrow())).map_err(Unplanned::because)
}
