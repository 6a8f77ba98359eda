//! Transactions of one statement at a level of isolation: `level_cost committed|repeatable|serializable read|update N`,
//! to be run under callgrind, which counts instructions. One worker is stepped on one thread, so that the number for
//! `2 * N` less that for `N` is what `N` transactions cost, and nothing else.

#![expect(clippy::expect_used, reason = "a program for one measurement fails by panicking")]

use std::sync::Arc;

use eris_engine::{
    Change, ContainerSpec, Engine, EngineError, EngineOptions, IsolationLevel, Partitioning, Read, RowChange,
    Simulation,
};
use eris_storage::{
    Attribute, AttributeId, Batch, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Layout, PackedRows,
    Predicate, ReadRequest, Schema, SchemaVersion, Value,
};

const KEY: AttributeId = AttributeId(0);
const AMOUNT: AttributeId = AttributeId(1);
const ROWS: i64 = 1_000;

struct SetAmount(i64);

impl RowChange for SetAmount {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[AttributeId] {
        &[AMOUNT]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(|_| vec![Value::Int64(self.0)]).collect();
        Ok(Change { rows: None, attributes: Box::new([AMOUNT]), values: Batch::from_rows(&[DataType::Int64], &rows) })
    }
}

fn create(engine: &Engine) -> ContainerId {
    let container = engine.next_container_id();
    let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
    let schema = Arc::new(Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([attribute("key"), attribute("amount")]),
        indexes: Box::new([IndexDefinition {
            id: IndexId(1),
            name: "pkey".into(),
            attributes: Box::new([KEY]),
            unique: true,
            primary: true,
            kind: IndexKind::Ordered,
        }]),
        layout: Layout::Default,
        physical: None,
        segment_rows: 1 << 16,
    });
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    container
}

async fn run(engine: Engine, container: ContainerId, level: IsolationLevel, updates: bool, transactions: i64) {
    let mut filled = engine.begin();
    let rows: Vec<Vec<Value>> = (0..ROWS).map(|key| vec![Value::Int64(key), Value::Int64(0)]).collect();
    let rows = Batch::from_rows(&[DataType::Int64, DataType::Int64], &rows);
    filled.insert(container, rows).await.expect("keys are distinct");
    filled.commit().await.expect("nobody else is here");
    let mut found = PackedRows::default();
    for number in 0..transactions {
        let mut transaction = engine.begin_with(level);
        let predicate = Predicate::equal(KEY, Value::Int64(number * 7 % ROWS));
        let request = ReadRequest { predicate, desired: Arc::new([KEY, AMOUNT]), order: None };
        let read = Read { container, request };
        let rows = if updates {
            transaction.update(&read, Arc::new(SetAmount(number))).await.expect("nobody else is here")
        } else {
            transaction.read_rows(&read, &mut found).await.expect("it is there");
            found.len() as u64
        };
        assert_eq!(rows, 1, "the key is there");
        transaction.commit().await.expect("nobody else is here");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [level, what, transactions] = &arguments[..] else {
        eprintln!("level_cost committed|repeatable|serializable read|update TRANSACTIONS");
        return;
    };
    let level = match level.as_str() {
        "committed" => IsolationLevel::ReadCommitted,
        "repeatable" => IsolationLevel::RepeatableRead,
        _ => IsolationLevel::Serializable,
    };
    let transactions = transactions.parse().expect("a number");
    let mut simulation = Simulation::new(1, EngineOptions::default()).expect("an engine starts");
    let engine = simulation.engine().clone();
    let container = create(&engine);
    simulation.block_on(run(engine, container, level, what == "update", transactions)).expect("it ends");
}
