//! Hash indexes in a partition: what the micro-QEP compiler uses them for, and what works without an ordered index.

use crate::history::generate;
use crate::history::model::{Table, View};
use crate::index_accesses::{KEY, SECOND, compare, equal, keys, request, store_of};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AttributeId, Batch, Comparison, Condition, Horizon, IndexId, IndexKind, IndexOrder, Layout, Outcome, ReadRequest,
    Schema, SplitBoundary, SplitStep, StorageError, Store, StoreOptions, Test, Timestamp, Value, key_of_row,
};
use std::sync::Arc;

/// The primary key and an index on (second, other) are hash indexes, nothing is ordered.
fn schema() -> Schema {
    let mut schema = generate::schema(&mut SeededRandom::new(5), false);
    schema.layout = Layout::Default;
    schema.segment_rows = 16;
    for index in &mut schema.indexes {
        index.kind = IndexKind::Hash;
    }
    schema.indexes[1].attributes = [SECOND, AttributeId(8)].into();
    schema
}

fn row(random: &mut SeededRandom, schema: &Schema, key: i32) -> Vec<Value> {
    let mut row = generate::row(random, schema, i64::from(key));
    (row[1], row[7], row[8]) = (Value::Int32(key), Value::Int16((key % 50) as i16), Value::Int32(key % 7));
    row
}

fn filled(rows: i32, table: &Table) -> Store {
    let schema = schema();
    let mut random = SeededRandom::new(8);
    let rows: Vec<Vec<Value>> = (0..rows).map(|key| row(&mut random, &schema, key)).collect();
    store_of(schema, &rows, table)
}

#[test]
fn serve_equality_on_all_key_attributes_and_nothing_else() {
    let table = Table::default();
    let mut store = filled(1_000, &table);
    let mut first_step = |conditions: Vec<Condition>, expected: usize| {
        let request = request(conditions);
        assert_eq!(keys(&mut store, &table, &request).len(), expected, "{request:?}");
        store.explain(&request).unwrap().steps[0].clone()
    };
    let other = AttributeId(8);
    let list = |values: &[i32]| Test::In(values.iter().copied().map(Value::Int32).collect());
    assert_eq!(first_step(vec![equal(KEY, Value::Int32(7))], 1), "hash index lookup pk(key) where key = 7");
    let step = first_step(vec![Condition { attribute: KEY, test: list(&[3, 900, 3, 2_000]) }], 2);
    assert_eq!(step, "hash index lookup pk(key) where key IN (3, 900, 3, 2000)");
    let step = first_step(vec![equal(SECOND, Value::Int16(5)), equal(other, Value::Int32(6))], 3);
    assert_eq!(step, "hash index lookup by_text(second, other) where second = 5 AND other = 6");
    let in_other = Condition { attribute: other, test: list(&[6, 5, 1]) };
    let step = first_step(vec![equal(SECOND, Value::Int16(5)), in_other], 9);
    assert_eq!(step, "hash index lookup by_text(second, other) where second = 5 AND other IN (6, 5, 1)");
    let scans = [
        (vec![compare(KEY, Comparison::Greater, Value::Int32(990))], 9),
        (vec![equal(SECOND, Value::Int16(5))], 20),
        (vec![equal(SECOND, Value::Int16(5)), compare(other, Comparison::Less, Value::Int32(1))], 3),
        (vec![equal(SECOND, Value::Int16(5)), Condition { attribute: other, test: Test::IsNotNull }], 20),
    ];
    for (conditions, expected) in scans {
        let step = first_step(conditions, expected);
        assert!(step.starts_with("scan encoded"), "{step}");
    }
}

#[test]
fn give_no_order() {
    let table = Table::default();
    let mut store = filled(10, &table);
    let ordered = ReadRequest { order: Some(IndexOrder { index: IndexId(1), descending: false }), ..request(vec![]) };
    let result = store.open_cursor(&ordered);
    assert!(matches!(result, Err(StorageError::InvalidRequest { .. })), "{result:?}");
}

#[test]
fn find_duplicates() {
    let table = Table::default();
    let mut store = filled(1_000, &table);
    let schema = schema();
    table.set(2, Outcome::Active);
    let rows = [row(&mut SeededRandom::new(1), &schema, 400)];
    let view = View { visible: 100, transaction: 2, statement: 1 };
    let error = store.insert(&view.snapshot(&table), &Batch::from_rows(&schema.data_types(), &rows)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "duplicate key value violates unique constraint \"pk\": key (key)=(400) already exists"
    );
}

/// A bulk load asks whether a partition has rows at or above a key; a split, for the key in the middle.
#[test]
fn suffice_for_splits() {
    let table = Table::default();
    let mut source = filled(1_000, &table);
    assert_eq!(source.has_entries_from(&[KEY], &[Value::Int32(999)]), Some(true));
    assert_eq!(source.has_entries_from(&[KEY], &[Value::Int32(1_000)]), Some(false));
    assert_eq!(source.has_entries_from(&[SECOND], &[Value::Int16(50)]), Some(false));
    assert_eq!(source.has_entries_from(&[AttributeId(8)], &[Value::Int32(0)]), None);
    let attributes: Box<[AttributeId]> = [KEY].into();
    let at = source.split_key(&attributes).unwrap();
    let position = Arc::new(|keys: &Batch, row: usize| key_of_row(keys, row, &[0]));
    source.begin_split(SplitBoundary { attributes, position, at }).unwrap();
    let mut target = Store::new(StoreOptions::new(Arc::new(schema()), MemoryPool::unlimited()));
    while matches!(source.split_step(&mut target, 64).unwrap(), SplitStep::More { .. }) {}
    for store in [&mut source, &mut target] {
        while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 100).more {}
        let statistics = store.statistics();
        assert!((400..600).contains(&statistics.rows_live_estimate), "{statistics:?}");
        assert_eq!(statistics.index_entries, 2 * statistics.rows_live_estimate);
    }
    let mut found: Vec<Value> = Vec::new();
    for key in 0..1_000 {
        let request = request(vec![equal(KEY, Value::Int32(key))]);
        found.extend(keys(&mut source, &table, &request));
        found.extend(keys(&mut target, &table, &request));
    }
    assert_eq!(found, (0..1_000).map(Value::Int32).collect::<Vec<_>>());
}

/// One key with many versions: more than a bucket holds.
#[test]
fn read_many_rows_of_one_key_in_batches() {
    let table = Table::default();
    let mut store = filled(0, &table);
    let schema = schema();
    let mut random = SeededRandom::new(2);
    let rows: Vec<Vec<Value>> = (0..9_000)
        .map(|key| {
            let mut row = row(&mut random, &schema, key);
            (row[7], row[8]) = (Value::Int16(1), Value::Int32(1));
            row
        })
        .collect();
    let view = View { visible: 100, transaction: 1, statement: 1 };
    store.insert(&view.snapshot(&table), &Batch::from_rows(&schema.data_types(), &rows)).unwrap();
    let request = request(vec![equal(SECOND, Value::Int16(1)), equal(AttributeId(8), Value::Int32(1))]);
    assert_eq!(keys(&mut store, &table, &request).len(), 9_000);
}
