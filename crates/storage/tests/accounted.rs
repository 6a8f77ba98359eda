//! What a store of wide rows holds is accounted for, as the allocator counts it. In a process of its own: it is the
//! process's memory that is looked at.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use eris_platform::allocator::heap_bytes;
use eris_platform::{CountingAllocator, MemoryPool};
use eris_storage::{
    Attribute, Batch, ContainerId, DataType, Horizon, Layout, Outcome, Outcomes, Schema, SchemaVersion, Snapshot,
    StatementNumber, Store, StoreOptions, Timestamp, TransactionId, Value,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// All transactions are committed.
struct Committed;

impl Outcomes for Committed {
    fn outcome(&self, _transaction: TransactionId, _statement: StatementNumber) -> Outcome {
        Outcome::Committed(Timestamp(5))
    }
}

fn heap() -> i64 {
    heap_bytes().expect("the allocator counts") as i64
}

/// What `columns` columns of a type, most of them null, take in `rows` rows inserted one by one: what is accounted for,
/// and what the allocator gave.
fn taken(columns: usize, data_type: DataType, rows: usize, layout: Layout) -> (i64, i64) {
    let attribute = |at| Attribute { name: format!("c{at}").into(), data_type, nullable: at > 0 };
    let schema = Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: (0..columns).map(attribute).collect(),
        indexes: Box::default(),
        layout,
        physical: None,
        segment_rows: 65_536,
    };
    let memory = MemoryPool::new(256 << 20);
    let schema = Arc::new(schema);
    let before = heap();
    let mut store = Store::new(StoreOptions::new(Arc::clone(&schema), memory.of_store()));
    let types = schema.data_types();
    let value = |at: usize, row: usize| match (at % 800, data_type) {
        (0, DataType::Text) => Value::Text(format!("row {row}").into()),
        (0, _) => Value::Int32(row as i32),
        _ => Value::Null,
    };
    for row in 0..rows {
        let values: Vec<Vec<Value>> = vec![(0..columns).map(|at| value(at, row)).collect()];
        let (transaction, statement) = (TransactionId(row as u64 + 1), StatementNumber(1));
        let snapshot = Snapshot { visible: Timestamp(100), transaction, statement, outcomes: &Committed };
        store.insert(&snapshot, &Batch::from_rows(&types, &values)).expect("there is room");
        if row % 64 == 63 {
            while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &Committed }, 4_096).more {}
        }
    }
    (memory.used() as i64, heap() - before)
}

#[test]
fn wide_rows_are_accounted_for() {
    for (columns, rows) in [(3, 5_000), (100, 5_000), (1_600, 2_000)] {
        for data_type in [DataType::Text, DataType::Int32] {
            let (accounted, allocated) = taken(columns, data_type, rows, Layout::Default);
            let (least, most) = (accounted * 4 / 5 - (256 << 10), accounted * 6 / 5 + (256 << 10));
            assert!((least..most).contains(&allocated), "{accounted} bytes accounted for, {allocated} allocated");
        }
    }
}
