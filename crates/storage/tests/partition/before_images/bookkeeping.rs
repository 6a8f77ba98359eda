//! What a store remembers about its rows and segments, where steps come in an unusual order.

use super::fixture::{AMOUNT, Fixture, KEY, holder, index, reader, rows, schema, view};
use crate::history::model::{Table, View};
use eris_platform::memory::MemoryPool;
use eris_storage::{
    Attribute, DataType, Horizon, IndexBuildCursor, IndexDefinition, IndexId, Outcome, Outcomes, Progress, RowLock,
    Schema, SchemaVersion, Snapshot, SplitStep, StatementNumber, StorageError, Store, StoreOptions, Timestamp,
    TransactionId,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn delete(it: &mut Fixture, by: View, keys: Range<i32>) {
    for key in keys {
        let at = it.addresses(by, key);
        it.store.delete(&by.snapshot(&it.table), &at).unwrap();
    }
}

/// A transaction that rolls back just before somebody asks about it for the `at`-th time, counted from 0.
struct RollsBack<'a> {
    table: &'a Table,
    transaction: TransactionId,
    at: u32,
    asked: AtomicU32,
}

impl Outcomes for RollsBack<'_> {
    fn outcome(&self, transaction: TransactionId, statement: StatementNumber) -> Outcome {
        let rolls_back = transaction == self.transaction && self.asked.fetch_add(1, Ordering::Relaxed) >= self.at;
        if rolls_back { Outcome::Aborted } else { self.table.outcome(transaction, statement) }
    }
}

/// Rollback takes no latch: the row that was overwritten is back while an insert looks at its key.
#[test]
fn a_key_stays_taken_while_an_update_of_its_row_is_rolled_back() {
    let mut refused = [0, 0];
    for at in 0..6 {
        let mut it = Fixture::new();
        it.begin(2);
        it.begin(3);
        it.set_amount(view(2, 9, 1), 7, 20).unwrap();
        assert_eq!(it.images(), 1);
        let outcomes = RollsBack { table: &it.table, transaction: TransactionId(2), at, asked: AtomicU32::new(0) };
        let snapshot = Snapshot { outcomes: &outcomes, ..view(3, 9, 1).snapshot(&it.table) };
        match it.store.insert(&snapshot, &rows(7..8)) {
            Err(StorageError::DuplicateKey { .. }) => refused[0] += 1,
            Err(StorageError::Conflict { with: Some(with) }) => {
                assert_eq!(with.transaction, TransactionId(2));
                refused[1] += 1;
            }
            other => panic!("rolled back when asked for the {at}-th time: {other:?}"),
        }
        it.abort(2);
        it.abort(3);
        it.maintain(900);
        assert_eq!(it.amount(reader(900), 7), Some(0));
        it.finish();
    }
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
}

/// Enters all rows into an index.
fn build(store: &mut Store, snapshot: &Snapshot<'_>, definition: &IndexDefinition) -> Result<(), StorageError> {
    let mut cursor = IndexBuildCursor::default();
    while store.create_index_step(snapshot, definition, &mut cursor, 3)? == Progress::More {}
    Ok(())
}

/// The row that was rolled back between two looks at it is not the second one with its key.
#[test]
fn a_unique_index_is_built_while_a_row_is_rolled_back() {
    let mut built = [0, 0];
    for at in 0..8 {
        let mut it = Fixture::new();
        it.begin(2);
        delete(&mut it, view(2, 9, 1), 7..8);
        it.store.insert(&view(2, 9, 2).snapshot(&it.table), &rows(7..8)).unwrap();
        let outcomes = RollsBack { table: &it.table, transaction: TransactionId(2), at, asked: AtomicU32::new(0) };
        let snapshot = Snapshot { outcomes: &outcomes, ..view(3, 9, 1).snapshot(&it.table) };
        match build(&mut it.store, &snapshot, &index(9, KEY, true)) {
            Ok(()) => built[0] += 1,
            Err(StorageError::Conflict { with: Some(with) }) => {
                assert_eq!(with.transaction, TransactionId(2));
                built[1] += 1;
            }
            other => panic!("rolled back when asked for the {at}-th time: {other:?}"),
        }
        it.store.abandon_index(IndexId(9));
        it.abort(2);
        it.finish();
    }
    assert!(built.iter().all(|count| *count > 0), "{built:?}");
}

/// Partitions moved to a schema that was given up in the end, and its index's id was given to another one.
#[test]
fn an_id_that_is_used_anew_does_not_bring_the_former_index_back() {
    let mut it = Fixture::new();
    for definition in [index(9, AMOUNT, false), index(9, KEY, true)] {
        build(&mut it.store, &reader(9).snapshot(&it.table), &definition).unwrap();
        let schema = Schema { version: SchemaVersion(2), indexes: [definition].into(), ..schema() };
        it.store.set_schema(Arc::new(schema)).unwrap();
    }
    it.begin(2);
    match it.store.insert(&view(2, 9, 1).snapshot(&it.table), &rows(7..8)) {
        Err(StorageError::DuplicateKey { index, .. }) => assert_eq!(index, IndexId(9)),
        other => panic!("the key is taken: {other:?}"),
    }
    it.abort(2);
    it.finish();
}

/// An index that was built under another name is adopted as it is, and has the schema's name from then on.
#[test]
fn an_adopted_index_has_the_name_that_the_schema_gives_it() {
    let mut it = Fixture::new();
    let built = index(9, KEY, true);
    build(&mut it.store, &reader(9).snapshot(&it.table), &built).unwrap();
    let renamed = IndexDefinition { name: "renamed".into(), ..built };
    let schema = Schema { version: SchemaVersion(2), indexes: [renamed].into(), ..schema() };
    it.store.set_schema(Arc::new(schema)).unwrap();
    it.begin(2);
    match it.store.insert(&view(2, 9, 1).snapshot(&it.table), &rows(7..8)) {
        Err(StorageError::DuplicateKey { index_name, .. }) => assert_eq!(&*index_name, "renamed"),
        other => panic!("the key is taken: {other:?}"),
    }
    it.abort(2);
    it.finish();
}

/// Whoever appended a new version and locked it holds it against a key share that both versions would have.
#[test]
fn a_key_share_asks_for_the_locks_of_the_new_version() {
    for in_place in [true, false] {
        let mut it = Fixture::with(in_place);
        it.begin(2);
        it.begin(3);
        let old = it.addresses(view(3, 9, 1), 7);
        it.set_amount(view(2, 9, 1), 7, 20).unwrap();
        let new = it.addresses(view(2, 9, 2), 7);
        assert_eq!(old == new, in_place);
        it.store.lock_rows(&view(2, 9, 2).snapshot(&it.table), &new, RowLock::Update, false).unwrap();
        let shared = it.store.lock_rows(&view(3, 9, 1).snapshot(&it.table), &old, RowLock::KeyShare, false);
        let with = shared.expect_err("locked for an update").undecided().map(|holder| holder.transaction);
        assert_eq!(with, Some(TransactionId(2)), "in place: {in_place}");
        it.table.void((2, 2));
        let shared = it.store.lock_rows(&view(3, 9, 1).snapshot(&it.table), &old, RowLock::KeyShare, false);
        assert_eq!(shared.unwrap().rows.len(), 1, "the update keeps the key");
        let deleted = it.store.delete(&view(2, 9, 3).snapshot(&it.table), &new);
        assert_eq!(holder(deleted), Some(3));
        it.abort(2);
        it.abort(3);
        it.finish();
    }
}

#[test]
fn a_segment_that_maintenance_thawed_is_sealed_again() {
    let mut it = Fixture::new();
    it.begin(2);
    it.store.insert(&view(2, 5, 1).snapshot(&it.table), &rows(10..16)).unwrap();
    it.commit(2, 6);
    it.maintain(6);
    it.store.let_cool();
    it.maintain(6);
    assert_eq!(it.counters().sealed, 1);
    it.begin(3);
    // Not next to each other: those that are cost the segment little, and it is not thawed for them.
    (0..6).step_by(2).for_each(|row| delete(&mut it, view(3, 9, 1), row..row + 1));
    it.commit(3, 10);
    it.maintain(9);
    assert_eq!(it.counters().thawed, 1, "a reader at 9 still sees the deleted rows");
    it.store.let_cool();
    it.maintain(900);
    assert_eq!(it.counters().sealed, 2);
    assert!(!it.store.wants_maintenance());
    it.finish();
}

/// The rows of the tail are gone before it is closed, here because new rows have another attribute.
#[test]
fn an_empty_tail_is_dropped_when_it_is_closed() {
    let mut it = Fixture::new();
    it.begin(2);
    delete(&mut it, view(2, 9, 1), 0..10);
    it.commit(2, 10);
    it.maintain(900);
    let added = Attribute { name: "added".into(), data_type: DataType::Int32, nullable: true };
    let attributes = schema().attributes.iter().cloned().chain([added]).collect();
    it.store.set_schema(Arc::new(Schema { version: SchemaVersion(2), attributes, ..schema() })).unwrap();
    it.maintain(900);
    assert_eq!(it.store.segments(), []);
    it.finish();
}

/// Rows that an evacuation moves fill the tail, and memory ends there: the next row begins another one.
#[test]
fn a_tail_that_was_filled_as_memory_ended_is_closed() {
    let (mut ended, mut moved) = (0, 0);
    // So many segments that an index has to grow for some of them.
    for (segments, room) in (2..24).flat_map(|segments| (0..4_000).step_by(400).map(move |room| (segments, room))) {
        let last = segments * 16 + 4;
        let mut it = Fixture::new();
        it.begin(2);
        it.store.insert(&view(2, 5, 1).snapshot(&it.table), &rows(10..last + 1)).unwrap();
        it.commit(2, 6);
        it.maintain(6);
        // An earlier version in the tail, for the reader at 9.
        it.change(3, last, 20, 10);
        assert_eq!(it.images(), 1);
        it.begin(4);
        delete(&mut it, view(4, 6, 1), 0..5);
        it.commit(4, 7);
        it.memory.set_limit(it.memory.used() + room);
        it.maintain(9);
        it.memory.set_limit(u64::MAX);
        let counters = it.counters();
        ended += counters.maintenance_out_of_memory;
        moved += counters.rows_moved;
        it.store.begin_handover(false).unwrap();
        assert_eq!((it.images(), it.counters().images_spilled), (0, 1));
        let mut target = Store::new(StoreOptions::new(Arc::new(schema()), Arc::clone(&it.memory)));
        while !matches!(it.store.split_step(&mut target, 64).unwrap(), SplitStep::Done(_)) {}
        std::mem::swap(&mut it.store, &mut target);
        assert_eq!((it.amount(reader(9), last), it.amount(reader(10), last)), (Some(0), Some(20)));
        let left = it.read(reader(10), vec![], &[KEY]);
        assert_eq!(left.rows, last as usize - 4, "{segments} segments, {room} bytes");
        drop(target);
        it.finish();
    }
    assert!(ended > 0 && moved > 0, "memory ended {ended} times, {moved} rows moved");
}

/// A store that takes rows in while a long transaction of its own is settled asks to go on at once.
#[test]
fn settling_goes_on_beside_a_handover() {
    let memory = MemoryPool::unlimited();
    let mut store = Store::new(StoreOptions::new(Arc::new(schema()), Arc::clone(&memory)));
    let table = Table::default();
    table.set(2, Outcome::Active);
    store.insert(&view(2, 5, 1).snapshot(&table), &rows(0..100)).unwrap();
    store.begin_absorbing().unwrap();
    table.set(2, Outcome::Committed(Timestamp(6)));
    let horizon = Horizon { oldest: Timestamp(6), outcomes: &table };
    let mut calls = 1;
    while store.maintain(&horizon, 40).more {
        calls += 1;
    }
    assert!(calls >= 3, "{calls} calls for 100 rows");
    assert!(!store.segments().iter().any(|segment| segment.locked_words > 0), "all are settled");
}
