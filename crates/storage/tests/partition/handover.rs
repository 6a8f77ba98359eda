//! All rows of a store go to another one that is in use: hidden until the switch, gone if it is abandoned.

use crate::history::generate;
use crate::history::model::{Table, View};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AttributeId, Batch, COLUMN, Horizon, Layout, Outcome, PhysicalLayout, Predicate, ReadRequest, RowAddress, RowLock,
    Schema, SegmentLayouts, SplitMoved, SplitStep, StorageError, Store, StoreOptions, Timestamp, TransactionId, Value,
};
use std::sync::Arc;

/// Two stores of one schema, with keys 0..200 and 1000..1300, and who committed.
struct Neighbours {
    survivor: Store,
    source: Store,
    table: Table,
    schema: Schema,
}

const KEY: AttributeId = AttributeId(1);

fn view(transaction: u64) -> View {
    View { visible: 100, transaction, statement: 1 }
}

fn rows(schema: &Schema, keys: std::ops::Range<i32>) -> Batch {
    let mut random = SeededRandom::new(keys.start as u64);
    let row = |key: i32| {
        let mut row = generate::row(&mut random, schema, i64::from(key));
        (row[1], row[7]) = (Value::Int32(key), Value::Null);
        row
    };
    let rows: Vec<Vec<Value>> = keys.map(row).collect();
    Batch::from_rows(&schema.data_types(), &rows)
}

impl Neighbours {
    fn new(memory: &Arc<MemoryPool>) -> Self {
        let mut schema = generate::schema(&mut SeededRandom::new(5), true);
        (schema.layout, schema.physical) = (Layout::Default, None);
        schema.segment_rows = 16;
        let store = || Store::new(StoreOptions::new(Arc::new(schema.clone()), Arc::clone(memory)));
        let (mut survivor, mut source) = (store(), store());
        let table = Table::default();
        table.set(1, Outcome::Committed(Timestamp(5)));
        survivor.insert(&view(1).snapshot(&table), &rows(&schema, 0..200)).unwrap();
        source.insert(&view(1).snapshot(&table), &rows(&schema, 1_000..1_300)).unwrap();
        let mut both = Self { survivor, source, table, schema };
        both.maintain();
        both
    }

    fn maintain(&mut self) {
        let horizon = Horizon { oldest: Timestamp(100), outcomes: &self.table };
        for store in [&mut self.survivor, &mut self.source] {
            while store.maintain(&horizon, 100).more {}
        }
    }

    fn begin(&mut self) {
        self.survivor.begin_absorbing().unwrap();
        self.source.begin_handover(true).unwrap();
    }

    fn merge(&mut self) -> SplitMoved {
        self.begin();
        let moved = loop {
            if let SplitStep::Done(moved) = self.source.split_step(&mut self.survivor, 60).unwrap() {
                break moved;
            }
        };
        self.survivor.end_absorbing();
        moved
    }

    /// Locks all rows of a store.
    fn lock(&mut self, transaction: u64, in_source: bool, skip: bool) -> Result<usize, StorageError> {
        let view = View { statement: 2, ..view(transaction) };
        let store = if in_source { &mut self.source } else { &mut self.survivor };
        let request = ReadRequest { predicate: Predicate::new([]), desired: [KEY].into(), order: None };
        let mut cursor = store.open_cursor(&request).unwrap();
        let mut addresses: Vec<RowAddress> = Vec::new();
        while let Some(gateway) = store.next_batch(&view.snapshot(&self.table), &mut cursor).unwrap() {
            addresses.extend_from_slice(&gateway.addresses);
        }
        store.close_cursor(cursor);
        let locked = store.lock_rows(&view.snapshot(&self.table), &addresses, RowLock::Share, skip)?;
        Ok(locked.rows.len())
    }

    /// Keys that a transaction sees in the survivor and in the source.
    fn keys(&mut self, transaction: u64) -> (Vec<i32>, Vec<i32>) {
        let view = View { statement: 2, ..view(transaction) };
        let request = ReadRequest { predicate: Predicate::new([]), desired: [KEY].into(), order: None };
        let [survivor, source] = [&mut self.survivor, &mut self.source].map(|store| {
            let mut cursor = store.open_cursor(&request).unwrap();
            let mut keys = Vec::new();
            while let Some(gateway) = store.next_batch(&view.snapshot(&self.table), &mut cursor).unwrap() {
                keys.extend((0..gateway.batch.rows).map(|row| match gateway.batch.value(row, 0) {
                    Value::Int32(key) => key,
                    other => panic!("a key is an integer: {other:?}"),
                }));
            }
            store.close_cursor(cursor);
            keys.sort_unstable();
            keys
        });
        (survivor, source)
    }
}

#[test]
fn rows_are_hidden_in_the_survivor_until_the_switch() {
    let memory = MemoryPool::unlimited();
    let mut both = Neighbours::new(&memory);
    both.begin();
    // An undecided insert and a delete while rows are on their way.
    both.table.set(2, Outcome::Active);
    for round in 0..4 {
        assert_eq!(both.source.copy_step(&mut both.survivor, 60), Ok(false));
        let (survivor, source) = both.keys(9);
        assert!(survivor.iter().copied().eq(0..200) && source.iter().copied().eq(1_000..1_300), "round {round}");
        both.maintain();
    }
    both.source.insert(&view(2).snapshot(&both.table), &rows(&both.schema, 1_300..1_310)).unwrap();
    let moved = loop {
        if let SplitStep::Done(moved) = both.source.split_step(&mut both.survivor, 60).unwrap() {
            break moved;
        }
    };
    both.survivor.end_absorbing();
    assert_eq!(moved.rows, 310);
    assert_eq!(moved.transactions_now_in_target.len(), 1, "the undecided insert is settled in the survivor, too");
    let committed: Vec<i32> = (0..200).chain(1_000..1_300).collect();
    assert_eq!(both.keys(9), (committed.clone(), Vec::new()));
    let own: Vec<i32> = (0..200).chain(1_000..1_310).collect();
    assert_eq!(both.keys(2), (own, Vec::new()), "the writer sees its rows where they are now");
    both.table.set(2, Outcome::Aborted);
    both.maintain();
    assert_eq!(both.keys(9), (committed, Vec::new()));
    let (survivor, source) = (both.survivor.statistics(), both.source.statistics());
    assert_eq!((survivor.rows_live_estimate, source.rows_live_estimate), (500, 0));
    assert_eq!(source.index_entries, 0, "nothing is left in the source");
}

#[test]
fn an_abandoned_handover_leaves_nothing_in_the_survivor() {
    let memory = MemoryPool::unlimited();
    let mut both = Neighbours::new(&memory);
    let before = both.survivor.statistics();
    both.begin();
    assert_eq!(both.source.copy_step(&mut both.survivor, 200), Ok(false));
    assert!(both.survivor.statistics().index_entries > before.index_entries, "copies have index entries");
    both.source.abandon_handover(&mut both.survivor);
    both.survivor.end_absorbing();
    both.maintain();
    let (survivor, source) = both.keys(9);
    assert!(survivor.into_iter().eq(0..200) && source.into_iter().eq(1_000..1_300));
    let after = both.survivor.statistics();
    assert_eq!(after.index_entries, before.index_entries, "entries of the copies are removed");
    assert_eq!(after.rows_live_estimate, before.rows_live_estimate);
    // It may be tried again.
    both.begin();
    while !matches!(both.source.split_step(&mut both.survivor, 60).unwrap(), SplitStep::Done(_)) {}
    both.survivor.end_absorbing();
    assert_eq!(both.keys(9).0.len(), 500);
}

#[test]
fn a_store_takes_part_in_one_change_at_a_time() {
    let memory = MemoryPool::unlimited();
    let mut both = Neighbours::new(&memory);
    both.begin();
    let busy = |result| matches!(result, Err(StorageError::Busy { .. }));
    assert!(busy(both.survivor.begin_absorbing()) && busy(both.survivor.begin_handover(false)));
    assert!(busy(both.source.begin_absorbing()) && busy(both.source.begin_handover(true)));
}

#[test]
fn row_locks_go_where_their_rows_go() {
    let memory = MemoryPool::unlimited();
    let mut both = Neighbours::new(&memory);
    both.table.set(2, Outcome::Active);
    both.table.set(3, Outcome::Active);
    assert_eq!(both.lock(2, true, false), Ok(300));
    let moved = both.merge();
    assert_eq!(moved.transactions_now_in_target, [TransactionId(2)], "its holder is settled in the survivor, too");
    assert!(both.survivor.has_pending(TransactionId(2)));
    // Shared with another one, and in the way of a writer.
    assert_eq!(both.lock(3, false, false), Ok(500));
    let write = |both: &mut Neighbours| {
        let view = View { statement: 2, ..view(2) };
        let request = ReadRequest { predicate: Predicate::new([]), desired: [KEY].into(), order: None };
        let mut cursor = both.survivor.open_cursor(&request).unwrap();
        let first = both.survivor.next_batch(&view.snapshot(&both.table), &mut cursor).unwrap().unwrap();
        both.survivor.close_cursor(cursor);
        both.survivor.delete(&view.snapshot(&both.table), &first.addresses)
    };
    let holder = write(&mut both).expect_err("somebody else shares the rows").undecided();
    assert_eq!(holder.map(|holder| holder.transaction), Some(TransactionId(3)));
    both.table.set(2, Outcome::Aborted);
    both.table.set(3, Outcome::Aborted);
    both.maintain();
    assert!(!both.survivor.has_pending(TransactionId(2)) && !both.source.has_pending(TransactionId(2)));
    let Neighbours { survivor, source, .. } = both;
    drop((survivor, source));
    assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
}

#[test]
fn layouts_set_by_hand_go_along_unless_the_survivor_has_its_own() {
    let memory = MemoryPool::unlimited();
    let both = Neighbours::new(&memory);
    let attributes = both.schema.attributes.len();
    let columns = || PhysicalLayout::single(COLUMN, attributes);
    let by_hand = Arc::new(SegmentLayouts { open: columns(), sealed: columns() });
    for own in [false, true] {
        let mut both = Neighbours::new(&memory);
        both.source.set_layouts(Some(Arc::clone(&by_hand))).unwrap();
        let other = PhysicalLayout::single(eris_storage::ROW_STATIC, attributes);
        let other = Arc::new(SegmentLayouts { open: other, sealed: columns() });
        if own {
            both.survivor.set_layouts(Some(Arc::clone(&other))).unwrap();
        }
        both.merge();
        assert_eq!(both.survivor.layouts(), Some(if own { &other } else { &by_hand }));
        both.maintain();
        assert_eq!(both.keys(9).0.len(), 500);
    }
}
