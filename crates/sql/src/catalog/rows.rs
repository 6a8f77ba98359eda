//! The rows in which the catalog is kept: a container like any other, so that names are logged and recovered as data
//! are.
//!
//! ```text
//!   kind        name            definition
//!   catalog     format          {"format":1}            what the other rows look like
//!   container   17              {}                      SQL made container 17, see [`super::containers`]
//!   table       orders          {"format":1, ...}       see [`super::stored`]
//! ```
//! The container has no name: statements cannot reach it, only this module does. It is the engine's system container,
//! whose memory counts and is not refused: to drop a table is the way out of a full database.

use std::sync::Arc;

use eris_engine::{
    Change, ContainerSpec, Engine, EngineError, Partitioning, Read, RowChange, SYSTEM_CONTAINER, Transaction,
};
use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, DataType, IndexDefinition, IndexId, IndexKind,
    Layout, Predicate, ReadRequest, SEGMENT_ROWS_DEFAULT, Schema, SchemaVersion, Test, Value,
};

use crate::errors::{SqlError, SqlState};
use crate::plan::engine_error;

/// The catalog's container: its id is fixed, so that it is found again.
pub const CATALOG_CONTAINER: ContainerId = SYSTEM_CONTAINER;

/// The kind of the row that says what the others look like.
pub(super) const CATALOG: &str = "catalog";
/// The kind of the rows that name containers which SQL made.
pub(super) const CONTAINER: &str = "container";
/// The kind of the rows of tables.
pub(super) const TABLE: &str = "table";

const KIND: AttributeId = AttributeId(0);
const NAME: AttributeId = AttributeId(1);
const DEFINITION: AttributeId = AttributeId(2);
const NAMES: [&str; 3] = ["kind", "name", "definition"];

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatalogRow {
    pub kind: Box<str>,
    pub name: Box<str>,
    pub definition: Box<str>,
}

impl CatalogRow {
    pub fn new(kind: &str, name: impl Into<Box<str>>, definition: impl Into<Box<str>>) -> Self {
        Self { kind: kind.into(), name: name.into(), definition: definition.into() }
    }
}

fn spec() -> ContainerSpec {
    let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Text, nullable: false };
    let key: Box<[AttributeId]> = Box::new([KIND, NAME]);
    let primary = IndexDefinition {
        id: IndexId(0),
        name: "catalog_pkey".into(),
        attributes: key.clone(),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    };
    let schema = Schema {
        container: CATALOG_CONTAINER,
        version: SchemaVersion(1),
        attributes: NAMES.map(attribute).into(),
        indexes: Box::new([primary]),
        layout: Layout::Default,
        physical: None,
        segment_rows: SEGMENT_ROWS_DEFAULT,
    };
    ContainerSpec { schema: Arc::new(schema), partitioning: Partitioning::Range(key) }
}

/// Makes the container, unless it is there.
pub(super) fn open_container(engine: &Engine) -> Result<(), SqlError> {
    let Some(container) = engine.container(CATALOG_CONTAINER) else {
        return engine.create_container(spec()).map(drop).map_err(|error| engine_error(&error, None));
    };
    let (found, expected) = (container.schema(), spec().schema);
    if found.attributes == expected.attributes && found.indexes == expected.indexes {
        return Ok(());
    }
    let id = CATALOG_CONTAINER.0;
    Err(SqlError::new(SqlState::CORRUPTED, format!("container {id} is not the catalog of a database"))
        .detail("It has other attributes or indexes.")
        .hint("Leave this container to the database: Engine::next_container_id gives other ids."))
}

fn equal(attribute: AttributeId, text: &str) -> Condition {
    Condition { attribute, test: Test::Compare(Comparison::Equal, Value::Text(text.into())) }
}

fn read_of(kind: &str, name: &str) -> Read {
    let predicate = Predicate::new([equal(KIND, kind), equal(NAME, name)]);
    let request = ReadRequest { predicate, desired: Arc::new([NAME]), order: None };
    Read { container: CATALOG_CONTAINER, request }
}

/// All rows.
pub(super) async fn read_all(transaction: &mut Transaction) -> Result<Vec<CatalogRow>, EngineError> {
    let desired = Arc::new([KIND, NAME, DEFINITION]);
    let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
    let batches = transaction.scan(Read { container: CATALOG_CONTAINER, request }, None)?.collect().await?;
    let mut rows = Vec::new();
    // A batch goes when its rows are copied.
    for batch in batches {
        let text = |row, column| match batch.value(row, column) {
            Value::Text(text) => text,
            other => unreachable!("the catalog's attributes are text and not nullable, {other} is not"),
        };
        rows.extend((0..batch.rows).map(|row| CatalogRow {
            kind: text(row, 0),
            name: text(row, 1),
            definition: text(row, 2),
        }));
    }
    // Partitions answer in any order.
    rows.sort_by(|left, right| (&left.kind, &left.name).cmp(&(&right.kind, &right.name)));
    Ok(rows)
}

/// Adds a row.
pub(super) async fn insert(transaction: &mut Transaction, row: CatalogRow) -> Result<(), EngineError> {
    let values = vec![Value::Text(row.kind), Value::Text(row.name), Value::Text(row.definition)];
    let batch = Batch::from_rows(&[DataType::Text; 3], &[values]);
    transaction.insert(CATALOG_CONTAINER, batch).await.map(drop)
}

/// Takes a row away; tells whether it was there.
pub(super) async fn delete(transaction: &mut Transaction, kind: &str, name: &str) -> Result<bool, EngineError> {
    Ok(transaction.delete(&read_of(kind, name), None).await? > 0)
}

/// Gives a row another definition; tells whether it was there.
pub(super) async fn update(transaction: &mut Transaction, row: CatalogRow) -> Result<bool, EngineError> {
    let read = read_of(&row.kind, &row.name);
    Ok(transaction.update(&read, Arc::new(Redefine(row.definition))).await? > 0)
}

/// What [`update`] writes.
struct Redefine(Box<str>);

impl RowChange for Redefine {
    fn inputs(&self) -> usize {
        1
    }

    fn attributes(&self) -> &[AttributeId] {
        &[DEFINITION]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows = vec![vec![Value::Text(self.0.clone())]; batch.rows];
        let values = Batch::from_rows(&[DataType::Text], &rows);
        Ok(Change { rows: None, attributes: Box::new([DEFINITION]), values })
    }
}
