//! Splits, moves, merges, seals, rebuilds, new indexes and attributes where rows have before-images.

use super::fixture::{AMOUNT, Fixture, GROUP, KEY, equal, holder, index, reader, rows, schema, view};
use eris_storage::{
    Attribute, Batch, COLUMN, DataType, Horizon, IndexBuildCursor, PhysicalLayout, Predicate, Progress, ROW_STATIC,
    ReadRequest, RowLock, SegmentLayouts, SplitBoundary, SplitMoved, SplitStep, StorageError, Store, StoreOptions,
    Timestamp, TransactionId, Value, key_of_row, key_of_values,
};
use std::sync::Arc;

/// Cut at key 5, or all rows; gives what moved and the store they moved to.
fn hand_over(it: &mut Fixture, at: Option<i32>, target: &mut Store) -> SplitMoved {
    match at {
        Some(at) => {
            let position = Arc::new(|keys: &Batch, row: usize| key_of_row(keys, row, &[0]));
            let at = key_of_values(&[(&Value::Int32(at), DataType::Int32)]);
            it.store.begin_split(SplitBoundary { attributes: [KEY].into(), position, at }).unwrap();
        }
        None => it.store.begin_handover(false).unwrap(),
    }
    loop {
        if let SplitStep::Done(moved) = it.store.split_step(target, 3).unwrap() {
            return moved;
        }
    }
}

/// Two versions of key 7 and 2 that are committed, at 10, and one that is not, of transaction 3.
fn with_images() -> Fixture {
    let mut it = Fixture::new();
    it.begin(2);
    it.begin(3);
    for key in [2, 7] {
        it.set_amount(view(2, 9, 1), key, 20).unwrap();
    }
    it.commit(2, 10);
    for key in [2, 7] {
        it.set_amount(view(3, 10, 1), key, 30).unwrap();
        it.set_amount(view(3, 10, 2), key, 40).unwrap();
    }
    it.table.void((3, 2));
    assert_eq!(it.images(), 6);
    it
}

fn check_versions(it: &mut Fixture, key: i32) {
    assert_eq!(it.amount(reader(9), key), Some(0), "key {key}");
    assert_eq!(it.amount(reader(10), key), Some(20), "key {key}");
    assert_eq!(it.amount(view(3, 10, 3), key), Some(30), "key {key}");
}

#[test]
fn split_with_before_images_present() {
    for commits in [true, false] {
        let mut it = with_images();
        let mut target = Store::new(StoreOptions::new(Arc::new(schema()), Arc::clone(&it.memory)));
        // A cursor is saved: images would move under it.
        let all = ReadRequest { predicate: Predicate::new([]), desired: [AMOUNT].into(), order: None };
        let cursor = it.store.open_cursor(&all).unwrap();
        assert!(matches!(it.store.begin_handover(false), Err(StorageError::Busy { .. })));
        it.store.close_cursor(cursor);
        let moved = hand_over(&mut it, Some(5), &mut target);
        assert_eq!(moved.transactions_now_in_target.last(), Some(&TransactionId(3)));
        assert_eq!((it.images(), it.counters().images_spilled), (0, 6));
        for key in [2, 7] {
            check_versions(&mut it, key);
            std::mem::swap(&mut it.store, &mut target);
        }
        if commits {
            it.commit(3, 11);
        } else {
            it.abort(3);
        }
        for key in [2, 7] {
            let last = if commits { 30 } else { 20 };
            for oldest in [5, 900] {
                it.maintain(oldest);
                assert_eq!(it.amount(reader(11), key), Some(last), "key {key}");
            }
            // What is left may be overwritten again.
            let before = it.counters().updated_in_place;
            it.change(60 + key as u64, key, 99, 950 + key as u64);
            assert!(it.counters().updated_in_place == before + 1 || !commits, "in place");
            assert_eq!(it.amount(reader(960), key), Some(99));
            it.maintain(990);
            assert_eq!((it.images(), it.store.statistics().rows_live_estimate), (0, 5));
            std::mem::swap(&mut it.store, &mut target);
        }
        drop(target);
        it.finish();
    }
}

#[test]
fn a_spilled_version_has_the_row_locks_of_its_row() {
    let mut it = Fixture::new();
    for transaction in 2..5 {
        it.begin(transaction);
    }
    let at = it.addresses(view(3, 9, 1), 7);
    it.store.lock_rows(&view(3, 9, 1).snapshot(&it.table), &at, RowLock::KeyShare, false).unwrap();
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    let mut target = Store::new(StoreOptions::new(Arc::new(schema()), Arc::clone(&it.memory)));
    hand_over(&mut it, Some(5), &mut target);
    std::mem::swap(&mut it.store, &mut target);
    it.abort(2);
    let at = it.addresses(view(4, 9, 1), 7);
    let delete = it.store.delete(&view(4, 9, 1).snapshot(&it.table), &at);
    assert_eq!(holder(delete), Some(3), "the old version stands again, and its key is shared");
    it.abort(3);
    assert_eq!(it.store.delete(&view(4, 9, 1).snapshot(&it.table), &at).unwrap().rows, 1);
    it.abort(4);
    it.maintain(900);
    std::mem::swap(&mut it.store, &mut target);
    drop(target);
    it.finish();
}

#[test]
fn move_with_before_images_present() {
    let mut it = with_images();
    let mut target = Store::new(StoreOptions::new(Arc::new(schema()), Arc::clone(&it.memory)));
    hand_over(&mut it, None, &mut target);
    std::mem::swap(&mut it.store, &mut target);
    check_versions(&mut it, 2);
    check_versions(&mut it, 7);
    it.commit(3, 11);
    it.maintain(5);
    assert_eq!([9, 10, 11].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(20), Some(30)]);
    drop(target);
    it.finish();
}

#[test]
fn merge_with_before_images_on_both_sides() {
    let mut it = with_images();
    let mut target = Store::new(StoreOptions::new(Arc::new(schema()), Arc::clone(&it.memory)));
    std::mem::swap(&mut it.store, &mut target);
    it.store.insert(&view(1, 4, 1).snapshot(&it.table), &rows(20..30)).unwrap();
    it.change(4, 22, 5, 11);
    it.store.begin_absorbing().unwrap();
    target.begin_handover(true).unwrap();
    let mut steps = 0;
    while !matches!(target.split_step(&mut it.store, 4).unwrap(), SplitStep::Done(_)) {
        steps += 1;
        // The one that absorbs goes on.
        it.change(100 + steps, 23, steps as i64, 11 + steps);
        assert_eq!(it.amount(reader(10), 22), Some(0));
        assert!(it.amounts_of(reader(100), 7).is_empty(), "hidden until the switch");
    }
    it.store.end_absorbing();
    check_versions(&mut it, 2);
    check_versions(&mut it, 7);
    assert_eq!([10, 11].map(|visible| it.amount(reader(visible), 22)), [Some(0), Some(5)]);
    assert_eq!(it.amount(reader(100), 23), Some(steps as i64));
    assert!(steps > 1 && it.images() >= steps);
    it.abort(3);
    it.maintain(5);
    assert_eq!([9, 10, 100].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(20), Some(20)]);
    let horizon = Horizon { oldest: Timestamp(900), outcomes: &it.table };
    while target.maintain(&horizon, 100).more {}
    assert_eq!(target.statistics().rows_live_estimate, 0);
    drop(target);
    it.finish();
}

#[test]
fn seal_waits_for_before_images() {
    let mut it = Fixture::new();
    it.change(2, 7, 20, 10);
    it.store.close_tail();
    it.maintain(9);
    assert_eq!(it.counters().sealed, 0, "a reader at 9 needs the image");
    assert_eq!([9, 10].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(20)]);
    it.maintain(10);
    assert_eq!((it.images(), it.counters().sealed), (0, 0), "it may be overwritten again");
    let mark = it.store.overwrites_mark();
    assert!(mark.is_some());
    it.change(3, 7, 30, 11);
    assert_ne!(it.store.overwrites_mark(), mark);
    it.maintain(11);
    it.store.let_cool();
    assert_eq!(it.store.overwrites_mark(), None);
    it.maintain(11);
    assert_eq!(it.counters().sealed, 1);
    assert_eq!(it.amount(reader(11), 7), Some(30));
    it.finish();
}

#[test]
fn seal_waits_for_a_begin_that_was_settled_as_that_of_an_image() {
    let mut it = Fixture::new();
    it.begin(2);
    it.store.insert(&view(2, 9, 1).snapshot(&it.table), &rows(10..11)).unwrap();
    it.commit(2, 10);
    it.begin(3);
    it.set_amount(view(3, 10, 1), 10, 20).unwrap();
    assert_eq!((it.images(), it.counters().updated_in_place), (1, 1), "before the insert is settled");
    it.maintain(9);
    it.abort(3);
    it.maintain(9);
    it.store.close_tail();
    it.store.let_cool();
    it.maintain(9);
    assert_eq!(it.counters().sealed, 0, "a reader at 9 does not see the row");
    assert!(it.amounts_of(reader(9), 10).is_empty());
    it.maintain(10);
    assert_eq!(it.counters().sealed, 1);
    assert_eq!(it.amount(reader(10), 10), Some(0));
    it.finish();
}

#[test]
fn a_segment_that_a_job_copies_is_not_overwritten() {
    let mut it = Fixture::new();
    it.store.close_tail();
    // One row at a time: the job is in the middle.
    let step = |it: &mut Fixture, oldest: u64| {
        let horizon = Horizon { oldest: Timestamp(oldest), outcomes: &it.table };
        it.store.maintain(&horizon, 1)
    };
    assert!(step(&mut it, 5).more && it.counters().sealed == 0);
    it.change(2, 0, 20, 10);
    it.change(3, 9, 30, 11);
    assert_eq!(it.counters().updated_in_place, 0);
    while step(&mut it, 5).more {}
    assert_eq!(it.counters().sealed, 1);
    assert_eq!([9, 10].map(|visible| it.amount(reader(visible), 0)), [Some(0), Some(20)]);
    assert_eq!([9, 11].map(|visible| it.amount(reader(visible), 9)), [Some(0), Some(30)]);
    it.finish();
}

#[test]
fn a_rebuild_waits_for_before_images_and_overwrites_for_it() {
    let mut it = Fixture::new();
    it.change(2, 7, 20, 10);
    let [rows, columns] = [ROW_STATIC, COLUMN].map(|module| PhysicalLayout::single(module, 4));
    it.store.set_layouts(Some(Arc::new(SegmentLayouts { open: columns.clone(), sealed: columns }))).unwrap();
    it.maintain(9);
    assert_eq!(it.counters().rebuilt, 0);
    it.change(3, 8, 30, 11);
    assert_eq!((it.images(), it.counters().updated_in_place), (1, 1), "a segment that is to go takes no more images");
    it.maintain(10);
    assert_eq!((it.images(), it.counters().rebuilt), (0, 1));
    assert_eq!([10, 11].map(|visible| it.amount(reader(visible), 8)), [Some(0), Some(30)]);
    assert_eq!(it.amount(reader(10), 7), Some(20));
    it.store.set_layouts(Some(Arc::new(SegmentLayouts { open: rows.clone(), sealed: rows }))).unwrap();
    it.maintain(20);
    it.change(4, 7, 50, 21);
    assert_eq!(it.images(), 1, "in rows again, it is overwritten again");
    it.finish();
}

#[test]
fn an_index_gets_an_entry_for_every_version() {
    let mut it = Fixture::new();
    it.change(2, 7, 20, 10);
    it.maintain(9);
    let definition = index(9, AMOUNT, false);
    let snapshot_view = view(1_000, 10, 1);
    let mut build = IndexBuildCursor::default();
    let mut step = |it: &mut Fixture| {
        it.store.create_index_step(&snapshot_view.snapshot(&it.table), &definition, &mut build, 3).unwrap()
    };
    let all = ReadRequest { predicate: Predicate::new([]), desired: [AMOUNT].into(), order: None };
    let cursor = it.store.open_cursor(&all).unwrap();
    assert_eq!((step(&mut it), it.images()), (Progress::More, 1), "images do not move under a cursor");
    it.change(3, 8, 30, 11);
    assert_eq!(it.counters().updated_in_place, 1, "nothing is overwritten while an index is built");
    it.store.close_cursor(cursor);
    while step(&mut it) == Progress::More {}
    let mut wider = schema();
    wider.indexes = [index(1, KEY, true), index(2, GROUP, false), definition.clone()].into();
    it.store.set_schema(Arc::new(wider)).unwrap();
    for (visible, amount, keys) in [(9, 20, 0), (9, 0, 10), (10, 20, 1), (10, 0, 9), (11, 30, 1)] {
        let found = it.read(reader(visible), vec![equal(AMOUNT, Value::Int64(amount))], &[KEY]);
        assert_eq!(found.rows, keys, "amount {amount} at {visible}");
    }
    it.change(4, 7, 60, 12);
    assert_eq!(it.counters().updated_in_place, 1, "the index holds it now");
    it.finish();
}

#[test]
fn widened_rows_are_restored_and_not_overwritten() {
    let mut it = Fixture::new();
    it.begin(2);
    it.set_amount(view(2, 9, 1), 7, 20).unwrap();
    let added = Attribute { name: "added".into(), data_type: DataType::Int32, nullable: true };
    it.store.set_schema(Arc::new(schema().with_attributes([added]))).unwrap();
    assert_eq!(it.amount(reader(9), 7), Some(0));
    it.abort(2);
    it.maintain(5);
    assert_eq!((it.amount(reader(9), 7), it.images()), (Some(0), 0));
    it.change(3, 7, 30, 10);
    assert_eq!(it.counters().updated_in_place, 1, "a new version has all attributes");
    assert_eq!([9, 10].map(|visible| it.amount(reader(visible), 7)), [Some(0), Some(30)]);
    it.finish();
}

#[test]
fn a_cursor_beside_a_pin_reads_before_images() {
    let mut it = Fixture::new();
    it.change(2, 7, 20, 10);
    let snapshot = reader(9);
    let pin = it.store.pin(&snapshot.snapshot(&it.table));
    assert!(pin.segments.is_empty(), "rows with images are in open segments");
    let predicate = Predicate::new([equal(AMOUNT, Value::Int64(0))]);
    let request = ReadRequest { predicate, desired: [KEY].into(), order: None };
    let mut cursor = it.store.open_cursor_unsealed(&request).unwrap();
    let gateway = it.store.next_batch(&snapshot.snapshot(&it.table), &mut cursor).unwrap().unwrap();
    assert_eq!(gateway.batch.rows, 10);
    drop(cursor);
    it.finish();
}
