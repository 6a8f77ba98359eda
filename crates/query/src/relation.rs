//! Relations: what gives rows. Columns are known by their [`ColumnId`]s, wherever they stand.

use eris_storage::AttributeId;

use crate::scalar::{ColumnId, Scalar};
use crate::types::SqlType;

/// A table of a statement, by its place among those that the statement names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(pub usize);

/// What gives rows.
#[derive(Clone, Debug)]
pub enum Relation {
    /// One row without columns: what SELECT without FROM computes its items for.
    OneRow,
    /// The rows of a table.
    Scan {
        /// The table, by its place in the statement.
        table: TableId,
        /// Its columns, in order.
        columns: Vec<ScannedColumn>,
    },
    /// The rows for which a condition is true.
    Filter {
        /// Of these rows.
        input: Box<Relation>,
        /// The condition.
        condition: Scalar,
    },
    /// Computed columns; those of the input end here.
    Project {
        /// Of these rows.
        input: Box<Relation>,
        /// The columns, in order.
        items: Vec<Projected>,
    },
    /// The rows in order.
    Sort {
        /// These rows.
        input: Box<Relation>,
        /// By these keys, the first one first.
        keys: Vec<SortItem>,
    },
    /// A part of the rows.
    Limit {
        /// Of these rows.
        input: Box<Relation>,
        /// How many are left out first.
        skip: Option<Scalar>,
        /// How many follow; `None`: all.
        fetch: Option<Scalar>,
    },
}

/// A column that a scan yields.
#[derive(Clone, Copy, Debug)]
pub struct ScannedColumn {
    /// As the statement knows it.
    pub column: ColumnId,
    /// As the table does.
    pub attribute: AttributeId,
    /// Its type.
    pub sql_type: SqlType,
}

/// A column that is computed.
#[derive(Clone, Debug)]
pub struct Projected {
    /// As it is known above.
    pub column: ColumnId,
    /// From the columns below.
    pub value: Scalar,
}

/// A sort key.
#[derive(Clone, Debug)]
pub struct SortItem {
    /// What is compared.
    pub value: Scalar,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}
