//! How the row of a table describes it: JSON, format 1. Later versions of ERIS read it, so it changes only with
//! [`FORMAT`]; what is not described here is refused.
//!
//! ```json
//! {"format": 1, "container": 17,
//!  "columns": [{"name": "id", "type": "integer", "not_null": true},
//!              {"name": "price", "type": {"numeric": {"precision": 8, "scale": 2}}, "not_null": false,
//!               "default": {"value": "1.50"}},
//!              {"name": "at", "type": "timestamp", "not_null": false, "default": {"expression": "now()"}}],
//!  "indexes": [{"id": 0, "name": "orders_pkey", "columns": [0], "unique": true, "primary": true, "kind": "ordered"}],
//!  "constraints": 1}
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `container` | The container that holds the rows. Its schema and partitioning are the engine's to keep. |
//! | `type` | A type of SQL with its parameters; the `length` of `varchar` and `char` is null if none was given. |
//! | `default` | `value`: a constant of the column's type, as PostgreSQL writes it. |
//! |           | `expression`: SQL that each statement evaluates. Neither: NULL. |
//! | `columns` of an index | Positions in the table, from 0. |
//! | `constraints` | So many of the first indexes stand for constraints. |
//!
//! Columns and indexes repeat what the container's schema says. They must agree, except that the container may have
//! further indexes: those of a transaction that did not commit, see [`super::settle`].

use std::fmt;
use std::sync::Arc;

use eris_engine::{Container, Partitioning};
use eris_platform::MemoryPool;
use eris_storage::{Attribute, AttributeId, ContainerId, IndexDefinition, IndexId, IndexKind, Schema};
use serde::{Deserialize, Serialize};

use super::rows::TABLE;
use super::table::{ColumnDefault, Table, TableColumn};
use crate::errors::{SqlError, SqlState};
use crate::front::parse_expression;
use crate::pg_format::{parse_text, value_text};
use crate::types::SqlType;

/// The format of definitions, and of the catalog as a whole.
pub(super) const FORMAT: u32 = 1;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTable {
    format: u32,
    container: u32,
    columns: Vec<StoredColumn>,
    indexes: Vec<StoredIndex>,
    constraints: usize,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredColumn {
    name: String,
    #[serde(rename = "type")]
    sql_type: StoredType,
    not_null: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<StoredDefault>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum StoredType {
    Boolean,
    Smallint,
    Integer,
    Bigint,
    Real,
    Double,
    Numeric { precision: u8, scale: u8 },
    Date,
    Timestamp,
    Text,
    Varchar { length: Option<u32> },
    Char { length: Option<u32> },
    Bytea,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredDefault {
    Value(String),
    Expression(String),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredIndex {
    id: u32,
    name: String,
    columns: Vec<u16>,
    unique: bool,
    primary: bool,
    kind: StoredIndexKind,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredIndexKind {
    Ordered,
    Hash,
    Inverted,
}

/// What is read first: the rest of a later format may be anything.
#[derive(Deserialize)]
struct Formatted {
    format: u32,
}

/// The catalog's own row.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCatalog {
    format: u32,
}

/// A row that says something impossible.
pub(super) fn broken(kind: &str, name: &str, why: impl fmt::Display) -> SqlError {
    SqlError::new(SqlState::CORRUPTED, format!("the catalog's row of {kind} \"{name}\" cannot be used"))
        .detail(format!("{why}."))
        .hint("Restore the database from a copy that opens.")
}

/// A row that a later version has written.
fn newer(kind: &str, name: &str, format: u32) -> SqlError {
    SqlError::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("the catalog's row of {kind} \"{name}\" has format {format}; this version of ERIS reads {FORMAT}"),
    )
    .hint("Open the database with the version of ERIS that wrote it, or with a later one.")
}

fn to_json(definition: &impl Serialize) -> String {
    serde_json::to_string(definition).unwrap_or_else(|error| unreachable!("definitions are plain JSON: {error}"))
}

fn from_json<T: for<'a> Deserialize<'a>>(kind: &str, name: &str, text: &str) -> Result<T, SqlError> {
    let wrong = |error: serde_json::Error| broken(kind, name, format!("Its definition cannot be read: {error}"));
    let formatted: Formatted = serde_json::from_str(text).map_err(wrong)?;
    if formatted.format != FORMAT {
        return Err(newer(kind, name, formatted.format));
    }
    serde_json::from_str(text).map_err(wrong)
}

/// What the catalog's own row says.
pub(super) fn catalog_definition() -> String {
    to_json(&StoredCatalog { format: FORMAT })
}

/// Refuses a catalog of another format.
pub(super) fn check_catalog(kind: &str, name: &str, definition: &str) -> Result<(), SqlError> {
    from_json::<StoredCatalog>(kind, name, definition).map(drop)
}

/// A table's definition.
pub(super) fn definition_of(table: &Table) -> String {
    let stored = StoredTable {
        format: FORMAT,
        container: table.container().0,
        columns: table.columns.iter().map(stored_column).collect(),
        indexes: table.schema.indexes.iter().map(stored_index).collect(),
        constraints: table.constraint_count,
    };
    let text = to_json(&stored);
    debug_assert_eq!(serde_json::from_str::<StoredTable>(&text).ok(), Some(stored), "a definition reads as written");
    text
}

fn stored_column(column: &TableColumn) -> StoredColumn {
    let default = match &column.default {
        ColumnDefault::Value(value) => value_text(value).map(StoredDefault::Value),
        ColumnDefault::Moment(expr) => Some(StoredDefault::Expression(expr.to_string())),
    };
    StoredColumn { name: column.name.clone(), sql_type: column.sql_type.into(), not_null: column.not_null, default }
}

fn stored_index(index: &IndexDefinition) -> StoredIndex {
    StoredIndex {
        id: index.id.0,
        name: index.name.to_string(),
        columns: index.attributes.iter().map(|attribute| attribute.0).collect(),
        unique: index.unique,
        primary: index.primary,
        kind: match index.kind {
            IndexKind::Ordered => StoredIndexKind::Ordered,
            IndexKind::Hash => StoredIndexKind::Hash,
            IndexKind::Inverted => StoredIndexKind::Inverted,
        },
    }
}

/// The table of a row. Its memory is reserved in the pool.
pub(super) fn table_of(
    name: &str,
    definition: &str,
    container: impl FnOnce(ContainerId) -> Option<Arc<Container>>,
    pool: &Arc<MemoryPool>,
) -> Result<Table, SqlError> {
    let stored: StoredTable = from_json(TABLE, name, definition)?;
    let id = ContainerId(stored.container);
    let Some(container) = container(id) else {
        return Err(broken(TABLE, name, format!("Its container {} does not exist", id.0)));
    };
    stored.into_table(name, &container.schema(), Partitioning::clone(&container.partitioning()), pool)
}

impl StoredTable {
    fn into_table(
        self,
        name: &str,
        schema: &Schema,
        partitioning: Partitioning,
        pool: &Arc<MemoryPool>,
    ) -> Result<Table, SqlError> {
        let contradicted = |what: &str| {
            let id = schema.container.0;
            broken(TABLE, name, format!("Container {id} contradicts it: {what}"))
        };
        if self.columns.len() != schema.attributes.len() {
            let (columns, attributes) = (self.columns.len(), schema.attributes.len());
            return Err(contradicted(&format!("{attributes} attributes, not {columns} columns")));
        }
        let columns: Box<[TableColumn]> =
            self.columns.into_iter().map(|column| column.into_column(name)).collect::<Result<_, _>>()?;
        for (column, attribute) in columns.iter().zip(&schema.attributes) {
            if !describes(column, attribute) {
                let (expected, found) = (column.sql_type.data_type(), attribute.data_type);
                let (optional, nullable) = (!column.not_null, attribute.nullable);
                return Err(contradicted(&format!(
                    "column \"{}\" ({expected:?}, nullable: {optional}) is stored as attribute \"{}\" \
                     ({found:?}, nullable: {nullable})",
                    column.name, attribute.name
                )));
            }
        }
        let indexes: Box<[IndexDefinition]> = self.indexes.into_iter().map(StoredIndex::into_definition).collect();
        if let Some(missing) = indexes.iter().find(|index| schema.index(index.id) != Some(index)) {
            return Err(contradicted(&format!("it has no such index as \"{}\"", missing.name)));
        }
        if self.constraints > indexes.len() {
            let (constraints, indexes) = (self.constraints, indexes.len());
            return Err(broken(TABLE, name, format!("{constraints} of its {indexes} indexes stand for constraints")));
        }
        // Layouts set by hand belong to the container, not to the table that a TRUNCATE makes anew.
        let schema = Schema { indexes, physical: None, ..schema.clone() };
        Table::new(name.to_string(), columns, schema, self.constraints, partitioning, pool)
    }
}

fn describes(column: &TableColumn, attribute: &Attribute) -> bool {
    *column.name == *attribute.name
        && column.sql_type.data_type() == attribute.data_type
        && column.not_null != attribute.nullable
}

impl StoredColumn {
    fn into_column(self, table: &str) -> Result<TableColumn, SqlError> {
        let sql_type = SqlType::from(self.sql_type);
        let default = match self.default {
            None => Ok(ColumnDefault::Value(eris_storage::Value::Null)),
            Some(StoredDefault::Value(text)) => parse_text(sql_type, &text).map(ColumnDefault::Value),
            Some(StoredDefault::Expression(text)) => {
                parse_expression(&text).map(|expr| ColumnDefault::Moment(Box::new(expr)))
            }
        };
        let default = default.map_err(|error| {
            let why = format!("The default of column \"{}\" cannot be read: {}", self.name, error.message);
            broken(TABLE, table, why)
        })?;
        Ok(TableColumn { name: self.name, sql_type, not_null: self.not_null, default })
    }
}

impl StoredIndex {
    fn into_definition(self) -> IndexDefinition {
        IndexDefinition {
            id: IndexId(self.id),
            name: self.name.into(),
            attributes: self.columns.into_iter().map(AttributeId).collect(),
            unique: self.unique,
            primary: self.primary,
            kind: match self.kind {
                StoredIndexKind::Ordered => IndexKind::Ordered,
                StoredIndexKind::Hash => IndexKind::Hash,
                StoredIndexKind::Inverted => IndexKind::Inverted,
            },
        }
    }
}

impl From<SqlType> for StoredType {
    fn from(sql_type: SqlType) -> Self {
        match sql_type {
            SqlType::Boolean => Self::Boolean,
            SqlType::SmallInt => Self::Smallint,
            SqlType::Integer => Self::Integer,
            SqlType::BigInt => Self::Bigint,
            SqlType::Real => Self::Real,
            SqlType::Double => Self::Double,
            SqlType::Numeric { precision, scale } => Self::Numeric { precision, scale },
            SqlType::Date => Self::Date,
            SqlType::Timestamp => Self::Timestamp,
            SqlType::Text => Self::Text,
            SqlType::Varchar(length) => Self::Varchar { length },
            SqlType::Char(length) => Self::Char { length },
            SqlType::Bytea => Self::Bytea,
            SqlType::Interval | SqlType::Unknown => unreachable!("no column has type {sql_type}"),
        }
    }
}

impl From<StoredType> for SqlType {
    fn from(stored: StoredType) -> Self {
        match stored {
            StoredType::Boolean => Self::Boolean,
            StoredType::Smallint => Self::SmallInt,
            StoredType::Integer => Self::Integer,
            StoredType::Bigint => Self::BigInt,
            StoredType::Real => Self::Real,
            StoredType::Double => Self::Double,
            StoredType::Numeric { precision, scale } => Self::Numeric { precision, scale },
            StoredType::Date => Self::Date,
            StoredType::Timestamp => Self::Timestamp,
            StoredType::Text => Self::Text,
            StoredType::Varchar { length } => Self::Varchar(length),
            StoredType::Char { length } => Self::Char(length),
            StoredType::Bytea => Self::Bytea,
        }
    }
}
