//! Queries as typed trees: what stands between SQL's text and the engine's operators.
//!
//! ```text
//!   text ──binder (crate sql)──> Relation, Scalar ──rules──> the same, cheaper ──lower──> Expression (crate operators)
//!                 │                   ▲
//!                 └── resolve ────────┘   which operator is meant, and what its operands are cast to
//! ```
//! Nothing here knows SQL's text or the catalog: a column is a [`ColumnId`], a table a [`TableId`] of the statement.
//! Operators and casts are tables of signatures, resolved as PostgreSQL does it (its documentation, chapter 10).
//!
//! Floors, each of which uses only those before it: [`types`], [`casts`], [`numeric`], [`operators`], [`scalar`],
//! [`resolve`], [`relation`], [`fingerprint`], [`rules`], [`lower`]; [`functions`] and [`aggregates`] stand beside
//! [`operators`].

pub mod aggregates;
pub mod casts;
pub mod fingerprint;
pub mod functions;
pub mod lower;
pub mod numeric;
pub mod operators;
mod picture;
pub mod relation;
pub mod resolve;
pub mod rules;
pub mod scalar;
pub mod types;

pub use aggregates::{AggregateSignature, aggregate_of, is_aggregate};
pub use fingerprint::Fingerprint;
pub use functions::Function;
pub use lower::lower;
pub use operators::{Kernel, Signature, operators_named};
pub use relation::{
    Aggregate, AggregateItem, GroupingSet, GroupingSets, Join, JoinKind, Projected, Query, Relation, ScannedColumn,
    SortItem, TableId, TypedColumn, ValueQuery, Window, WindowItem,
};
pub use resolve::{ResolveError, call, common_type, resolve};
pub use scalar::{ColumnId, Scalar, ScalarKind, columns_of};
pub use types::{Category, SqlType, TypeKind};

/// Why a tree cannot be planned here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unplanned(pub String);

impl Unplanned {
    /// For this reason.
    pub fn because(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}
