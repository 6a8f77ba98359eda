//! From an optimised logical plan to a native plan, or the reason why there is none.
//!
//! Native are: one table with filter, projection, aggregates and limit; a chain of joins whose inner tables are reached
//! by a key from the outer rows; sorts of what is small after that. Everything else runs in the fallback lane.

mod aggregate;
mod conditions;
mod expressions;
mod join;
mod query;

use std::fmt;

use crate::errors::SqlError;

pub(in crate::plan) use aggregate::{aggregate_function, lower_group_call, unaliased};
pub use conditions::condition_of;
pub(in crate::plan) use conditions::{flipped, widens};
pub(in crate::plan) use expressions::{Columns, lower, lower_all};
pub use query::lower_query;
pub(in crate::plan) use query::{access_conditions, limit_slot, node_name, table_of};

/// Why a plan is not native.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotNative(pub String);

impl NotNative {
    pub(in crate::plan) fn because(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for NotNative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<SqlError> for NotNative {
    fn from(error: SqlError) -> Self {
        Self(error.message)
    }
}

/// What lowering gives.
pub type Lowering<T> = Result<T, NotNative>;
