//! A partition whose indexes are asked, for the tests of one kind of index each.

use crate::history::model::{Table, View};
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AttributeId, Batch, Comparison, Condition, Horizon, Outcome, Predicate, ReadRequest, Schema, Store, StoreOptions,
    Test, Timestamp, Value,
};
use std::sync::Arc;

pub const KEY: AttributeId = AttributeId(1);
pub const SECOND: AttributeId = AttributeId(7);

/// A store with these rows, committed and maintained until there is nothing to do.
pub fn store_of(schema: Schema, rows: &[Vec<Value>], table: &Table) -> Store {
    let schema = Arc::new(schema);
    let mut store = Store::new(StoreOptions::new(Arc::clone(&schema), MemoryPool::unlimited()));
    table.set(1, Outcome::Committed(Timestamp(5)));
    let view = View { visible: 100, transaction: 1, statement: 1 };
    store.insert(&view.snapshot(table), &Batch::from_rows(&schema.data_types(), rows)).unwrap();
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: table }, 100).more {}
    store
}

pub fn request(conditions: Vec<Condition>) -> ReadRequest {
    ReadRequest { predicate: Predicate::new(conditions), desired: [KEY].into(), order: None }
}

pub fn compare(attribute: AttributeId, comparison: Comparison, value: Value) -> Condition {
    Condition { attribute, test: Test::Compare(comparison, value) }
}

pub fn equal(attribute: AttributeId, value: Value) -> Condition {
    compare(attribute, Comparison::Equal, value)
}

/// The keys of the rows that a request finds, as they come.
pub fn keys(store: &mut Store, table: &Table, request: &ReadRequest) -> Vec<Value> {
    let view = View { visible: 100, transaction: 9, statement: 1 };
    let mut cursor = store.open_cursor(request).unwrap();
    let mut found = Vec::new();
    while let Some(gateway) = store.next_batch(&view.snapshot(table), &mut cursor).unwrap() {
        found.extend((0..gateway.batch.rows).map(|row| gateway.batch.value(row, 0)));
    }
    found
}
