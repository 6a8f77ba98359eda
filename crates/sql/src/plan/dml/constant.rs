//! Expressions without tables and parameters: DEFAULT, arguments of EXECUTE.

use eris_storage::Value;

use super::{Rows, Scope, literal, select};
use crate::ast::{self, Expr};
use crate::catalog::{ColumnDefault, TableColumn};
use crate::errors::SqlError;
use crate::front::TableName;
use crate::native::{Node, assign};
use crate::plan::{ParameterTypes, operator_error};
use crate::types::SqlType;

/// What a constant expression gives now.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Its value.
    pub value: Value,
    /// At another moment or in another session it may give something else: `now()`, `current_user`.
    pub momentary: bool,
    /// It gives something else every time: `random()`.
    pub volatile: bool,
}

impl Scope<'_> {
    /// The value of an expression as this type. Literals need no plan.
    pub fn constant(&self, expr: &Expr, sql_type: SqlType) -> Result<Constant, SqlError> {
        if let Some(value) = literal(expr, sql_type)? {
            return Ok(Constant { value, momentary: false, volatile: false });
        }
        let mut reads = false;
        eris_binder::visit_expressions(expr, &mut |expr| {
            reads |= matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. });
        });
        let refused = || SqlError::unsupported(format!("the expression {expr} here"), "Only constants are allowed.");
        if reads {
            return Err(refused());
        }
        let cell = std::slice::from_ref(&expr);
        if let Ok((expressions, known)) = self.own_values(cell, ParameterTypes::default())
            && known.parameters.is_empty()
            && let [expression] = expressions.as_slice()
        {
            let value = expression.constant(&[]).map_err(|error| operator_error(&error))?;
            let momentary = known.momentary;
            return Ok(Constant { value: assign(value, sql_type)?, momentary, volatile: false });
        }
        let nowhere = TableName { schema: None, name: "x".to_string() };
        let mut query = select(vec![expr.clone()], Rows { table: &nowhere, alias: None, others: &[], selection: None });
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            select.from.clear();
        }
        let bound = self.planner.bind_query(&query, self.catalog, self.values, ParameterTypes::default())?;
        let volatile = bound.plan.expressions().iter().any(datafusion::logical_expr::Expr::is_volatile);
        match bound.typed().and_then(|plan| plan.in_task()) {
            Ok(Node::Values { rows, .. }) if rows.len() == 1 && rows[0].len() == 1 && bound.parameters.is_empty() => {
                let value = rows[0][0].constant(&[]).map_err(|error| operator_error(&error))?;
                Ok(Constant { value: assign(value, sql_type)?, momentary: bound.momentary, volatile })
            }
            _ => Err(refused()),
        }
    }

    /// What a column without a value gets now, and whether that holds for this moment only.
    pub fn default_of(&self, column: &TableColumn) -> Result<(Value, bool), SqlError> {
        match &column.default {
            ColumnDefault::Value(value) => Ok((value.clone(), false)),
            ColumnDefault::Moment(expr) => Ok((self.constant(expr, column.sql_type)?.value, true)),
        }
    }
}
