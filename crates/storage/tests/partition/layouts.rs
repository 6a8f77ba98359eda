//! Physical layouts: several access paths per segment, set by hand, rebuilt while pins, reads and writes go on.

use crate::history::generate;
use crate::history::model::{Table, View};
use eris_platform::memory::MemoryPool;
use eris_platform::{SeededRandom, test_load};
use eris_storage::{
    AttachCursor, AttributeId, Batch, COLUMN, COMPOSITE, Comparison, Condition, ENCODED, Horizon, IndexKind, Layout,
    LayoutMember, Outcome, PhysicalLayout, PinnedCursor, PinnedPartition, Predicate, Progress, ROW_SPARSE, ROW_STATIC,
    ReadRequest, RowAddress, Schema, SealedSegment, SegmentLayouts, SplitBoundary, SplitStep, StorageError, Store,
    StoreOptions, Test, Timestamp, Value, key_of_row,
};
use std::sync::Arc;

fn schema(seed: u64) -> Schema {
    let mut schema = generate::schema(&mut SeededRandom::new(seed), true);
    (schema.layout, schema.physical, schema.segment_rows) = (Layout::Default, None, 32);
    schema.indexes.iter_mut().for_each(|index| index.kind = IndexKind::Ordered);
    schema
}

fn store(schema: &Schema, memory: &Arc<MemoryPool>) -> Store {
    let schema = Arc::new(schema.clone());
    Store::new(StoreOptions::new(schema, Arc::clone(memory)))
}

fn view(transaction: u64) -> View {
    View { visible: 100, transaction, statement: 1 }
}

/// A table in which transaction 1 has committed long ago.
fn committed() -> Table {
    let table = Table::default();
    table.set(1, Outcome::Committed(Timestamp(5)));
    table.set(2, Outcome::Active);
    table
}

fn rows(random: &mut SeededRandom, schema: &Schema, keys: std::ops::Range<i32>) -> Batch {
    let row = |key| {
        let mut row = generate::row(random, schema, i64::from(key));
        (row[1], row[7]) = (Value::Int32(key), Value::Null);
        row
    };
    let rows: Vec<Vec<Value>> = keys.map(row).collect();
    Batch::from_rows(&schema.data_types(), &rows)
}

fn layout(members: &[(&str, &[u16])]) -> PhysicalLayout {
    let member = |(module, ids): &(&str, &[u16])| LayoutMember {
        module: (*module).into(),
        attributes: ids.iter().map(|id| AttributeId(*id)).collect(),
    };
    PhysicalLayout::new(members.iter().map(member).collect::<Vec<_>>())
}

/// Key and amount in columns, the rest in rows, the key in both; sparse text by handles.
fn divided() -> PhysicalLayout {
    layout(&[(COLUMN, &[1, 3]), (ROW_STATIC, &[0, 1, 4, 5, 6, 8]), (ROW_SPARSE, &[2, 7])])
}

fn maintain(store: &mut Store, table: &Table) {
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: table }, 50).more {}
}

fn read(store: &mut Store, table: &Table, request: &ReadRequest) -> Vec<(RowAddress, Vec<Value>)> {
    let view = view(2);
    let mut cursor = store.open_cursor(request).unwrap();
    let mut found = Vec::new();
    while let Some(gateway) = store.next_batch(&view.snapshot(table), &mut cursor).unwrap() {
        let rows = (0..gateway.batch.rows).map(|row| gateway.batch.row(row));
        found.extend(gateway.addresses.iter().copied().zip(rows));
    }
    store.close_cursor(cursor);
    found
}

fn everything(schema: &Schema) -> ReadRequest {
    let desired = (0..schema.attributes.len() as u16).map(AttributeId).collect();
    ReadRequest { predicate: Predicate::all(), desired, order: None }
}

fn read_pin(pin: &PinnedPartition, request: &ReadRequest) -> Vec<Vec<Value>> {
    let mut found = Vec::new();
    for segment in &pin.segments {
        let mut cursor = PinnedCursor::default();
        while let Some(batch) = segment.scan(&view(2).snapshot(&Table::default()), request, &mut cursor, 7).unwrap() {
            found.extend((0..batch.rows).map(|row| batch.row(row)));
        }
    }
    found
}

#[test]
fn several_paths_read_as_one() {
    let mut composites = 0;
    for seed in 0..test_load(150) {
        let mut random = SeededRandom::new(seed);
        let memory = MemoryPool::unlimited();
        let plain = Schema { layout: Layout::Row, segment_rows: random.between(3, 3_000) as u32, ..schema(seed) };
        let layouts = generate::layouts(&mut random, &plain.attributes);
        let divided = Schema { physical: Some(Arc::new(layouts)), ..plain.clone() };
        let (mut one, mut several) = (store(&plain, &memory), store(&divided, &memory));
        let table = committed();
        let mut next = 0;
        for round in 0..4 {
            let count = random.between(1, 900) as i32;
            let batch = rows(&mut random, &plain, next..next + count);
            next += count;
            for store in [&mut one, &mut several] {
                store.insert(&view(1).snapshot(&table), &batch).unwrap();
                if round == 1 {
                    maintain(store, &table);
                }
            }
            for _ in 0..8 {
                let request = generate::request(&mut random, &plain);
                let expected = read(&mut one, &table, &request);
                assert_eq!(read(&mut several, &table, &request), expected, "seed {seed} {request:?}");
                if request.order.is_none() {
                    let pins = [&mut one, &mut several].map(|store| store.pin(&view(2).snapshot(&table)));
                    let [expected, found] = pins.map(|pin| read_pin(&pin, &request));
                    assert_eq!(found, expected, "seed {seed} {request:?}");
                }
            }
        }
        composites += several.statistics().composite_segments;
        drop((one, several));
        assert_eq!(memory.used(), 0, "seed {seed}: {:?}", memory.by_consumer());
    }
    assert!(composites > 0);
}

#[test]
fn a_pin_taken_before_a_rebuild_reads_the_same_after_it() {
    let schema = schema(3);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = committed();
    let batch = rows(&mut SeededRandom::new(3), &schema, 0..320);
    store.insert(&view(1).snapshot(&table), &batch).unwrap();
    maintain(&mut store, &table);
    let request = everything(&schema);
    let before = read(&mut store, &table, &request);
    let pin = store.pin(&view(2).snapshot(&table));
    let pinned = read_pin(&pin, &request);
    assert_eq!((before.len(), pinned.len()), (320, 320));
    let bytes = memory.used();
    store.set_layout(layout(&[(ROW_STATIC, &[0, 1, 2, 3, 4, 5, 6, 7, 8])]), divided()).unwrap();
    maintain(&mut store, &table);
    assert_eq!(store.statistics().counters.rebuilt, 10);
    assert!(store.segments().iter().all(|segment| segment.layout == divided() && segment.module == COMPOSITE));
    assert!(memory.used() > bytes, "the pin keeps the old segments beside the new ones");
    assert_eq!(read(&mut store, &table, &request), before, "addresses, order and values are the same");
    assert_eq!(read_pin(&pin, &request), pinned);
    let zones = |pin: &PinnedPartition| {
        let bounds = |id| pin.segments[0].segment().bounds(AttributeId(id)).map(|(l, h)| (l.clone(), h.clone()));
        (0..9).map(bounds).collect::<Vec<_>>()
    };
    assert_eq!(zones(&store.pin(&view(2).snapshot(&table))), zones(&pin), "zones are kept");
    drop(store);
    assert_eq!(read_pin(&pin, &request), pinned);
    drop(pin);
    assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
}

#[test]
fn a_rebuild_goes_on_beside_writes_and_cursors() {
    let schema = schema(4);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = committed();
    let mut random = SeededRandom::new(4);
    store.insert(&view(1).snapshot(&table), &rows(&mut random, &schema, 0..330)).unwrap();
    maintain(&mut store, &table);
    let request = everything(&schema);
    let before = read(&mut store, &table, &request);
    let mut cursor = store.open_cursor(&request).unwrap();
    store.set_layout(divided(), divided()).unwrap();
    let horizon = Horizon { oldest: Timestamp(100), outcomes: &table };
    let (mut calls, mut mixed, mut key) = (0, false, 1_000);
    let mut streamed = 0;
    while store.maintain(&horizon, 3).more {
        calls += 1;
        // The tail is being rebuilt, too, and grows meanwhile; the transaction is undecided, so nobody sees these.
        store.insert(&view(2).snapshot(&table), &rows(&mut random, &schema, key..key + 1)).unwrap();
        key += 1;
        let layouts: Vec<bool> = store.segments().iter().map(|segment| segment.layout == divided()).collect();
        mixed |= layouts.contains(&true) && layouts.contains(&false);
        if calls % 10 == 0
            && let Some(gateway) = store.next_batch(&view(2).snapshot(&table), &mut cursor).unwrap()
        {
            streamed += gateway.batch.rows;
        }
    }
    while let Some(gateway) = store.next_batch(&view(2).snapshot(&table), &mut cursor).unwrap() {
        streamed += gateway.batch.rows;
    }
    drop(cursor);
    assert_eq!(streamed, before.len(), "a saved cursor reads on");
    assert!(calls >= 330 / 3, "{calls} calls for 330 rows, three rows each");
    assert!(mixed, "segments of both layouts were side by side");
    let sealed_and_tail = store.segments().iter().all(|segment| segment.layout == divided());
    assert!(sealed_and_tail, "{:?}", store.segments());
    assert_eq!(read(&mut store, &table, &request), before);
}

#[test]
fn a_rebuild_without_memory_leaves_the_old_layout() {
    let schema = schema(5);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = committed();
    store.insert(&view(1).snapshot(&table), &rows(&mut SeededRandom::new(5), &schema, 0..320)).unwrap();
    maintain(&mut store, &table);
    let request = everything(&schema);
    let before = read(&mut store, &table, &request);
    let used = memory.used();
    memory.set_limit(used + 100);
    store.set_layout(divided(), divided()).unwrap();
    for _ in 0..5 {
        maintain(&mut store, &table);
    }
    let statistics = store.statistics();
    assert_eq!((statistics.counters.rebuilt, statistics.composite_segments), (0, 0));
    assert!(statistics.counters.maintenance_out_of_memory >= 5);
    assert_eq!(memory.used(), used, "what was half built is gone");
    assert_eq!(read(&mut store, &table, &request), before);
    memory.set_limit(u64::MAX);
    maintain(&mut store, &table);
    assert_eq!(store.statistics().composite_segments, 10);
    assert_eq!(read(&mut store, &table, &request), before);
}

#[test]
fn a_composite_without_memory_stays_whole() {
    // Several paths, and a path with runs of rows of its own before all others.
    let sparse_first = layout(&[(ROW_SPARSE, &[2, 7]), (COLUMN, &[0, 1, 3, 4, 5, 6, 8])]);
    for (layout, segment_rows) in [(divided(), 500), (sparse_first, 40)] {
        let layouts = SegmentLayouts { open: layout.clone(), sealed: layout };
        let schema = Schema { physical: Some(Arc::new(layouts)), segment_rows, ..schema(6) };
        let refused: usize = (1_000..150_000).step_by(3_571).map(|limit| fill_up(&schema, limit)).sum();
        assert!(refused > 0);
    }
}

/// Inserts until memory and beyond, checks that what went in is there and nothing else; gives the refused statements.
fn fill_up(schema: &Schema, limit: u64) -> usize {
    let memory = MemoryPool::new(limit);
    let mut store = store(schema, &memory);
    let table = Table::default();
    let mut random = SeededRandom::new(limit);
    let mut kept: Vec<i64> = Vec::new();
    let mut refused = 0;
    for statement in 0..40 {
        let transaction = 10 + statement;
        let batch = rows(&mut random, schema, statement as i32 * 100..statement as i32 * 100 + 20);
        table.set(transaction, Outcome::Active);
        match store.insert(&view(transaction).snapshot(&table), &batch) {
            Ok(_) => {
                table.set(transaction, Outcome::Committed(Timestamp(50)));
                kept.extend((0..20).map(|n| statement as i64 * 100 + n));
            }
            Err(StorageError::Memory(_)) => {
                refused += 1;
                table.set(transaction, Outcome::Aborted);
            }
            Err(error) => panic!("{error}"),
        }
    }
    memory.set_limit(u64::MAX);
    table.set(2, Outcome::Active);
    maintain(&mut store, &table);
    let serial = |(_, row): &(RowAddress, Vec<Value>)| match row[0] {
        Value::Int64(serial) => serial,
        ref other => panic!("{other:?}"),
    };
    let mut serials: Vec<i64> = read(&mut store, &table, &everything(schema)).iter().map(serial).collect();
    serials.sort_unstable();
    assert_eq!(serials, kept, "limit {limit}");
    drop(store);
    assert_eq!(memory.used(), 0, "limit {limit}: {:?}", memory.by_consumer());
    refused
}

/// The first insert that finds no memory leaves rows without a handle in the sparse path.
#[test]
fn a_sparse_path_without_memory_takes_no_more() {
    let layout = layout(&[(ROW_SPARSE, &[2, 7]), (COLUMN, &[0, 1, 3, 4, 5, 6, 8])]);
    let layouts = SegmentLayouts { open: layout.clone(), sealed: layout };
    let schema = Schema { physical: Some(Arc::new(layouts)), segment_rows: 16, ..schema(6) };
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = committed();
    let mut random = SeededRandom::new(6);
    let mut batch = |long: bool, keys: std::ops::Range<i32>| {
        let mut values: Vec<Vec<Value>> = keys.map(|key| rows(&mut random, &schema, key..key + 1).row(0)).collect();
        for (position, row) in values.iter_mut().enumerate() {
            let text = if long && position == 2 { "x".repeat(1 << 20) } else { "short".to_owned() };
            row[2] = if position == 1 { Value::Null } else { Value::Text(text.into()) };
        }
        Batch::from_rows(&schema.data_types(), &values)
    };
    store.insert(&view(1).snapshot(&table), &batch(false, 0..3)).unwrap();
    memory.set_limit(memory.used() + (1 << 18));
    for key in 1..30 {
        // The first row goes in, the second is empty, the third does not fit.
        let result = store.insert(&view(2).snapshot(&table), &batch(true, key * 10..key * 10 + 3));
        assert!(matches!(result, Err(StorageError::Memory(_))), "{result:?}");
    }
    assert!(store.segments().len() > 1, "what took a part of a statement takes no more");
    assert_eq!(read(&mut store, &table, &everything(&schema)).len(), 3);
}

#[test]
fn an_attached_segment_gets_the_layout_of_its_partition() {
    let schema = schema(12);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = committed();
    store.set_layout(divided(), divided()).unwrap();
    let batch = rows(&mut SeededRandom::new(12), &schema, 0..50);
    let segment = SealedSegment::build(&schema, &batch, &memory).unwrap();
    let encoded: Vec<AttributeId> = segment.encodings().into_iter().map(|(attribute, _, _)| attribute).collect();
    assert_eq!(encoded, (0..schema.attributes.len() as u16).map(AttributeId).collect::<Vec<_>>());
    assert_eq!(segment.encodings().iter().map(|(_, _, bytes)| bytes).sum::<u64>(), segment.bytes());
    let mut cursor = AttachCursor::default();
    while store.attach(&view(2).snapshot(&table), &segment, &mut cursor, 20).unwrap() == Progress::More {
        maintain(&mut store, &table);
    }
    maintain(&mut store, &table);
    assert_eq!(store.segments()[0].module, ENCODED, "not before it is decided");
    table.set(2, Outcome::Committed(Timestamp(90)));
    maintain(&mut store, &table);
    assert_eq!(store.segments()[0].layout, divided());
    table.set(3, Outcome::Active);
    let mut cursor = store.open_cursor(&everything(&schema)).unwrap();
    let gateway = store.next_batch(&view(3).snapshot(&table), &mut cursor).unwrap().unwrap();
    assert_eq!(gateway.batch, batch);
}

#[test]
fn a_layout_that_does_not_fit_is_an_error_and_changes_nothing() {
    let schema = schema(7);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let wrong = layout(&[(COLUMN, &[0, 1])]);
    assert!(matches!(store.set_layout(divided(), wrong.clone()), Err(StorageError::Layout { .. })));
    assert!(store.layouts().is_none());
    let physical = Some(Arc::new(SegmentLayouts { open: wrong.clone(), sealed: wrong }));
    let schema = Schema { physical, ..schema };
    let batch = rows(&mut SeededRandom::new(7), &schema, 0..3);
    let built = SealedSegment::build(&schema, &batch, &memory);
    assert!(matches!(built, Err(StorageError::Layout { .. })));
}

#[test]
fn rows_that_hold_nothing_cost_a_handle() {
    let schema = schema(8);
    let memory = MemoryPool::unlimited();
    let sizes = [ROW_STATIC, ROW_SPARSE].map(|module| {
        let layout = layout(&[(COLUMN, &[0, 1, 3, 4, 5, 6, 8]), (module, &[2, 7])]);
        let layouts = SegmentLayouts { open: layout.clone(), sealed: layout };
        let schema = Schema { physical: Some(Arc::new(layouts)), segment_rows: 32_768, ..schema.clone() };
        let mut random = SeededRandom::new(8);
        let values: Vec<Vec<Value>> = (0..32_768)
            .map(|key| {
                let mut row = generate::row(&mut random, &schema, key);
                (row[1], row[7]) = (Value::Int32(key as i32), Value::Null);
                row[2] = if key % 100 == 0 { Value::Text("a telephone number".into()) } else { Value::Null };
                row
            })
            .collect();
        let batch = Batch::from_rows(&schema.data_types(), &values);
        let mut store = store(&schema, &memory);
        let table = committed();
        store.insert(&view(1).snapshot(&table), &batch).unwrap();
        let found = read(&mut store, &table, &everything(&schema));
        assert!(found.iter().map(|(_, row)| row).eq(&values));
        store.segments()[0].bytes
    });
    assert!(sizes[1] + 32_768 * 10 < sizes[0], "{sizes:?}: 19 bytes a row become 4");
}

#[test]
fn a_sibling_takes_the_layouts_over() {
    let schema = schema(9);
    let memory = MemoryPool::unlimited();
    let mut source = store(&schema, &memory);
    let table = committed();
    source.insert(&view(1).snapshot(&table), &rows(&mut SeededRandom::new(9), &schema, 0..200)).unwrap();
    source.set_layout(divided(), divided()).unwrap();
    let at = source.split_key(&[AttributeId(1)]).unwrap();
    let position = Arc::new(|keys: &Batch, row: usize| key_of_row(keys, row, &[0]));
    source.begin_split(SplitBoundary { attributes: [AttributeId(1)].into(), position, at }).unwrap();
    let mut target = store(&schema, &memory);
    while let SplitStep::More { .. } = source.split_step(&mut target, 30).unwrap() {}
    assert_eq!(target.layouts(), source.layouts());
    maintain(&mut target, &table);
    assert!(target.segments().iter().all(|segment| segment.layout == divided()));
}

#[test]
fn layouts_are_told_in_words() {
    let schema = schema(10);
    assert_eq!(
        divided().describe(&schema),
        "column [key, amount] + row static [serial, key, big, ratio, flag, other] + row sparse [text, second]"
    );
}

#[test]
fn explain_names_the_paths_that_answer() {
    let schema = schema(11);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = committed();
    store.insert(&view(1).snapshot(&table), &rows(&mut SeededRandom::new(11), &schema, 0..640)).unwrap();
    store.set_layout(divided(), divided()).unwrap();
    maintain(&mut store, &table);
    let compare =
        |id, comparison, value| Condition { attribute: AttributeId(id), test: Test::Compare(comparison, value) };
    let flag = compare(6, Comparison::Equal, Value::Boolean(true));
    let explain = |conditions: Vec<Condition>| {
        let desired = [AttributeId(1), AttributeId(2)].into();
        let request = ReadRequest { predicate: Predicate::new(conditions), desired, order: None };
        store.explain(&request).unwrap().to_string()
    };
    assert_eq!(
        explain(vec![flag.clone(), compare(1, Comparison::Equal, Value::Int32(7))]),
        "1. ordered index lookup pk(key) where key = 7\n\
         2. versions visible to the snapshot\n\
         3. filter row static where flag = true\n\
         4. link row sparse, row static [key, text]",
        "one row: the key beside the other attributes"
    );
    assert_eq!(
        explain(vec![compare(1, Comparison::Greater, Value::Int32(7))]),
        "1. scan column where key > 7\n\
         2. versions visible to the snapshot\n\
         3. link column, row sparse [key, text]",
        "many rows: the key from its column"
    );
    assert_eq!(
        explain(vec![compare(1, Comparison::Greater, Value::Int32(7)), flag.clone()]),
        "1. scan column, row static where key > 7 AND flag = true\n\
         2. versions visible to the snapshot\n\
         3. link column, row sparse [key, text]",
        "the first condition is scanned where it lies densely, what is left is tested elsewhere"
    );
    assert_eq!(
        explain(vec![flag, compare(1, Comparison::Greater, Value::Int32(7))]),
        "1. scan row static where flag = true AND key > 7\n\
         2. versions visible to the snapshot\n\
         3. link column, row sparse [key, text]",
        "one path tests both"
    );
}
