//! Attributes added to a partition with rows: UNDEFINED until written, NULL for readers.

use crate::history::generate;
use crate::history::model::{Table, View};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AttachCursor, Attribute, AttributeId, Batch, Comparison, Condition, DataType, Horizon, IndexKind, Layout, Outcome,
    PinnedCursor, Predicate, ReadRequest, Schema, SchemaVersion, SealedSegment, StorageError, Store, StoreOptions,
    Test, Timestamp, Value,
};
use std::sync::Arc;

const KEY: AttributeId = AttributeId(1);
const ADDED: AttributeId = AttributeId(9);

fn schema(layout: Layout) -> Schema {
    let mut schema = generate::schema(&mut SeededRandom::new(5), false);
    (schema.layout, schema.segment_rows) = (layout, 16);
    schema.indexes.iter_mut().for_each(|index| index.kind = IndexKind::Ordered);
    schema
}

fn wider(schema: &Schema, nullable: bool) -> Arc<Schema> {
    let mut wider = schema.clone();
    wider.version = SchemaVersion(schema.version.0 + 1);
    let added = Attribute { name: "added".into(), data_type: DataType::Text, nullable };
    wider.attributes = wider.attributes.iter().cloned().chain([added]).collect();
    Arc::new(wider)
}

fn rows(schema: &Schema, keys: std::ops::Range<i32>) -> Batch {
    let mut random = SeededRandom::new(keys.start as u64);
    let row = |key: i32| {
        let mut row = generate::row(&mut random, schema, i64::from(key));
        row[1] = Value::Int32(key);
        if let Some(added) = row.get_mut(9) {
            *added = Value::Text(format!("added {key}").into());
        }
        row
    };
    Batch::from_rows(&schema.data_types(), &keys.map(row).collect::<Vec<_>>())
}

fn view(transaction: u64) -> View {
    View { visible: 100, transaction, statement: 1 }
}

fn request(conditions: Vec<Condition>, desired: &[AttributeId]) -> ReadRequest {
    ReadRequest { predicate: Predicate::new(conditions), desired: desired.into(), order: None }
}

fn read(store: &mut Store, table: &Table, request: &ReadRequest) -> Vec<(Vec<Value>, bool)> {
    let mut cursor = store.open_cursor(request).unwrap();
    let mut found = Vec::new();
    while let Some(gateway) = store.next_batch(&view(99).snapshot(table), &mut cursor).unwrap() {
        for (row, address) in gateway.addresses.iter().enumerate() {
            found.push((gateway.batch.row(row), store.is_undefined(*address, ADDED) == Some(true)));
        }
    }
    found.sort();
    found
}

#[test]
fn added_attributes_are_undefined_until_written_and_read_as_null() {
    for layout in [Layout::Row, Layout::Column, Layout::Default, Layout::Mixed] {
        let old = Arc::new(schema(layout));
        let memory = MemoryPool::unlimited();
        let mut store = Store::new(StoreOptions::new(Arc::clone(&old), Arc::clone(&memory)));
        let table = Table::default();
        let horizon = Horizon { oldest: Timestamp(100), outcomes: &table };
        (1..3).for_each(|transaction| table.set(transaction, Outcome::Committed(Timestamp(transaction))));
        store.insert(&view(1).snapshot(&table), &rows(&old, 0..100)).unwrap();
        while store.maintain(&horizon, 100).more {}
        let pin = store.pin(&view(99).snapshot(&table));
        let all_keys = request(vec![], &[KEY]);
        let mut saved = store.open_cursor(&all_keys).unwrap();

        let new = wider(&old, true);
        let refused = store.set_schema(wider(&old, false));
        assert!(matches!(refused, Err(StorageError::InvalidRequest { .. })), "{refused:?}");
        store.set_schema(Arc::clone(&new)).unwrap();
        let moved = store.next_batch(&view(99).snapshot(&table), &mut saved);
        assert_eq!(moved, Err(StorageError::SchemaMoved));
        store.close_cursor(saved);

        store.insert(&view(2).snapshot(&table), &rows(&new, 100..150)).unwrap();
        let expected = |key: i32| {
            let written = key >= 100;
            let added = if written { Value::Text(format!("added {key}").into()) } else { Value::Null };
            (vec![Value::Int32(key), added], !written)
        };
        let both = request(vec![], &[KEY, ADDED]);
        assert_eq!(read(&mut store, &table, &both), (0..150).map(expected).collect::<Vec<_>>());
        let is = |test: Test| request(vec![Condition { attribute: ADDED, test }], &[KEY, ADDED]);
        let count = |store: &mut Store, test: Test| read(store, &table, &is(test)).len();
        assert_eq!(count(&mut store, Test::IsNull), 100);
        assert_eq!(count(&mut store, Test::IsNotNull), 50);
        assert_eq!(count(&mut store, Test::StartsWith("added 1".into())), 50);
        let less = Test::Compare(Comparison::Less, Value::Text("added 11".into()));
        assert_eq!(count(&mut store, less), 10);
        let same = Test::CompareAttribute(Comparison::Equal, AttributeId(2));
        assert_eq!(count(&mut store, same), 0);

        // A new version of an old row has the attribute.
        let one = request(
            vec![Condition { attribute: KEY, test: Test::Compare(Comparison::Equal, Value::Int32(7)) }],
            &[KEY],
        );
        let mut cursor = store.open_cursor(&one).unwrap();
        let gateway = store.next_batch(&view(3).snapshot(&table), &mut cursor).unwrap().unwrap();
        store.close_cursor(cursor);
        let text = Batch::from_rows(&[DataType::Text], &[vec![Value::Text("written".into())]]);
        table.set(3, Outcome::Active);
        store.update(&view(3).snapshot(&table), &gateway.addresses, &[ADDED], &text).unwrap();
        table.set(3, Outcome::Committed(Timestamp(3)));
        while store.maintain(&horizon, 100).more {}
        let found = read(&mut store, &table, &both);
        assert_eq!(found[7], (vec![Value::Int32(7), Value::Text("written".into())], false));
        let values = |found: Vec<(Vec<Value>, bool)>| found.into_iter().map(|(row, _)| row).collect::<Vec<_>>();
        let mut rest: Vec<Vec<Value>> = (0..150).map(|key| expected(key).0).collect();
        rest[7] = found[7].0.clone();
        assert_eq!(values(found), rest);

        // What was pinned before has the old schema.
        let mut pinned = 0;
        for segment in &pin.segments {
            let mut cursor = PinnedCursor::default();
            while let Some(batch) = segment.scan(&view(99).snapshot(&table), &all_keys, &mut cursor, 100).unwrap() {
                pinned += batch.rows;
            }
        }
        assert!(pinned >= 64, "{layout:?}: {pinned}");
        let late = SealedSegment::build(&old, &rows(&old, 900..910), &memory).unwrap();
        let refused = store.attach(&view(2).snapshot(&table), &late, &mut AttachCursor::default(), 100);
        assert_eq!(refused, Err(StorageError::SchemaMoved));
        drop((pin, store, late));
        assert_eq!(memory.used(), 0);
    }
}
