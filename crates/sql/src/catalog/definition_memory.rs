//! The memory of a table that is empty: its definition in the catalog and in the engine, and its empty partitions.
//!
//! It is reserved before a table is made, and given back with the last version of the table that shares it, so CREATE
//! TABLE and CREATE INDEX are refused (53200) before the process passes its limit. What makes a database smaller never
//! asks for more: DROP INDEX and TRUNCATE hand on the reservation of the version before. That may be too much by the
//! indexes that went, until the next one is made or the database is opened again.

use std::sync::Arc;

use eris_engine::Partitioning;
use eris_platform::{MemoryPool, Reservation};
use eris_storage::{IndexDefinition, Schema, Value};

use super::table::{ColumnDefault, TableColumn};
use crate::errors::SqlError;

/// The name under which `eris.memory` shows it.
const TABLE_DEFINITIONS: &str = "table definitions";

// The constants were measured as what `eris.memory_limit` shows as allocated and as resident, less what is accounted
// and less what the allocator keeps, before and after 100 to 1,500 tables of 3, 100 and 1,600 columns of int and text,
// with a directory, on two workers. Rows of the catalog's own container are accounted there.

/// A container and its catalog entry without columns and partitions: 3 kB allocated.
const TABLE_BYTES: u64 = 6 << 10;
/// An empty partition: 2.2 kB allocated (100 tables of 64 partitions), 3 kB with the pages that are in part free.
const PARTITION_BYTES: u64 = 3 << 10;
/// A column: 80 bytes in the catalog, 24 in the schema, as much in the engine's own schema after the database was
/// opened again, and its names. 350 resident bytes were seen with an Arrow field of 160 in it, which is now made for
/// plans only.
const COLUMN_BYTES: u64 = 224;
/// So often a name is there: in the catalog and two schemas, and as a key of the catalog's maps.
const NAME_COPIES: u64 = 4;
/// An index in the same schemas; its pages are accounted by the partitions.
const INDEX_BYTES: u64 = 512;
/// Bytes of a parsed DEFAULT for each byte of its text: a node of some hundred bytes for a few letters.
const EXPRESSION_BYTES: u64 = 64;

/// Reserves the memory of a table in the pool of the database.
pub(super) fn reserve(
    pool: &Arc<MemoryPool>,
    columns: &[TableColumn],
    schema: &Schema,
    partitioning: &Partitioning,
) -> Result<Arc<Reservation>, SqlError> {
    let memory = pool.reserve(TABLE_DEFINITIONS);
    let refused = memory.grow(bytes_of(columns, &schema.indexes, partitioning));
    refused.map_err(|exceeded| {
        SqlError::out_of_memory(exceeded).hint("Raise --memory-limit, or drop tables and indexes that are not needed.")
    })?;
    Ok(Arc::new(memory))
}

fn bytes_of(columns: &[TableColumn], indexes: &[IndexDefinition], partitioning: &Partitioning) -> u64 {
    let partitions = match partitioning {
        Partitioning::Range(_) => 1,
        Partitioning::Hash { partitions, .. } | Partitioning::Size { partitions } => (*partitions).max(1) as u64,
    };
    let columns: u64 = columns.iter().map(column_bytes).sum();
    let indexes: u64 = indexes.iter().map(index_bytes).sum();
    TABLE_BYTES + PARTITION_BYTES * partitions + columns + indexes
}

fn column_bytes(column: &TableColumn) -> u64 {
    let default = match &column.default {
        ColumnDefault::Value(Value::Text(text)) => text.len() as u64,
        ColumnDefault::Value(Value::Bytes(bytes)) => bytes.len() as u64,
        ColumnDefault::Value(_) => 0,
        ColumnDefault::Moment(expr) => EXPRESSION_BYTES * expr.to_string().len() as u64,
    };
    COLUMN_BYTES + NAME_COPIES * column.name.len() as u64 + default
}

fn index_bytes(index: &IndexDefinition) -> u64 {
    let attributes = size_of_val(&*index.attributes) as u64;
    INDEX_BYTES + NAME_COPIES * (index.name.len() as u64 + attributes)
}

#[cfg(test)]
mod tests {
    use eris_storage::{AttributeId, IndexId, IndexKind};

    use super::*;
    use crate::types::SqlType;

    fn column(name: &str, default: ColumnDefault) -> TableColumn {
        TableColumn { name: name.to_owned(), sql_type: SqlType::Text, not_null: false, default }
    }

    #[test]
    fn columns_names_defaults_partitions_and_indexes_count() {
        let one = Partitioning::Size { partitions: 1 };
        let plain = [column("a", ColumnDefault::Value(Value::Null))];
        let least = bytes_of(&plain, &[], &one);
        assert_eq!(least, TABLE_BYTES + PARTITION_BYTES + COLUMN_BYTES + NAME_COPIES);
        let named = [column(&"a".repeat(63), ColumnDefault::Value(Value::Null))];
        assert_eq!(bytes_of(&named, &[], &one), least + 62 * NAME_COPIES);
        let long = [column("a", ColumnDefault::Value(Value::Text("x".repeat(1000).into())))];
        assert_eq!(bytes_of(&long, &[], &one), least + 1000);
        let cut = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions: 64 };
        assert_eq!(bytes_of(&plain, &[], &cut), least + 63 * PARTITION_BYTES);
        let index = IndexDefinition {
            id: IndexId(0),
            name: "i".into(),
            attributes: Box::new([AttributeId(0)]),
            unique: false,
            primary: false,
            kind: IndexKind::Ordered,
        };
        assert!(bytes_of(&plain, &[index], &one) > least + INDEX_BYTES);
    }
}
