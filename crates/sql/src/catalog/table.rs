//! A table: what SQL knows beyond the container's schema.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use eris_engine::Partitioning;
use eris_storage::{AttributeId, ContainerId, IndexDefinition, Schema, Value};

use crate::ast::Expr;
use crate::types::SqlType;

/// A column as SQL sees it.
#[derive(Clone, Debug)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub sql_type: SqlType,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// What a missing value becomes.
    pub default: ColumnDefault,
}

/// DEFAULT.
#[derive(Clone, Debug)]
pub enum ColumnDefault {
    /// The same for every row; NULL if nothing was said.
    Value(Value),
    /// Computed for each statement: `now()`, `current_user`.
    Moment(Box<Expr>),
}

/// A version of a table; immutable.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns, in the order of the schema's attributes.
    pub columns: Box<[TableColumn]>,
    /// How the engine knows it; of its version only the indexes count, see [`Self::with_indexes`].
    pub schema: Arc<Schema>,
    /// So many of its first indexes stand for constraints of CREATE TABLE.
    pub constraint_count: usize,
    /// How it is cut.
    pub partitioning: Partitioning,
    /// The schema in Arrow's words.
    pub arrow: SchemaRef,
}

impl Table {
    /// The container.
    pub fn container(&self) -> ContainerId {
        self.schema.container
    }

    /// The indexes that stand for constraints.
    pub fn constraints(&self) -> impl Iterator<Item = &IndexDefinition> {
        self.schema.indexes.iter().take(self.constraint_count)
    }

    /// The same table with other indexes; those of constraints stay in front.
    #[must_use]
    pub fn with_indexes(&self, indexes: Box<[IndexDefinition]>) -> Self {
        self.with_schema(Schema { indexes, ..Schema::clone(&self.schema) })
    }

    /// The same table as another container or with other indexes.
    #[must_use]
    pub fn with_schema(&self, schema: Schema) -> Self {
        Self {
            name: self.name.clone(),
            columns: self.columns.clone(),
            schema: Arc::new(schema),
            constraint_count: self.constraint_count,
            partitioning: self.partitioning.clone(),
            arrow: Arc::clone(&self.arrow),
        }
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<(AttributeId, &TableColumn)> {
        let position = self.columns.iter().position(|column| column.name == name)?;
        Some((AttributeId(position as u16), &self.columns[position]))
    }

    /// The names of all columns.
    pub fn column_names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// All attributes, in order.
    pub fn attributes(&self) -> Arc<[AttributeId]> {
        (0..self.columns.len()).map(|position| AttributeId(position as u16)).collect()
    }
}
