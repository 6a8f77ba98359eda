//! From CREATE TABLE and CREATE INDEX to schemas.

use std::sync::Arc;

use eris_engine::Partitioning;
use eris_platform::MemoryPool;
use eris_storage::{
    Attribute, AttributeId, ContainerId, IndexDefinition, IndexId, IndexKind, Layout, Schema, SchemaVersion,
};

use super::names::suggestions;
use super::table::{ColumnDefault, Table, TableColumn};
use crate::errors::{SqlError, SqlState};
use crate::front::{CreateIndexCommand, CreateTableCommand, NewConstraint};

/// How a new table is stored.
#[derive(Clone, Copy, Debug)]
pub struct NewTable {
    /// Layout of its segments.
    pub layout: Layout,
    /// Partitions to start with; 0: one, split by size.
    pub partitions: usize,
    /// Rows of a segment.
    pub segment_rows: u32,
}

/// Columns of a table at most: what an attribute id and a person can hold.
const COLUMNS_MAX: usize = 1_600;

/// The table that a command describes; `defaults` are those of its columns. Its memory is reserved in the pool.
pub fn new_table(
    command: &CreateTableCommand,
    container: ContainerId,
    stored: NewTable,
    defaults: Vec<ColumnDefault>,
    pool: &Arc<MemoryPool>,
) -> Result<Table, SqlError> {
    if command.columns.is_empty() || command.columns.len() > COLUMNS_MAX {
        return Err(SqlError::new(
            SqlState::INVALID_TABLE,
            format!("tables must have between 1 and {COLUMNS_MAX} columns"),
        ));
    }
    let mut columns: Vec<TableColumn> = Vec::with_capacity(command.columns.len());
    for (column, default) in command.columns.iter().zip(defaults) {
        if columns.iter().any(|known| known.name == column.name) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{}\" specified more than once", column.name),
            ));
        }
        columns.push(TableColumn {
            name: column.name.clone(),
            sql_type: column.sql_type,
            not_null: column.not_null,
            default,
        });
    }
    let indexes = key_indexes(command, &mut columns)?;
    let partitioning = partitioning(&indexes, stored.partitions)?;
    check_unique(&indexes, &partitioning)?;
    let attributes = columns
        .iter()
        .map(|column| Attribute {
            name: column.name.as_str().into(),
            data_type: column.sql_type.data_type(),
            nullable: !column.not_null,
        })
        .collect();
    let schema = Schema {
        container,
        version: SchemaVersion(1),
        attributes,
        indexes: indexes.into(),
        layout: stored.layout,
        physical: None,
        segment_rows: stored.segment_rows,
    };
    let constraint_count = schema.indexes.len();
    Table::new(command.table.name.clone(), columns.into(), schema, constraint_count, partitioning, pool)
}

fn key_indexes(command: &CreateTableCommand, columns: &mut [TableColumn]) -> Result<Vec<IndexDefinition>, SqlError> {
    let mut indexes: Vec<IndexDefinition> = Vec::new();
    // The primary key first, whatever the order of the clauses: it decides how the table is cut.
    let mut constraints: Vec<&NewConstraint> = command.constraints.iter().collect();
    constraints.sort_by_key(|constraint| !constraint.primary);
    for constraint in constraints {
        if constraint.primary && indexes.iter().any(|index| index.primary) {
            return Err(SqlError::new(
                SqlState::INVALID_TABLE,
                format!("multiple primary keys for table \"{}\" are not allowed", command.table.name),
            ));
        }
        let attributes = key_attributes(&constraint.columns, columns)?;
        if constraint.primary {
            for attribute in &attributes {
                columns[attribute.index()].not_null = true;
            }
        }
        let name = constraint.name.clone().unwrap_or_else(|| {
            let table = &command.table.name;
            if constraint.primary {
                format!("{table}_pkey")
            } else {
                format!("{table}_{}_key", constraint.columns.join("_"))
            }
        });
        indexes.push(IndexDefinition {
            id: IndexId(indexes.len() as u32),
            name: name.into(),
            attributes: attributes.into(),
            unique: true,
            primary: constraint.primary,
            kind: IndexKind::Ordered,
        });
    }
    Ok(indexes)
}

fn key_attributes(names: &[String], columns: &[TableColumn]) -> Result<Vec<AttributeId>, SqlError> {
    let mut attributes = Vec::with_capacity(names.len());
    for name in names {
        let Some(position) = columns.iter().position(|column| column.name == *name) else {
            let close = suggestions(name, columns.iter().map(|column| column.name.as_str()));
            let mut error = SqlError::no_such_column(name, None, &close);
            error.message = format!("column \"{name}\" named in key does not exist");
            return Err(error);
        };
        let attribute = AttributeId(position as u16);
        if attributes.contains(&attribute) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" appears twice in a key or index"),
            ));
        }
        attributes.push(attribute);
    }
    Ok(attributes)
}

/// A table with a key is cut by the first column of its first key, so that every key value is in one partition; a table
/// without one by size.
fn partitioning(indexes: &[IndexDefinition], partitions: usize) -> Result<Partitioning, SqlError> {
    let Some(key) = indexes.first() else {
        return Ok(Partitioning::Size { partitions: partitions.max(1) });
    };
    let first: Box<[AttributeId]> = key.attributes.iter().take(1).copied().collect();
    Ok(match partitions {
        0 => Partitioning::Range(first),
        partitions => Partitioning::Hash { attributes: first, partitions },
    })
}

/// A local unique index is unique only within a partition, so it must contain what decides the partition.
fn check_unique(indexes: &[IndexDefinition], partitioning: &Partitioning) -> Result<(), SqlError> {
    for index in indexes.iter().filter(|index| index.unique) {
        let contained = partitioning.attributes().iter().all(|attribute| index.attributes.contains(attribute));
        if !contained || !partitioning.has_positions() {
            return Err(SqlError::unsupported(
                format!("UNIQUE (\"{}\") without the column that the table is partitioned by", index.name),
                "Add the first column of the primary key to the constraint, or create a plain index.",
            ));
        }
    }
    Ok(())
}

/// The definition of a new index of this name on a container that is at `stored`.
pub fn index_of_columns(
    command: &CreateIndexCommand,
    table: &Table,
    name: &str,
    stored: &Schema,
) -> Result<IndexDefinition, SqlError> {
    let attributes = key_attributes(&command.columns, &table.columns).map_err(|mut error| {
        error.message = error.message.replace("named in key does not exist", "does not exist");
        error
    })?;
    let id = stored.indexes.iter().map(|index| index.id.0 + 1).max().unwrap_or(0);
    let definition = IndexDefinition {
        id: IndexId(id),
        name: name.into(),
        attributes: attributes.into(),
        unique: command.unique,
        primary: false,
        kind: command.kind,
    };
    check_unique(std::slice::from_ref(&definition), &table.partitioning)?;
    Ok(definition)
}
