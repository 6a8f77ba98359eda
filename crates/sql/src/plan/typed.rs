//! A query with its types and tables, whichever binder bound it.

use std::sync::Arc;

use eris_query::{Query, Unplanned};

use super::task::in_task;
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::native::Node;

/// What planning gives, or why it does not.
pub type Lowering<T> = Result<T, Unplanned>;

/// A query and its tables.
#[derive(Clone, Debug)]
pub struct TypedPlan {
    /// The query.
    pub query: Query,
    /// Its tables: what their numbers in it mean.
    pub tables: Arc<[Arc<Table>]>,
}

impl TypedPlan {
    /// The plan that the task runs itself, if it can.
    pub fn in_task(&self) -> Lowering<Node> {
        in_task(self)
    }
}

impl From<SqlError> for Unplanned {
    fn from(error: SqlError) -> Self {
        Self(error.message)
    }
}
