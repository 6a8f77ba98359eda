//! The nodes of a native plan.

use std::sync::Arc;

use eris_operators::{AggregateCall, Expression, SortKeys};
use eris_storage::{DataType, Value};

use super::access::{Access, Expected};
use super::conditions::Slot;

/// A limit up to this many rows makes a result small.
const SMALL_ROWS_MAX: i64 = 10_000;

/// A node; its output is a sequence of batches.
#[derive(Clone, Debug)]
pub enum Node {
    /// Rows of constant expressions: SELECT without FROM, VALUES.
    Values {
        /// One expression per column and row.
        rows: Arc<[Arc<[Expression]>]>,
        /// The types of the columns.
        types: Arc<[DataType]>,
    },
    /// Rows of a table. The filter and projection run inside the partitions when all of them are asked.
    Scan {
        /// What storage evaluates.
        access: Access,
        /// What it cannot.
        filter: Option<Arc<Expression>>,
        /// What is computed; `None`: the desired attributes.
        projection: Option<Arc<[Expression]>>,
    },
    /// For each outer row the rows of a table with that key; columns are the outer ones, then the inner ones.
    KeyJoin {
        /// Few rows.
        outer: Box<Node>,
        /// Has conditions on columns of the outer row.
        inner: Access,
        /// On both rows together.
        filter: Option<Arc<Expression>>,
        /// Outer rows without partner stay, with NULLs.
        left: bool,
    },
    /// Groups of a table's rows, aggregated in the partitions and merged here.
    Aggregate {
        /// The rows.
        access: Access,
        /// What storage cannot evaluate.
        filter: Option<Arc<Expression>>,
        /// What is computed before grouping; `None`: the desired attributes.
        projection: Option<Arc<[Expression]>>,
        /// Group keys.
        groups: Arc<[Expression]>,
        /// Aggregates.
        calls: Arc<[AggregateCall]>,
    },
    /// Computed columns.
    Project {
        /// Of these rows.
        input: Box<Node>,
        /// The columns.
        expressions: Arc<[Expression]>,
    },
    /// Rows for which a condition is true.
    Filter {
        /// Of these rows.
        input: Box<Node>,
        /// The condition.
        condition: Arc<Expression>,
    },
    /// Rows in order.
    Sort {
        /// These rows.
        input: Box<Node>,
        /// How.
        spec: SortSpec,
    },
    /// A part of the rows.
    Limit {
        /// Of these rows.
        input: Box<Node>,
        /// How many are left out first.
        skip: Option<Slot>,
        /// How many follow; `None`: all.
        fetch: Option<Slot>,
    },
}

/// How rows are sorted.
#[derive(Clone, Debug)]
pub struct SortSpec {
    /// The keys.
    pub keys: SortKeys,
    /// At most so many rows are kept.
    pub fetch: Option<usize>,
}

impl Node {
    /// Whether few rows are expected, so that the task may hold and sort them.
    pub fn is_small(&self) -> bool {
        match self {
            Self::Values { .. } | Self::Aggregate { .. } => true,
            Self::Scan { access, .. } => access.expected() != Expected::Many,
            Self::KeyJoin { outer, .. } => outer.is_small(),
            Self::Project { input, .. } | Self::Filter { input, .. } | Self::Sort { input, .. } => input.is_small(),
            Self::Limit { input, fetch, .. } => {
                let few = |value: &Value| matches!(value, Value::Int64(rows) if *rows <= SMALL_ROWS_MAX);
                input.is_small() || matches!(fetch, Some(Slot::Constant(value)) if few(value))
            }
        }
    }

    /// Whether groups are made of many rows: that is better done by dataflows, on all workers.
    pub fn groups_many(&self) -> bool {
        match self {
            Self::Values { .. } | Self::Scan { .. } => false,
            Self::Aggregate { access, .. } => access.expected() == Expected::Many,
            Self::KeyJoin { outer: input, .. }
            | Self::Project { input, .. }
            | Self::Filter { input, .. }
            | Self::Sort { input, .. }
            | Self::Limit { input, .. } => input.groups_many(),
        }
    }

    /// The types of the output.
    pub fn types(&self) -> Vec<DataType> {
        match self {
            Self::Values { types, .. } => types.to_vec(),
            Self::Scan { access, projection, .. } => match projection {
                Some(projection) => projection.iter().map(Expression::data_type).collect(),
                None => access.types(),
            },
            Self::KeyJoin { outer, inner, .. } => {
                let mut types = outer.types();
                types.extend(inner.types());
                types
            }
            Self::Aggregate { groups, calls, .. } => {
                groups.iter().map(Expression::data_type).chain(calls.iter().map(|call| call.result)).collect()
            }
            Self::Project { expressions, .. } => expressions.iter().map(Expression::data_type).collect(),
            Self::Filter { input, .. } | Self::Sort { input, .. } | Self::Limit { input, .. } => input.types(),
        }
    }
}
