//! The catalog from both sides: what clients see of it, and its rows in the engine.

use std::sync::Arc;

use eris_engine::{ContainerSpec, Engine, Partitioning, Read};
use eris_sql::catalog::CATALOG_CONTAINER;
use eris_sql::{Database, DatabaseOptions, SqlError};
use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, DataType, Layout, Predicate, ReadRequest,
    Schema, SchemaVersion, Test, Value,
};

use super::{Client, Instance};

/// Opens the database of the same engine again.
pub fn reopen(instance: &mut Instance) -> Result<(), SqlError> {
    let engine = instance.database.engine().clone();
    instance.database = Database::new(engine, DatabaseOptions::default())?;
    Ok(())
}

/// What clients can find out about names.
pub const NAMES: [&str; 7] = [
    "SELECT * FROM information_schema.tables ORDER BY table_name",
    "SELECT * FROM information_schema.columns ORDER BY table_name, ordinal_position",
    "SELECT oid, relname, relnamespace, relkind, relhasindex, relnatts FROM pg_class ORDER BY oid",
    "SELECT * FROM pg_attribute ORDER BY attrelid, attnum",
    "SELECT * FROM pg_attrdef ORDER BY adrelid, adnum",
    "SELECT *, pg_get_indexdef(indexrelid) FROM pg_index ORDER BY indexrelid",
    "SELECT *, pg_get_constraintdef(oid) FROM pg_constraint ORDER BY oid",
];

/// Names, rows and plans as text.
pub fn picture(client: &mut Client) -> Vec<String> {
    let mut picture = names(client);
    for table in client.rows("SELECT table_name FROM information_schema.tables ORDER BY 1") {
        let select = format!("SELECT * FROM \"{}\"", table.replace('"', "\"\""));
        let mut rows = client.rows(&select);
        rows.sort();
        picture.push(select.clone());
        picture.extend(rows);
        picture.extend(client.rows(&format!("EXPLAIN {select}")));
    }
    picture
}

/// The part of a picture that no table has to be read for.
pub fn names(client: &mut Client) -> Vec<String> {
    let mut names = Vec::new();
    for query in NAMES {
        names.push(query.to_string());
        names.extend(client.rows(query));
    }
    names
}

/// Runs a task and waits for it.
pub fn on_engine<T: Send + 'static>(engine: &Engine, future: impl Future<Output = T> + Send + 'static) -> T {
    engine.block_on(future).expect("the engine runs")
}

/// The rows of the catalog.
pub fn catalog_rows(engine: &Engine) -> Vec<[String; 3]> {
    let task = engine.clone();
    let batches = on_engine(engine, async move {
        let desired = [0, 1, 2].map(AttributeId).into();
        let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
        task.begin().read(&Read { container: CATALOG_CONTAINER, request }).await.expect("the catalog is read")
    });
    let text = |batch: &Batch, row, column| match batch.value(row, column) {
        Value::Text(text) => text.to_string(),
        other => panic!("{other} is in the catalog"),
    };
    let rows = batches.iter().flat_map(|batch| (0..batch.rows).map(move |row| (batch, row)));
    let mut rows: Vec<_> = rows.map(|(batch, row)| [0, 1, 2].map(|column| text(batch, row, column))).collect();
    rows.sort();
    rows
}

/// Writes a row of the catalog behind SQL's back; without a definition it goes.
pub fn write_row(engine: &Engine, kind: &str, name: &str, definition: Option<&str>) {
    let text = |text: &str| Value::Text(text.into());
    let equal = |attribute, value| Condition { attribute, test: Test::Compare(Comparison::Equal, value) };
    let conditions = [equal(AttributeId(0), text(kind)), equal(AttributeId(1), text(name))];
    let request = ReadRequest { predicate: Predicate::new(conditions), desired: Arc::new([]), order: None };
    let row = definition.map(|definition| vec![text(kind), text(name), text(definition)]);
    let task = engine.clone();
    on_engine(engine, async move {
        let mut transaction = task.begin();
        transaction.delete(&Read { container: CATALOG_CONTAINER, request }, None).await.expect("the row goes");
        transaction.commit().await.expect("nobody else writes");
        if let Some(row) = row {
            let mut transaction = task.begin();
            let batch = Batch::from_rows(&[DataType::Text; 3], &[row]);
            transaction.insert(CATALOG_CONTAINER, batch).await.expect("the row comes");
            transaction.commit().await.expect("nobody else writes");
        }
    });
}

/// What the catalog says of a table.
pub fn definition_of(engine: &Engine, table: &str) -> String {
    let rows = catalog_rows(engine);
    let row = rows.into_iter().find(|[kind, name, _]| kind == "table" && name == table);
    let [_, _, definition] = row.unwrap_or_else(|| panic!("{table} has no row"));
    definition
}

/// The container of a table.
pub fn container_of(instance: &Instance, table: &str) -> ContainerId {
    instance.database.catalog().current().find(table).expect("the table is there").container()
}

/// A container as tasks make them, without SQL.
pub fn task_container(id: ContainerId) -> ContainerSpec {
    let attribute = Attribute { name: "a".into(), data_type: DataType::Int64, nullable: false };
    let schema = Schema {
        container: id,
        version: SchemaVersion(1),
        attributes: [attribute].into(),
        indexes: [].into(),
        layout: Layout::Default,
        physical: None,
        segment_rows: 1 << 10,
    };
    ContainerSpec { schema: Arc::new(schema), partitioning: Partitioning::Size { partitions: 1 } }
}
