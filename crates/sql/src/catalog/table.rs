//! A table: what SQL knows beyond the container's schema.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use datafusion::arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use eris_engine::Partitioning;
use eris_platform::{MemoryPool, Reservation};
use eris_storage::{AttributeId, ContainerId, IndexDefinition, Schema, Value};

use super::definition_memory;
use crate::arrow_view::arrow_schema;
use crate::ast::Expr;
use crate::errors::SqlError;
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
    /// What it takes as long as it is there; versions share it, see [`definition_memory`].
    memory: Arc<Reservation>,
    /// See [`Self::arrow`].
    arrow: Mutex<Weak<ArrowSchema>>,
}

impl Table {
    /// A table that will be made, or that is there already; its indexes so far stand for constraints but for those from
    /// `constraint_count` on. Its memory is reserved in the pool.
    pub fn new(
        name: String,
        columns: Box<[TableColumn]>,
        schema: Schema,
        constraint_count: usize,
        partitioning: Partitioning,
        pool: &Arc<MemoryPool>,
    ) -> Result<Self, SqlError> {
        let memory = definition_memory::reserve(pool, &columns, &schema, &partitioning)?;
        let schema = Arc::new(schema);
        Ok(Self { name, columns, schema, constraint_count, partitioning, memory, arrow: Mutex::default() })
    }

    /// The container.
    pub fn container(&self) -> ContainerId {
        self.schema.container
    }

    /// The indexes that stand for constraints.
    pub fn constraints(&self) -> impl Iterator<Item = &IndexDefinition> {
        self.schema.indexes.iter().take(self.constraint_count)
    }

    /// The same table with an index more, whose memory is reserved.
    pub fn with_index(&self, index: IndexDefinition, pool: &Arc<MemoryPool>) -> Result<Self, SqlError> {
        let new = self.with_indexes(self.schema.indexes.iter().cloned().chain([index]).collect());
        let memory = definition_memory::reserve(pool, &new.columns, &new.schema, &new.partitioning)?;
        Ok(Self { memory, ..new })
    }

    /// The same table with fewer indexes; those of constraints stay in front.
    #[must_use]
    pub fn with_indexes(&self, indexes: Box<[IndexDefinition]>) -> Self {
        self.with_schema(Schema { indexes, ..Schema::clone(&self.schema) })
    }

    /// The same table as another container or with fewer indexes. It reserves nothing: a full database is truncated.
    #[must_use]
    pub fn with_schema(&self, schema: Schema) -> Self {
        Self {
            name: self.name.clone(),
            columns: self.columns.clone(),
            schema: Arc::new(schema),
            constraint_count: self.constraint_count,
            partitioning: self.partitioning.clone(),
            memory: Arc::clone(&self.memory),
            arrow: Mutex::default(),
        }
    }

    /// The schema in Arrow's words. It is made for plans and goes with the last of them: it would be half of what an
    /// empty table takes.
    pub fn arrow(&self) -> SchemaRef {
        let mut known = self.arrow.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known.upgrade() {
            return schema;
        }
        let sql_types: Vec<SqlType> = self.columns.iter().map(|column| column.sql_type).collect();
        let schema = arrow_schema(&self.schema, &sql_types);
        *known = Arc::downgrade(&schema);
        schema
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
