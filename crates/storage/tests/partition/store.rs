//! What the random histories do not show: plans in words, memory limits, single rules.

use crate::history::generate;
use crate::history::model::{Table, View};
use eris_platform::memory::MemoryPool;
use eris_platform::{Arena, NodeId, SeededRandom};
use eris_storage::{
    AttributeId, Batch, Comparison, Condition, Horizon, IndexId, IndexKind, IndexOrder, Layout, Outcome, Predicate,
    ReadRequest, RowAddress, RowOffset, Schema, SegmentNumber, SplitBoundary, SplitStep, StorageError, Store,
    StoreOptions, Test, Timestamp, Value, key_of_row,
};
use std::sync::Arc;

fn schema(layout: Layout) -> Schema {
    let mut schema = generate::schema(&mut SeededRandom::new(5), true);
    (schema.layout, schema.physical) = (layout, None);
    schema.indexes.iter_mut().for_each(|index| index.kind = IndexKind::Ordered);
    schema.segment_rows = 16;
    schema
}

fn store(schema: &Schema, memory: &Arc<MemoryPool>) -> Store {
    let schema = Arc::new(schema.clone());
    Store::new(StoreOptions::new(schema, Arc::clone(memory)))
}

fn view(transaction: u64) -> View {
    View { visible: 100, transaction, statement: 1 }
}

fn rows(schema: &Schema, keys: std::ops::Range<i32>) -> Batch {
    let mut random = SeededRandom::new(keys.start as u64);
    let rows: Vec<Vec<Value>> = keys
        .map(|key| {
            let mut row = generate::row(&mut random, schema, i64::from(key));
            (row[1], row[7]) = (Value::Int32(key), Value::Null);
            row
        })
        .collect();
    Batch::from_rows(&schema.data_types(), &rows)
}

fn request(conditions: Vec<Condition>, order: Option<IndexOrder>) -> ReadRequest {
    ReadRequest { predicate: Predicate::new(conditions), desired: [AttributeId(1), AttributeId(2)].into(), order }
}

fn compare(attribute: u16, comparison: Comparison, value: Value) -> Condition {
    Condition { attribute: AttributeId(attribute), test: Test::Compare(comparison, value) }
}

#[test]
fn explains_plans_in_words() {
    let schema = schema(Layout::Default);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = Table::default();
    table.set(1, Outcome::Committed(Timestamp(5)));
    store.insert(&view(1).snapshot(&table), &rows(&schema, 0..1_000)).unwrap();
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 100).more {}
    let explain = |request: &ReadRequest| store.explain(request).unwrap().to_string();
    let key = |value| compare(1, Comparison::Equal, Value::Int32(value));
    let flag = compare(6, Comparison::Equal, Value::Boolean(true));
    assert_eq!(
        explain(&request(vec![flag.clone(), key(7)], None)),
        "1. ordered index lookup pk(key) where key = 7\n\
         2. versions visible to the snapshot\n\
         3. filter encoded, row static where flag = true\n\
         4. link encoded, row static [key, text]"
    );
    assert_eq!(
        explain(&request(vec![compare(1, Comparison::Greater, Value::Int32(10))], None)),
        "1. scan encoded, row static where key > 10\n\
         2. versions visible to the snapshot\n\
         3. link encoded, row static [key, text]",
        "a wide range is scanned"
    );
    assert_eq!(
        explain(&request(vec![compare(1, Comparison::Greater, Value::Int32(990))], None)),
        "1. ordered index scan pk(key) where key > 990\n\
         2. versions visible to the snapshot\n\
         3. link encoded, row static [key, text]",
        "a narrow one is looked up"
    );
    let order = Some(IndexOrder { index: IndexId(2), descending: true });
    assert_eq!(
        explain(&request(vec![flag], order)),
        "1. ordered index scan descending by_text(text, key)\n\
         2. versions visible to the snapshot\n\
         3. filter encoded, row static where flag = true\n\
         4. link encoded, row static [key, text]"
    );
}

#[test]
fn plans_are_cached_by_shape() {
    let schema = schema(Layout::Column);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    for key in 0..50 {
        store.open_cursor(&request(vec![compare(1, Comparison::Equal, Value::Int32(key))], None)).unwrap();
        store.open_cursor(&request(vec![compare(1, Comparison::Less, Value::Int32(key))], None)).unwrap();
    }
    let counters = store.statistics().counters;
    assert_eq!((counters.micro_qep_misses, counters.micro_qep_hits), (2, 98));
}

#[test]
fn wrong_requests_are_errors() {
    let schema = schema(Layout::Column);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = Table::default();
    table.set(1, Outcome::Active);
    let wrong = [
        compare(1, Comparison::Equal, Value::Int64(1)),
        compare(3, Comparison::Less, Value::Decimal { unscaled: 1, scale: 3 }),
        compare(99, Comparison::Less, Value::Int32(1)),
        Condition { attribute: AttributeId(1), test: Test::StartsWith("a".into()) },
        Condition { attribute: AttributeId(1), test: Test::CompareAttribute(Comparison::Less, AttributeId(2)) },
    ];
    for condition in wrong {
        let result = store.open_cursor(&request(vec![condition], None));
        assert!(matches!(result, Err(StorageError::InvalidRequest { .. })), "{result:?}");
    }
    let few = Batch::from_rows(&schema.data_types()[..3], &[]);
    let result = store.insert(&view(1).snapshot(&table), &few);
    assert!(matches!(result, Err(StorageError::InvalidRequest { .. })), "{result:?}");
    let mut row = rows(&schema, 0..1).row(0);
    row[1] = Value::Null;
    let result = store.insert(&view(1).snapshot(&table), &Batch::from_rows(&schema.data_types(), &[row]));
    assert!(
        matches!(&result, Err(StorageError::NotNull { attribute: AttributeId(1), name }) if &**name == "key"),
        "{result:?}"
    );
}

#[test]
fn duplicate_keys_name_index_and_key() {
    let schema = schema(Layout::Row);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let table = Table::default();
    table.set(1, Outcome::Active);
    store.insert(&view(1).snapshot(&table), &rows(&schema, 0..10)).unwrap();
    let error = store.insert(&view(1).snapshot(&table), &rows(&schema, 4..5)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "duplicate key value violates unique constraint \"pk\": key (key)=(4) already exists"
    );
    assert!(!error.is_retryable() && StorageError::Conflict { with: None }.is_retryable());
}

/// Rows that a split moved, or that were evacuated behind it, can be sealed before they fill a segment: a pin of an
/// open one copies.
#[test]
fn moved_rows_are_sealed_again() {
    let schema = schema(Layout::Default);
    let memory = MemoryPool::unlimited();
    let (mut source, mut target) = (store(&schema, &memory), store(&schema, &memory));
    let table = Table::default();
    table.set(1, Outcome::Committed(Timestamp(5)));
    source.insert(&view(1).snapshot(&table), &rows(&schema, 0..1_000)).unwrap();
    let horizon = Horizon { oldest: Timestamp(100), outcomes: &table };
    while source.maintain(&horizon, 100).more {}
    let attributes: Box<[AttributeId]> = [AttributeId(1)].into();
    let at = source.split_key(&attributes).unwrap();
    let position = Arc::new(|keys: &Batch, row: usize| key_of_row(keys, row, &[0]));
    source.begin_split(SplitBoundary { attributes, position, at }).unwrap();
    while matches!(source.split_step(&mut target, 64).unwrap(), SplitStep::More { .. }) {}
    let mut sealed = 0;
    for store in [&mut source, &mut target] {
        while store.maintain(&horizon, 100).more {}
        // Closed with many dead rows, a tail is evacuated into the next one.
        let mut closed = 0;
        while store.sealable_tail().is_some() {
            store.close_tail();
            while store.maintain(&horizon, 100).more {}
            closed += 1;
        }
        assert!(closed <= 2 && !store.wants_maintenance());
        let segments = store.segments();
        let open = segments.iter().filter(|segment| !segment.sealed && segment.dead_rows < segment.rows);
        assert_eq!(open.count(), 0, "{segments:?}");
        sealed += store.statistics().rows_live_estimate;
    }
    assert_eq!(sealed, 1_000);
}

#[test]
fn sealed_columns_follow_to_another_home_beside_a_pin() {
    let schema = schema(Layout::Default);
    let memory = MemoryPool::unlimited();
    let mut store = store(&schema, &memory);
    let homes = [NodeId(0), NodeId(1)].map(|node| Arena::new(node, &memory));
    store.set_arena(Some(homes[0].clone()));
    let table = Table::default();
    table.set(1, Outcome::Committed(Timestamp(5)));
    store.insert(&view(1).snapshot(&table), &rows(&schema, 0..1_000)).unwrap();
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 100).more {}
    let taken = homes[0].allocated_bytes();
    assert!(taken > 0, "segments are sealed into the home's memory");
    let read = |store: &mut Store| {
        let mut cursor = store.open_cursor(&request(vec![], None)).unwrap();
        let mut found = Vec::new();
        while let Some(gateway) = store.next_batch(&view(1_000).snapshot(&table), &mut cursor).unwrap() {
            found.extend((0..gateway.batch.rows).map(|row| gateway.batch.row(row)));
        }
        found
    };
    let before = read(&mut store);
    assert_eq!(before.len(), 1_000);
    assert_eq!((store.statistics().counters.relocated, homes[0].allocated_bytes()), (0, taken));

    let pin = store.pin(&view(1_000).snapshot(&table));
    store.set_arena(Some(homes[1].clone()));
    assert!(store.wants_maintenance());
    let mut steps = 0;
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 1).more {
        steps += 1;
        if steps == 3 {
            assert!(read(&mut store) == before, "half-way the rows are the same");
        }
    }
    assert!(!store.wants_maintenance());
    let relocated = store.statistics().counters.relocated;
    assert!(relocated > 10 && steps > relocated, "{relocated} segments in {steps} steps, an attribute each");
    assert_eq!(homes[1].allocated_bytes(), taken);
    assert_eq!(homes[0].allocated_bytes(), taken, "the pin keeps the columns it has");
    drop(pin);
    assert_eq!(homes[0].allocated_bytes(), 0);
    assert!(read(&mut store) == before, "the rows are the same");
    drop(store);
    assert_eq!((homes[1].allocated_bytes(), memory.used()), (0, 0));

    // A new home that has no room for any of them: they stay.
    let mut store = self::store(&schema, &memory);
    store.set_arena(Some(homes[0].clone()));
    store.insert(&view(1).snapshot(&table), &rows(&schema, 0..1_000)).unwrap();
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 100).more {}
    store.set_arena(Some(Arena::new(NodeId(1), &MemoryPool::new(200))));
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 100).more {}
    assert_eq!(homes[0].allocated_bytes(), taken);
    assert!(read(&mut store) == before, "rows are lost");
}

/// Whatever the limit, a refused statement whose transaction aborts leaves nothing behind, and other rows stay.
#[test]
fn survives_running_out_of_memory() {
    for layout in [Layout::Row, Layout::Column, Layout::Default, Layout::Mixed] {
        let mut refused = 0;
        for limit in (20_000..160_000).step_by(4_999) {
            let schema = schema(layout);
            let memory = MemoryPool::new(limit);
            let mut store = store(&schema, &memory);
            let table = Table::default();
            let mut kept = 0;
            for transaction in 1..60 {
                table.set(transaction, Outcome::Active);
                let keys = transaction as i32 * 10..transaction as i32 * 10 + 10;
                let result = store.insert(&view(transaction).snapshot(&table), &rows(&schema, keys));
                match result {
                    Ok(_) => {
                        kept += 10;
                        table.set(transaction, Outcome::Committed(Timestamp(transaction)));
                    }
                    Err(StorageError::Memory(_)) => {
                        refused += 1;
                        table.set(transaction, Outcome::Aborted);
                    }
                    Err(error) => panic!("{error}"),
                }
                assert!(memory.used() <= limit, "{} of {limit}", memory.used());
                store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 7);
            }
            for _ in 0..200 {
                store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 100);
            }
            for index in [None, Some(IndexOrder { index: IndexId(1), descending: false })] {
                let mut cursor = store.open_cursor(&request(vec![], index)).unwrap();
                let mut found = 0;
                while let Some(gateway) = store.next_batch(&view(1_000).snapshot(&table), &mut cursor).unwrap() {
                    found += gateway.batch.rows;
                }
                assert_eq!(found, kept, "{layout:?} {limit}");
            }
            drop(store);
            assert_eq!(memory.used(), 0);
        }
        assert!(refused > 0, "no statement of {layout:?} met the limit");
    }
}

/// What a statement of many rows appended that was rolled back goes without a copy of the rows before it: there may be
/// no memory for one.
#[test]
fn what_was_rolled_back_at_the_end_is_cut_off() {
    for layout in [Layout::Row, Layout::Column, Layout::Default, Layout::Mixed] {
        let mut schema = schema(layout);
        schema.segment_rows = 1_000;
        let memory = MemoryPool::new(1 << 30);
        let mut store = store(&schema, &memory);
        let table = Table::default();
        let horizon = Horizon { oldest: Timestamp(100), outcomes: &table };
        table.set(1, Outcome::Committed(Timestamp(5)));
        store.insert(&view(1).snapshot(&table), &rows(&schema, 0..300)).unwrap();
        while store.maintain(&horizon, 100).more {}
        // Indexes keep their room.
        let rows_bytes = || {
            let rows = memory.by_consumer().into_iter().filter(|(name, _)| !["indexes", "others"].contains(name));
            rows.map(|(_, bytes)| bytes).sum::<u64>()
        };
        let before = rows_bytes();
        table.set(2, Outcome::Active);
        store.insert(&view(2).snapshot(&table), &rows(&schema, 300..900)).unwrap();
        let request = request(vec![], Some(IndexOrder { index: IndexId(1), descending: false }));
        let mut cursor = store.open_cursor(&request).unwrap();
        assert!(store.next_batch(&view(3).snapshot(&table), &mut cursor).unwrap().is_some());
        table.set(2, Outcome::Aborted);
        // Nothing is left of the limit.
        let full = memory.reserve("others");
        while full.grow(1 << 16).is_ok() {}
        while full.grow(1).is_ok() {}
        while store.maintain(&horizon, 100).more {}
        assert_eq!(store.statistics().counters.cut, 0, "a cursor has addresses there");
        while store.next_batch(&view(3).snapshot(&table), &mut cursor).unwrap().is_some() {}
        store.close_cursor(cursor);
        while store.maintain(&horizon, 100).more {}
        let counters = store.statistics().counters;
        assert_eq!((counters.cut, counters.rows_moved), (1, 0), "{layout:?}");
        assert!(rows_bytes() <= before, "{layout:?}: {} bytes, {before} before", rows_bytes());
        drop(full);
        // More rows follow elsewhere, and all are found.
        store.insert(&view(1).snapshot(&table), &rows(&schema, 300..600)).unwrap();
        while store.maintain(&horizon, 100).more {}
        let mut cursor = store.open_cursor(&request).unwrap();
        let mut found = 0;
        while let Some(gateway) = store.next_batch(&view(4).snapshot(&table), &mut cursor).unwrap() {
            found += gateway.batch.rows;
        }
        assert_eq!(found, 600, "{layout:?}");
    }
}

/// A few wide rows that were rolled back hold as much memory as many short ones.
#[test]
fn a_few_wide_rows_that_were_rolled_back_are_cut_off() {
    let mut schema = schema(Layout::Default);
    schema.segment_rows = 1 << 16;
    let memory = MemoryPool::new(64 << 20);
    let mut store = store(&schema, &memory);
    let table = Table::default();
    let horizon = Horizon { oldest: Timestamp(100), outcomes: &table };
    let wide = |keys: std::ops::Range<i32>| {
        let rows = rows(&schema, keys);
        let text = Value::Text("wide".repeat(1_000).into());
        let row = |row| {
            let mut values = rows.row(row);
            values[2] = text.clone();
            values
        };
        Batch::from_rows(&schema.data_types(), &(0..rows.rows).map(row).collect::<Vec<_>>())
    };
    // Indexes keep their room.
    let rows_bytes = || {
        let rows = memory.by_consumer().into_iter().filter(|(name, _)| *name != "indexes");
        rows.map(|(_, bytes)| bytes).sum::<u64>()
    };
    table.set(1, Outcome::Committed(Timestamp(5)));
    store.insert(&view(1).snapshot(&table), &wide(0..10)).unwrap();
    while store.maintain(&horizon, 100).more {}
    let before = rows_bytes();
    table.set(2, Outcome::Active);
    store.insert(&view(2).snapshot(&table), &wide(10..1_000)).unwrap();
    assert!(rows_bytes() > before + 990 * 4_000);
    table.set(2, Outcome::Aborted);
    while store.maintain(&horizon, 100).more {}
    assert_eq!(store.statistics().counters.cut, 1);
    assert!(rows_bytes() < before + 50_000, "{} bytes, {before} before", rows_bytes());
}

/// A row that was rolled back has no page of its own: its open segment stays in use, however small the limit.
#[test]
fn single_rows_that_were_rolled_back_leave_their_segment_open() {
    let mut schema = schema(Layout::Default);
    schema.segment_rows = 1 << 16;
    let memory = MemoryPool::new(16 << 20);
    let mut store = store(&schema, &memory);
    let table = Table::default();
    let horizon = Horizon { oldest: Timestamp(100), outcomes: &table };
    for turn in 0..20 {
        let outcome = if turn % 2 == 0 { Outcome::Aborted } else { Outcome::Committed(Timestamp(5)) };
        table.set(turn + 1, Outcome::Active);
        store.insert(&view(turn + 1).snapshot(&table), &rows(&schema, turn as i32..turn as i32 + 1)).unwrap();
        table.set(turn + 1, outcome);
        while store.maintain(&horizon, 100).more {}
    }
    assert_eq!(store.statistics().counters.cut, 0);
    let segments: Vec<_> = store.segments().into_iter().map(|segment| segment.number).collect();
    assert_eq!(segments, [SegmentNumber(0)]);
}

/// A store of sealed segments of 1,024 rows, some of which were deleted at 60 and not vacated yet; its memory, and what
/// became of its transactions.
fn partly_deleted(count: u32, is_gone: impl Fn(u32) -> bool) -> (Arc<MemoryPool>, Store, Table) {
    let mut schema = schema(Layout::Default);
    schema.segment_rows = 1_024;
    let memory = MemoryPool::new(64 << 20);
    let mut store = store(&schema, &memory.of_store());
    let table = Table::default();
    table.set(1, Outcome::Committed(Timestamp(5)));
    for first in (0..count).step_by(8_192) {
        let keys = first as i32..(first + 8_192) as i32;
        store.insert(&view(1).snapshot(&table), &rows(&schema, keys)).unwrap();
    }
    while store.maintain(&Horizon { oldest: Timestamp(50), outcomes: &table }, 4_096).more {}
    table.set(2, Outcome::Committed(Timestamp(60)));
    let at = |row: u32| RowAddress::new(SegmentNumber(row / 1_024), RowOffset(row % 1_024));
    let gone: Vec<_> = (0..count).filter(|row| is_gone(*row)).map(at).collect();
    store.delete(&View { visible: 55, transaction: 2, statement: 1 }.snapshot(&table), &gone).unwrap();
    (memory, store, table)
}

/// In a process that holds more than is accounted, rows that a DELETE left move together although there is no room.
/// Segments that are being read stay in memory until the reader is done, so their rows wait for that.
#[test]
fn rows_that_somebody_reads_do_not_move_without_room() {
    let (memory, mut store, table) = partly_deleted(8_192, |row| row % 3 > 0);
    let maintain = |store: &mut Store| {
        while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 4_096).more {}
    };
    let (pinned, before) = (store.pin(&view(3).snapshot(&table)), memory.used());
    assert!(pinned.segments.len() >= 8, "all rows are sealed");
    memory.tighten(before / 2, u64::MAX, u64::MAX);
    maintain(&mut store);
    assert_eq!((store.statistics().counters.compacted, memory.moves()), (0, 0), "no segment is left while it is read");
    assert!(memory.used() <= before, "{} bytes are used, {before} were before", memory.used());
    drop(pinned);
    maintain(&mut store);
    assert!(store.statistics().counters.compacted >= 8 && memory.moves() == 1, "{:?}", store.statistics().counters);
    assert!(memory.used() < before, "{} bytes are used, {before} were before", memory.used());
}

/// Rows that move together are sealed as soon as they are a segment: at no time are many of them held plain.
#[test]
fn what_a_delete_left_never_takes_much_more_than_before() {
    let (memory, mut store, table) = partly_deleted(65_536, |row| row % 2 > 0);
    let (before, mut peak) = (memory.used(), 0);
    while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 512).more {
        peak = peak.max(memory.used());
    }
    assert!(store.statistics().counters.compacted >= 64, "{:?}", store.statistics().counters);
    assert!(peak < before * 21 / 20, "up to {peak} bytes are used, {before} were before");
    assert!(memory.used() < before, "{} bytes are used, {before} were before", memory.used());
}
