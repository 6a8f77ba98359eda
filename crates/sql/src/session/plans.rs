//! A planned query: native, or for the fallback lane.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;

use super::prepared::ColumnDescription;
use crate::errors::SqlError;
use crate::native::Node;
use crate::plan::{BoundQuery, NotNative, lower_query};
use crate::settings::Lanes;
use crate::types::SqlType;

/// How a query runs.
#[derive(Clone, Debug)]
pub enum QueryBody {
    /// On micro-operators and in the task.
    Native(Node),
    /// On DataFusion's operators.
    Fallback {
        /// The optimised plan, with parameters as placeholders.
        plan: LogicalPlan,
        /// Why.
        reason: NotNative,
    },
}

/// A planned query.
#[derive(Clone, Debug)]
pub struct QueryPlan {
    /// How it runs.
    pub body: QueryBody,
    /// Its result.
    pub columns: Arc<[ColumnDescription]>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
}

impl QueryPlan {
    /// Lowers a bound query; refuses it if it is not native and may not fall back.
    pub fn make(bound: BoundQuery, lanes: Lanes) -> Result<Self, SqlError> {
        let lowered = if lanes.native { lower_query(&bound.plan) } else { Err(NotNative("native = off".to_string())) };
        let body = match lowered {
            Ok(node) => QueryBody::Native(node),
            Err(reason) if lanes.fallback => QueryBody::Fallback { plan: bound.plan, reason },
            Err(reason) => {
                return Err(SqlError::unsupported(
                    format!("a plan that is not native ({reason})"),
                    "The fallback lane is switched off: rewrite the query, or SET fallback = on if it is there.",
                ));
            }
        };
        Ok(Self { body, columns: bound.columns.into(), parameters: bound.parameters })
    }

    /// Whether no DataFusion node runs.
    pub fn is_native(&self) -> bool {
        matches!(self.body, QueryBody::Native(_))
    }

    /// The SQL types of the result.
    pub fn types(&self) -> Vec<SqlType> {
        self.columns.iter().map(|column| column.sql_type).collect()
    }
}
