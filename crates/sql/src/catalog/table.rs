//! A table: what SQL knows beyond the container's schema.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use eris_engine::Partitioning;
use eris_storage::{AttributeId, ContainerId, Schema, Value};

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
    pub default: Value,
}

/// A version of a table; immutable.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns, in the order of the schema's attributes.
    pub columns: Box<[TableColumn]>,
    /// How the engine knows it.
    pub schema: Arc<Schema>,
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
