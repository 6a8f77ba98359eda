//! Maintenance while memory is short: what gives memory back is done, and what could not be done is made up for later.

use crate::history::model::{Table, View};
use eris_platform::memory::MemoryPool;
use eris_storage::{
    Attribute, AttributeId, Batch, ContainerId, DataType, Horizon, IndexDefinition, IndexId, IndexKind, Layout,
    Outcome, PhysicalLayout, Predicate, ROW_STATIC, ReadRequest, RowAddress, RowOffset, Schema, SchemaVersion,
    SegmentNumber, Store, StoreCounters, StoreOptions, Timestamp, Value,
};
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

const KEY: AttributeId = AttributeId(0);

/// With a key of 8 bytes and the view of a short text a row takes 136 bytes in columns that are not encoded.
const DECIMALS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// More than all rows take, and copies of them.
const ENOUGH: u64 = 64 << 20;

fn schema(layout: Layout, segment_rows: u32) -> Schema {
    let attribute = |name: &str, data_type| Attribute { name: name.into(), data_type, nullable: false };
    let decimals = DECIMALS.map(|name| attribute(name, DataType::Decimal { precision: 30, scale: 0 }));
    let others = [attribute("key", DataType::Int64), attribute("text", DataType::Text)];
    let key = IndexDefinition {
        id: IndexId(1),
        name: "pk".into(),
        attributes: [KEY].into(),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    };
    Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: others.into_iter().chain(decimals).collect(),
        indexes: [key].into(),
        layout,
        physical: None,
        segment_rows,
    }
}

fn rows(keys: Range<u32>) -> Batch {
    let row = |key: u32| {
        let text = Value::Text(["rail", "road", "ship"][key as usize % 3].into());
        let decimals = repeat_n(Value::Decimal { unscaled: 7, scale: 0 }, DECIMALS.len());
        [Value::Int64(i64::from(key)), text].into_iter().chain(decimals).collect()
    };
    let rows: Vec<Vec<Value>> = keys.map(row).collect();
    Batch::from_rows(&schema(Layout::Default, 1).data_types(), &rows)
}

/// A store of a database.
struct Fixture {
    memory: Arc<MemoryPool>,
    store: Store,
    table: Table,
}

impl Fixture {
    /// With rows that were committed at 5 and not maintained since.
    fn new(layout: Layout, segment_rows: u32, rows: &Batch) -> Self {
        let memory = MemoryPool::new(ENOUGH);
        let store = Store::new(StoreOptions::new(Arc::new(schema(layout, segment_rows)), memory.of_store()));
        let mut it = Self { memory, store, table: Table::default() };
        it.insert(1, 5, rows);
        it
    }

    fn insert(&mut self, transaction: u64, committed: u64, rows: &Batch) {
        self.table.set(transaction, Outcome::Committed(Timestamp(committed)));
        let view = View { visible: 100, transaction, statement: 1 };
        self.store.insert(&view.snapshot(&self.table), rows).unwrap();
    }

    /// Deletes rows that were committed at 5, in segments of `segment_rows`; the transaction must be known.
    fn delete(&mut self, transaction: u64, statement: u32, segment_rows: u32, rows: impl Iterator<Item = u32>) {
        let at = |row: u32| RowAddress::new(SegmentNumber(row / segment_rows), RowOffset(row % segment_rows));
        let view = View { visible: 55, transaction, statement };
        self.store.delete(&view.snapshot(&self.table), &rows.map(at).collect::<Vec<_>>()).unwrap();
    }

    /// From now on there are so many bytes more than are used.
    fn leave_room(&self, bytes: u64) {
        self.memory.set_limit(self.memory.used() + bytes);
    }

    fn maintain(&mut self, oldest: u64) {
        let horizon = Horizon { oldest: Timestamp(oldest), outcomes: &self.table };
        while self.store.maintain(&horizon, 4_096).more {}
    }

    fn counters(&self) -> StoreCounters {
        self.store.statistics().counters
    }
}

/// Whatever room there was while segments were sealed, and whether or not another store moved rows without room
/// meanwhile: when there is room again, they take what they would have taken.
#[test]
fn values_are_encoded_when_there_is_room_again() {
    let rows = rows(0..2_048);
    let mut never_short = Fixture::new(Layout::Default, 1_024, &rows);
    never_short.maintain(50);
    assert_eq!(never_short.counters().sealed, 2);
    let mut rebuilt = 0;
    for another_moves in [true, false] {
        for room in (0..1 << 20).step_by(8 << 10) {
            let mut it = Fixture::new(Layout::Default, 1_024, &rows);
            let another = it.memory.of_store();
            let mover = another_moves.then(|| another.move_without_room().unwrap());
            it.leave_room(room);
            it.maintain(50);
            drop(mover);
            it.memory.set_limit(ENOUGH);
            it.maintain(50);
            let used = it.memory.used();
            assert_eq!(used, never_short.memory.used(), "{room} bytes of room, another moves: {another_moves}");
            assert!(!it.store.wants_maintenance());
            rebuilt += it.counters().rebuilt;
        }
    }
    assert!(rebuilt > 0, "no segment was sealed with values that stayed plain");
}

/// A full segment that is not sealed is too large for the room there is. What a DELETE left of others is moved together
/// all the same.
#[test]
fn a_refused_seal_does_not_keep_rows_from_moving() {
    const SEGMENTS: u32 = 8;
    const SEGMENT_ROWS: u32 = 4_096;
    const LEFT: u32 = 8;
    let mut it = Fixture::new(Layout::Default, SEGMENT_ROWS, &rows(0..SEGMENTS * SEGMENT_ROWS));
    it.maintain(50);
    assert_eq!(it.counters().sealed, 8);
    it.table.set(2, Outcome::Committed(Timestamp(60)));
    let gone = (0..SEGMENTS * SEGMENT_ROWS).filter(|row| row % SEGMENT_ROWS >= LEFT);
    it.delete(2, 1, SEGMENT_ROWS, gone);
    // While a cursor is saved, the deleted rows are vacated, but the others stay where they are.
    let request = ReadRequest { predicate: Predicate::new([]), desired: [KEY].into(), order: None };
    let cursor = it.store.open_cursor(&request).unwrap();
    it.maintain(100);
    assert_eq!((it.counters().compacted, it.store.statistics().dead_rows), (0, 8 * (4_096 - 8)));
    it.insert(3, 61, &rows(SEGMENTS * SEGMENT_ROWS..(SEGMENTS + 1) * SEGMENT_ROWS));
    // The first 2,048 rows of the new segment are 272 KiB of columns. To move the others, a page of 35 KiB will do.
    it.leave_room(256 << 10);
    drop(cursor);
    it.maintain(100);
    let counters = it.counters();
    assert!(counters.maintenance_out_of_memory > 0, "there is room to seal the segment");
    assert_eq!((counters.compacted, counters.rows_moved), (u64::from(SEGMENTS), u64::from(SEGMENTS * LEFT)));
}

/// To move rows there is no room. A segment after them that was thawed for a transaction that is over needs none to be
/// sealed, and gives back the words of its rows.
#[test]
fn rows_that_cannot_move_do_not_keep_others_from_being_sealed() {
    let mut it = Fixture::new(Layout::Default, 1_024, &rows(0..2_048));
    it.maintain(50);
    it.table.set(3, Outcome::Active);
    // More runs of undecided ends than a delete map is to have; those of one statement would be a bitmap.
    for statement in 1..=70 {
        it.delete(3, statement, 1_024, std::iter::once(1_024 + 14 * statement));
    }
    it.maintain(50);
    assert_eq!((it.counters().sealed, it.counters().thawed), (2, 1));
    it.table.set(2, Outcome::Committed(Timestamp(60)));
    it.delete(2, 1, 1_024, 0..300);
    it.table.set(3, Outcome::Aborted);
    it.leave_room(0);
    let before = it.memory.used();
    it.maintain(100);
    assert_eq!((it.counters().sealed, it.counters().rows_moved), (3, 0));
    assert!(it.memory.used() < before, "{} bytes are used, {before} were before", it.memory.used());
}

/// One segment is to get another layout, for which there is no room. Few rows are left of the other, and move.
#[test]
fn a_refused_rebuild_does_not_keep_rows_from_moving() {
    let mut it = Fixture::new(Layout::Column, 4_096, &rows(0..8_192));
    it.maintain(50);
    let layout = PhysicalLayout::single(ROW_STATIC, 2 + DECIMALS.len());
    it.store.set_layout(layout.clone(), layout).unwrap();
    it.table.set(2, Outcome::Committed(Timestamp(60)));
    it.delete(2, 1, 4_096, 4_096 + 8..8_192);
    // The first 2,048 rows are 276 KiB of pages. To move the others, a page of 35 KiB will do.
    it.leave_room(128 << 10);
    it.maintain(100);
    assert_eq!((it.counters().compacted, it.counters().rows_moved), (1, 8));
}
