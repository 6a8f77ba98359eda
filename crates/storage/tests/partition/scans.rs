//! Scans of segments of many windows: every row once and in order, and few rows of many windows in one batch.

use crate::history::generate;
use crate::history::model::{Table, View};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AttributeId, BATCH_ROWS, Batch, Comparison, Condition, Horizon, Layout, Outcome, Predicate, ReadRequest,
    RowAddress, Schema, Store, StoreOptions, Test, Timestamp, Value,
};
use std::sync::Arc;

const KEY: u16 = 1;
const OTHER: u16 = 8;
const WINDOWS: usize = 16;
/// Of a segment, and so many rows more are in the next one.
const ROWS: usize = WINDOWS * BATCH_ROWS;
const ROWS_MORE: usize = BATCH_ROWS + 100;

fn view(transaction: u64) -> View {
    View { visible: 100, transaction, statement: 1 }
}

struct Partition {
    store: Store,
    table: Table,
}

impl Partition {
    /// Keys from 0, and `other` is 1 where `qualifies` says so.
    fn new(sealed: bool, qualifies: impl Fn(usize) -> bool) -> Self {
        let mut schema: Schema = generate::schema(&mut SeededRandom::new(1), false);
        (schema.layout, schema.physical) = (if sealed { Layout::Column } else { Layout::Row }, None);
        schema.segment_rows = if sealed { ROWS as u32 } else { 4 * ROWS as u32 };
        let table = Table::default();
        table.set(1, Outcome::Committed(Timestamp(5)));
        let mut store = Store::new(StoreOptions::new(Arc::new(schema.clone()), MemoryPool::unlimited()));
        let template = generate::row(&mut SeededRandom::new(2), &schema, 0);
        let row = |key: usize| {
            let mut row = template.clone();
            row[usize::from(KEY)] = Value::Int32(key as i32);
            row[usize::from(OTHER)] = Value::Int32(qualifies(key).into());
            row
        };
        let rows: Vec<Vec<Value>> = (0..ROWS + ROWS_MORE).map(row).collect();
        for rows in rows.chunks(BATCH_ROWS) {
            store.insert(&view(1).snapshot(&table), &Batch::from_rows(&schema.data_types(), rows)).unwrap();
        }
        while sealed && store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 100_000).more {}
        assert_eq!(store.statistics().sealed_segments > 0, sealed);
        Self { store, table }
    }

    /// The keys of what qualifies, where they lie, and how many rows each batch had.
    fn scan(&mut self) -> (Vec<usize>, Vec<RowAddress>, Vec<usize>) {
        let test = Test::Compare(Comparison::Equal, Value::Int32(1));
        let predicate = Predicate::new(vec![Condition { attribute: AttributeId(OTHER), test }]);
        let desired = [AttributeId(KEY), AttributeId(OTHER)].into();
        let request = ReadRequest { predicate, desired, order: None };
        let (mut keys, mut addresses, mut batches) = (Vec::new(), Vec::new(), Vec::new());
        let mut cursor = self.store.open_cursor(&request).unwrap();
        while let Some(gateway) = self.store.next_batch(&view(2).snapshot(&self.table), &mut cursor).unwrap() {
            assert_eq!(gateway.addresses.len(), gateway.batch.rows);
            for row in 0..gateway.batch.rows {
                let [Value::Int32(key), Value::Int32(1)] = gateway.batch.row(row)[..] else { panic!("row {row}") };
                keys.push(key as usize);
            }
            addresses.extend_from_slice(&gateway.addresses);
            batches.push(gateway.batch.rows);
        }
        self.store.close_cursor(cursor);
        (keys, addresses, batches)
    }
}

#[test]
fn few_rows_of_many_windows_are_one_batch() {
    for sealed in [true, false] {
        let mut partition = Partition::new(sealed, |key| key % 64 == 0);
        let (keys, _, batches) = partition.scan();
        assert!(keys.iter().copied().eq((0..ROWS + ROWS_MORE).step_by(64)), "{sealed}");
        // Eight windows of 32 rows each, twice; then what the other segment has, or what is left of the only one.
        assert_eq!(batches, [256, 256, 34], "{sealed}");
        let history = partition.store.access_statistics();
        assert_eq!(history.attributes[usize::from(OTHER)].selectivity, Some(546.0 / (ROWS + ROWS_MORE) as f64));
    }
}

#[test]
fn a_window_that_would_not_fit_is_the_next_batch() {
    let dense = |key: usize| key / BATCH_ROWS % 4 == 3 && key % BATCH_ROWS > 5;
    let mut partition = Partition::new(true, |key| dense(key) || key % BATCH_ROWS % 100 == 50);
    let (keys, _, batches) = partition.scan();
    assert_eq!(keys.len(), batches.iter().sum::<usize>());
    assert_eq!(batches[..4], [60, BATCH_ROWS - 6, 60, BATCH_ROWS - 6]);
}

#[test]
fn whatever_a_window_holds_each_row_comes_once() {
    for seed in 0..12 {
        let mut random = SeededRandom::new(seed);
        let shares: Vec<f64> = (0..WINDOWS + 2).map(|_| [0.0, 0.01, 0.2, 0.9, 1.0][random.index(5)]).collect();
        let mut qualifying: Vec<bool> =
            (0..ROWS + ROWS_MORE).map(|key| random.chance(shares[key / BATCH_ROWS])).collect();
        let mut partition = Partition::new(seed % 2 == 0, |key| qualifying[key]);
        let (keys, addresses, _) = partition.scan();
        let expected = |qualifying: &[bool]| (0..qualifying.len()).filter(|key| qualifying[*key]).collect::<Vec<_>>();
        assert_eq!(keys, expected(&qualifying), "seed {seed}");

        // Some are deleted for all; others are deleted or changed by somebody who has not committed.
        let (mut deleted, mut touched) = (Vec::new(), Vec::new());
        for (key, address) in keys.iter().zip(&addresses) {
            match random.index(40) {
                0..4 => {
                    deleted.push(*address);
                    qualifying[*key] = false;
                }
                4 => touched.push(*address),
                _ => {}
            }
        }
        partition.table.set(3, Outcome::Committed(Timestamp(50)));
        partition.table.set(4, Outcome::Active);
        partition.store.delete(&view(3).snapshot(&partition.table), &deleted).unwrap();
        let (gone, changed) = touched.split_at(touched.len() / 2);
        partition.store.delete(&view(4).snapshot(&partition.table), gone).unwrap();
        let zeros: Vec<Vec<Value>> = changed.iter().map(|_| vec![Value::Int32(0)]).collect();
        let new = Batch::from_rows(&[eris_storage::DataType::Int32], &zeros);
        partition.store.update(&view(4).snapshot(&partition.table), changed, &[AttributeId(OTHER)], &new).unwrap();
        let (mut keys, _, batches) = partition.scan();
        // Versions of rows that were changed lie elsewhere.
        keys.sort_unstable();
        assert_eq!(keys, expected(&qualifying), "seed {seed}");
        assert!(batches.iter().all(|rows| *rows <= BATCH_ROWS), "seed {seed}: {batches:?}");
    }
}
