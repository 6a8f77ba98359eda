//! Who sees which version, and what writers, locks, keys and garbage collection make of before-images.

use super::fixture::{AMOUNT, Fixture, GROUP, KEY, NAME, holder, reader, rows, schema, view};
use crate::history::model::{Table, View};
use eris_platform::memory::MemoryPool;
use eris_storage::{COLUMN, Outcome, PhysicalLayout, RowLock, StorageError, Store, StoreOptions, Value};
use std::sync::Arc;

#[test]
fn older_snapshot_reads_the_before_image() {
    let mut it = Fixture::new();
    it.change(2, 7, 20, 10);
    it.change(3, 7, 30, 12);
    let statistics = it.store.statistics();
    assert_eq!((statistics.rows_total, statistics.before_images), (10, 2), "no version was appended");
    assert_eq!(statistics.index_entries, 20, "nor entered into an index");
    for settle in [false, true] {
        if settle {
            it.maintain(5);
        }
        let seen: Vec<_> = [9, 10, 11, 12, 100].map(|visible| it.amount(reader(visible), 7)).into();
        assert_eq!(seen, [Some(0), Some(20), Some(20), Some(30), Some(30)], "settled: {settle}");
        assert!(it.amounts_of(reader(4), 7).is_empty(), "before the row was inserted");
    }
    assert_eq!(it.counters().updated_in_place, 2);
    it.finish();
}

#[test]
fn null_is_overwritten_and_kept() {
    let mut it = Fixture::new();
    it.begin(2);
    it.set(view(2, 9, 1), 3, AMOUNT, Value::Null).unwrap();
    it.commit(2, 10);
    it.change(3, 3, 8, 12);
    assert_eq!([9, 10, 12].map(|visible| it.amount(reader(visible), 3)), [Some(0), None, Some(8)]);
    assert_eq!(it.images(), 2);
    it.finish();
}

#[test]
fn two_updates_in_one_transaction_have_an_image_each() {
    let mut it = Fixture::new();
    it.begin(2);
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    it.set_amount(view(2, 9, 2), 7, 21).unwrap();
    assert_eq!(it.images(), 2);
    assert_eq!(it.amount(view(2, 9, 1), 7), Some(0), "a statement does not see its own writes");
    assert_eq!(it.amount(view(2, 9, 2), 7), Some(20));
    assert_eq!(it.amount(view(2, 9, 3), 7), Some(21));
    assert_eq!(it.amount(reader(100), 7), Some(0), "nobody else sees either");
    it.commit(2, 10);
    assert_eq!([9, 10].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(21)]);
    it.maintain(5);
    assert_eq!([9, 10].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(21)]);
    it.finish();
}

#[test]
fn a_row_that_a_statement_reaches_twice_is_overwritten_once() {
    let mut it = Fixture::new();
    it.begin(2);
    let at = it.addresses(view(2, 9, 1), 7)[0];
    assert_eq!(it.set_at(view(2, 9, 1), &[at, at], AMOUNT, Value::Int64(20)).unwrap().rows, 1);
    assert_eq!(it.set_amount(view(2, 9, 1), 7, 40).unwrap().rows, 0, "the statement runs again after a wait");
    it.commit(2, 10);
    assert_eq!(it.amount(reader(10), 7), Some(20));
    assert_eq!(it.counters().updated, 1);
    it.finish();
}

#[test]
fn rollback_restores_the_old_values() {
    let mut it = Fixture::new();
    it.begin(2);
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    it.set(view(2, 9, 2), 7, AMOUNT, Value::Null).unwrap();
    it.abort(2);
    assert_eq!(it.amount(reader(100), 7), Some(0), "before it is settled");
    it.maintain(5);
    assert_eq!((it.counters().images_restored, it.images(), it.image_bytes()), (2, 0, 0));
    assert_eq!(it.amount(reader(100), 7), Some(0));
    // The next writer does not wait for maintenance.
    it.begin(3);
    it.set_amount(view(3, 9, 1), 8, 30).unwrap();
    it.abort(3);
    it.change(4, 8, 40, 12);
    assert_eq!([11, 12].map(|visible| it.amount(reader(visible), 8)), [Some(0), Some(40)]);
    it.maintain(5);
    assert_eq!([11, 12].map(|visible| it.amount(reader(visible), 8)), [Some(0), Some(40)]);
    it.finish();
}

#[test]
fn an_own_insert_that_was_overwritten_is_rolled_back() {
    let mut it = Fixture::new();
    it.begin(2);
    it.store.insert(&view(2, 9, 1).snapshot(&it.table), &rows(20..21)).unwrap();
    it.set_amount(view(2, 9, 2), 20, 7).unwrap();
    assert_eq!(it.amount(view(2, 9, 3), 20), Some(7));
    it.abort(2);
    it.maintain(5);
    assert!(it.amounts_of(reader(100), 20).is_empty());
    assert_eq!(it.store.statistics().index_entries, 20, "its entries are gone");
    it.finish();
}

#[test]
fn savepoint_restores_what_it_saw() {
    let mut it = Fixture::new();
    it.begin(2);
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    it.set_amount(view(2, 9, 2), 7, 30).unwrap();
    it.set_amount(view(2, 9, 3), 7, 40).unwrap();
    it.table.void((2, 2));
    it.table.void((2, 3));
    assert_eq!(it.amount(view(2, 9, 4), 7), Some(20));
    it.set_amount(view(2, 9, 4), 7, 50).unwrap();
    assert_eq!(it.amount(view(2, 9, 5), 7), Some(50));
    assert_eq!(it.images(), 2, "what was rolled back left the row");
    it.table.void((2, 4));
    it.commit(2, 10);
    assert_eq!([9, 10].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(20)]);
    it.maintain(5);
    assert_eq!([9, 10].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(20)]);
    it.finish();
}

#[test]
fn a_row_whose_update_was_rolled_back_to_a_savepoint_is_free_for_others() {
    let mut it = Fixture::new();
    it.begin(2);
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    it.table.void((2, 1));
    it.change(3, 7, 30, 10);
    assert_eq!(holder(it.set_amount(view(2, 9, 2), 7, 40)), None, "the first to update wins");
    it.commit(2, 11);
    it.maintain(5);
    assert_eq!([9, 10, 11].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(30), Some(30)]);
    it.finish();
}

#[test]
fn garbage_collection_returns_all_bytes() {
    let mut it = Fixture::new();
    for round in 0..20 {
        // Readers are transaction 1,000.
        it.change(10_000 + round, 7, round as i64, 10 + round);
        it.maintain(9);
    }
    assert_eq!(it.images(), 20, "a reader at 9 needs the first, which is found through the others");
    assert!(it.image_bytes() > 20 * 24);
    assert_eq!(it.amount(reader(9), 7), Some(0));
    it.maintain(19);
    assert_eq!((it.images(), it.amount(reader(19), 7)), (10, Some(9)), "those before what a reader at 19 sees");
    assert_eq!(it.counters().images_freed, 10);
    it.maintain(29);
    assert_eq!((it.images(), it.image_bytes()), (0, 0));
    assert_eq!(it.amount(reader(29), 7), Some(19));
    // A row that is deleted takes its images along.
    it.change(50, 7, 1, 50);
    it.begin(51);
    let at = it.addresses(view(51, 50, 1), 7);
    it.store.delete(&view(51, 50, 1).snapshot(&it.table), &at).unwrap();
    it.commit(51, 51);
    it.maintain(49);
    assert_eq!([49, 50].map(|visible| it.amount(reader(visible), 7)), [Some(19), Some(1)]);
    assert!(it.amounts_of(reader(51), 7).is_empty());
    it.finish();
}

#[test]
fn concurrent_writers_conflict() {
    let mut it = Fixture::new();
    for transaction in 2..5 {
        it.begin(transaction);
    }
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    assert_eq!(holder(it.set_amount(view(3, 9, 1), 7, 30)), Some(2), "undecided");
    let at = it.addresses(view(3, 9, 1), 7);
    assert_eq!(holder(it.store.delete(&view(3, 9, 1).snapshot(&it.table), &at)), Some(2));
    let insert = it.store.insert(&view(3, 9, 1).snapshot(&it.table), &rows(7..8));
    assert_eq!(holder(insert), Some(2), "whether the key stays is undecided");
    // A statement that met somebody undecided leaves nothing of what it did before.
    let both = [it.addresses(view(3, 9, 2), 8)[0], at[0]];
    assert_eq!(holder(it.set_at(view(3, 9, 2), &both, AMOUNT, Value::Int64(30))), Some(2));
    assert_eq!((it.amount(view(3, 9, 3), 8), it.images()), (Some(0), 1));
    it.commit(2, 10);
    for settle in [false, true] {
        if settle {
            it.maintain(5);
        }
        assert_eq!(it.amount(view(3, 9, 4), 7), Some(0));
        assert_eq!(holder(it.set_amount(view(3, 9, 4), 7, 30)), None, "the first to update wins");
        assert_eq!(holder(it.store.delete(&view(3, 9, 4).snapshot(&it.table), &at)), None);
        let locked = it.store.lock_rows(&view(3, 9, 4).snapshot(&it.table), &at, RowLock::KeyShare, false);
        assert!(matches!(locked, Err(StorageError::Conflict { with: None })), "{locked:?}");
    }
    it.abort(3);
    assert_eq!(it.set_amount(view(4, 10, 1), 7, 40).unwrap().rows, 1);
    it.abort(4);
    it.maintain(10);
    assert_eq!(it.amount(reader(10), 7), Some(20));
    it.finish();
}

#[test]
fn row_locks_stand_on_all_versions() {
    let mut it = Fixture::new();
    for transaction in 2..5 {
        it.begin(transaction);
    }
    let lock = |it: &mut Fixture, transaction: u64, mode: RowLock| {
        let view = view(transaction, 9, 5);
        let at = it.addresses(view, 7);
        let locked = it.store.lock_rows(&view.snapshot(&it.table), &at, mode, false);
        locked.map(|locked| locked.rows.len()).map_err(|error| error.undecided().map(|holder| holder.transaction.0))
    };
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    assert_eq!(lock(&mut it, 3, RowLock::Share), Err(Some(2)));
    assert_eq!(lock(&mut it, 3, RowLock::KeyShare), Ok(1), "an update in place keeps the key");
    assert_eq!(lock(&mut it, 2, RowLock::Update), Err(Some(3)), "the key is shared");
    it.set_amount(view(2, 9, 6), 7, 21).unwrap();
    let at = it.addresses(view(2, 9, 7), 7);
    assert_eq!(holder(it.store.delete(&view(2, 9, 7).snapshot(&it.table), &at)), Some(3));
    it.commit(2, 10);
    it.maintain(9);
    assert_eq!(holder(it.store.delete(&view(4, 10, 1).snapshot(&it.table), &at)), Some(3), "after the commit, too");
    it.abort(3);
    assert_eq!(it.store.delete(&view(4, 10, 1).snapshot(&it.table), &at).unwrap().rows, 1);
    it.abort(4);
    it.finish();
}

#[test]
fn a_key_is_free_when_no_version_is_left() {
    let mut it = Fixture::new();
    let duplicate = |it: &mut Fixture, view: View| {
        let result = it.store.insert(&view.snapshot(&it.table), &rows(7..8));
        matches!(result, Err(StorageError::DuplicateKey { .. }))
    };
    it.begin(2);
    it.begin(3);
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    it.table.void((2, 1));
    assert!(duplicate(&mut it, view(3, 9, 1)), "the version that stands has the key");
    it.abort(3);
    it.set_amount(view(2, 9, 2), 7, 30).unwrap();
    it.commit(2, 10);
    it.begin(4);
    let at = it.addresses(view(4, 10, 1), 7);
    it.store.delete(&view(4, 10, 1).snapshot(&it.table), &at).unwrap();
    it.commit(4, 11);
    it.begin(5);
    let insert = it.store.insert(&view(5, 9, 1).snapshot(&it.table), &rows(7..8));
    assert_eq!(holder(insert), None, "the snapshot sees an earlier version with the key");
    it.abort(5);
    it.begin(6);
    assert_eq!(it.store.insert(&view(6, 11, 1).snapshot(&it.table), &rows(7..8)).unwrap().rows, 1);
    it.abort(6);
    it.finish();
}

#[test]
fn what_cannot_be_overwritten_gets_a_new_version() {
    let mut it = Fixture::new();
    let appended = |it: &mut Fixture, key: i32, attribute, value: Value| {
        let (before, transaction) = (it.store.statistics().rows_total, 100 + it.counters().updated);
        it.begin(transaction);
        it.set(view(transaction, 99, 1), key, attribute, value).unwrap();
        it.abort(transaction);
        it.store.statistics().rows_total - before
    };
    assert_eq!(appended(&mut it, 1, AMOUNT, Value::Int64(1)), 0);
    assert_eq!(appended(&mut it, 1, GROUP, Value::Int32(2)), 1, "an index holds it");
    assert_eq!(appended(&mut it, 1, KEY, Value::Int32(77)), 1, "an index holds it");
    assert_eq!(appended(&mut it, 1, NAME, Value::Text("other".into())), 1, "no fixed width");
    it.maintain(5);
    assert_eq!(it.amount(reader(100), 1), Some(0));
    // Rows of sealed segments are shared and encoded.
    it.store.close_tail();
    it.store.let_cool();
    it.maintain(5);
    assert!(it.store.segments().iter().all(|segment| segment.sealed || segment.rows == 0));
    assert_eq!(appended(&mut it, 1, AMOUNT, Value::Int64(1)), 1, "it is sealed");
    // Columns do not say that they can be overwritten.
    let columns = PhysicalLayout::single(COLUMN, 4);
    it.maintain(5);
    it.store.set_layout(columns.clone(), columns).unwrap();
    it.store.close_tail();
    it.begin(2);
    it.store.insert(&view(2, 5, 1).snapshot(&it.table), &rows(30..31)).unwrap();
    it.commit(2, 6);
    assert_eq!(appended(&mut it, 30, AMOUNT, Value::Int64(1)), 1, "column");
    it.finish();
    let mut it = Fixture::with(false);
    assert_eq!(appended(&mut it, 1, AMOUNT, Value::Int64(1)), 1, "switched off");
    it.finish();
}

#[test]
fn with_many_images_updates_append() {
    let mut it = Fixture::new();
    for round in 0..2_060 {
        // Readers are transaction 1,000.
        it.change(10_000 + round, 7, round as i64, 10 + round);
    }
    assert_eq!((it.images(), it.counters().updated), (2_048, 2_060));
    for (visible, amount) in [(9, 0), (10, 0), (1_000, 990), (2_057, 2_047), (2_058, 2_048), (2_069, 2_059)] {
        assert_eq!(it.amount(reader(visible), 7), Some(amount), "at {visible}");
    }
    it.maintain(3_000);
    assert_eq!((it.images(), it.amount(reader(3_000), 7)), (0, Some(2_059)));
    it.finish();
}

#[test]
fn memory_that_ends_makes_updates_append() {
    let memory = MemoryPool::new(60_000);
    let store = Store::new(StoreOptions::new(Arc::new(schema()), Arc::clone(&memory)));
    let mut it = Fixture { memory, store, table: Table::default() };
    it.begin(1);
    it.store.insert(&view(1, 4, 1).snapshot(&it.table), &rows(0..10)).unwrap();
    it.commit(1, 5);
    let mut last = 0;
    for round in 0.. {
        it.begin(10 + round);
        let written = it.set_amount(view(10 + round, 9 + round, 1), 7, round as i64);
        if matches!(written, Err(StorageError::Memory(_))) {
            it.abort(10 + round);
            break;
        }
        assert_eq!(written.unwrap().rows, 1);
        it.commit(10 + round, 10 + round);
        last = round;
        assert!(round < 10_000, "the limit is met");
    }
    it.table.set(1_000, Outcome::Active);
    let counters = it.counters();
    assert!(counters.updated_in_place > 10, "{counters:?}");
    for round in [0, 1, last / 2, last] {
        assert_eq!(it.amount(reader(10 + round), 7), Some(round as i64));
    }
    for _ in 0..100 {
        it.maintain(800);
    }
    assert_eq!(it.amount(reader(10 + last), 7), Some(last as i64));
    it.finish();
}
