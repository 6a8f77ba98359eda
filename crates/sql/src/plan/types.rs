//! SQL type names inside expressions (`CAST(x AS timestamp)`), planned as the types of our columns.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::planner::TypePlanner;

use super::analyze::mark_bare_numeric;
use crate::arrow_view::{arrow_type, mark_sql_type};
use crate::ast::DataType as AstType;
use crate::front::{is_bare_numeric, sql_type_of};

/// Plans type names; intervals are left to DataFusion.
#[derive(Debug)]
pub(super) struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &AstType) -> Result<Option<FieldRef>> {
        match sql_type_of(sql_type) {
            Ok(known) if is_bare_numeric(sql_type) => {
                Ok(Some(Arc::new(mark_bare_numeric(Field::new("", arrow_type(known.data_type()), true)))))
            }
            Ok(known) => {
                let field = Field::new("", arrow_type(known.data_type()), true);
                Ok(Some(Arc::new(mark_sql_type(field, known))))
            }
            Err(_) => Ok(None),
        }
    }
}
