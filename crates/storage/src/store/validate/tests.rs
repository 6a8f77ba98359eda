//! Each disagreement is planted and told; and what a look costs when keys repeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::error::StorageError;
use crate::ids::{ContainerId, IndexId, SchemaVersion};
use crate::key::KeyPart;
use crate::modules::{IndexPath, Inserted};
use crate::mvcc::{Outcome, Outcomes, Snapshot, StatementNumber, Timestamp, TransactionId};
use crate::schema::{Attribute, IndexDefinition, IndexKind, Layout, Schema};
use crate::store::{Horizon, StoreOptions};
use crate::types::DataType;
use crate::value::Value;
use eris_platform::memory::MemoryPool;

/// Everything committed at once.
struct Committed;

impl Outcomes for Committed {
    fn outcome(&self, _transaction: TransactionId, _statement: StatementNumber) -> Outcome {
        Outcome::Committed(Timestamp(1))
    }
}

/// Rows with keys 0 to 9 and a number that three of them share each.
fn filled(kind: IndexKind) -> Store {
    filled_with(kind, 10, 4, |key| key / 3)
}

/// Rows with ascending keys and a number each.
fn filled_with(kind: IndexKind, rows: i64, segment_rows: u32, number: impl Fn(i64) -> i64) -> Store {
    let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
    let index = |id, name: &str, unique| IndexDefinition {
        id: IndexId(id),
        name: name.into(),
        attributes: Box::new([AttributeId(id as u16)]),
        unique,
        primary: unique,
        kind,
    };
    let schema = Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: Box::new([attribute("key"), attribute("number")]),
        indexes: Box::new([index(0, "by_key", true), index(1, "by_number", false)]),
        layout: Layout::Row,
        physical: None,
        segment_rows,
    };
    let mut store = Store::new(StoreOptions::new(Arc::new(schema), MemoryPool::unlimited()));
    let (transaction, statement) = (TransactionId(7), StatementNumber(1));
    let snapshot = Snapshot { visible: Timestamp(0), transaction, statement, outcomes: &Committed };
    let rows: Vec<Vec<Value>> = (0..rows).map(|key| vec![Value::Int64(key), Value::Int64(number(key))]).collect();
    for some in rows.chunks(segment_rows as usize) {
        store.insert(&snapshot, &Batch::from_rows(&[DataType::Int64; 2], some)).unwrap();
    }
    store.maintain(&Horizon { oldest: Timestamp(1), outcomes: &Committed }, 100_000);
    store
}

fn wrong(store: &Store) -> String {
    store.check_indexes().expect_err("an index disagrees with the rows")
}

#[test]
fn indexes_that_agree_with_the_rows_pass() {
    for kind in [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted] {
        let store = filled(kind);
        assert_eq!((store.check_indexes(), store.check_quiet()), (Ok(()), Ok(())));
    }
}

#[test]
fn a_row_without_an_entry_is_found() {
    for kind in [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted] {
        let mut store = filled(kind);
        let row = RowAddress::new(crate::ids::SegmentNumber(1), RowOffset(2));
        let columns = store.link_attributes(&[AttributeId(1)], &[row]);
        assert!(store.index_at_mut(1).path.remove(&columns, 0, row));
        assert!(wrong(&store).contains("is live and has no entry"), "{}", wrong(&store));
    }
}

#[test]
fn an_entry_under_another_key_is_found() {
    for kind in [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted] {
        let mut store = filled(kind);
        let row = RowAddress::new(crate::ids::SegmentNumber(0), RowOffset(0));
        let other = RowAddress::new(crate::ids::SegmentNumber(2), RowOffset(0));
        let columns = store.link_attributes(&[AttributeId(1)], &[row, other]);
        let path = &mut store.index_at_mut(1).path;
        assert!(path.remove(&columns, 0, row));
        path.insert(&columns, 1, row).unwrap();
        assert!(wrong(&store).contains("has another key"), "{}", wrong(&store));
    }
}

#[test]
fn an_entry_for_a_row_that_is_gone_is_found() {
    let mut store = filled(IndexKind::Ordered);
    let row = RowAddress::new(crate::ids::SegmentNumber(1), RowOffset(2));
    store.segment_mut(row.segment()).unwrap().vacate(2);
    assert!(wrong(&store).contains("which is not there"), "{}", wrong(&store));
}

#[test]
fn a_key_of_two_rows_is_found() {
    let mut store = filled(IndexKind::Ordered);
    let rows = Batch::from_rows(&[DataType::Int64; 2], &[vec![Value::Int64(3), Value::Int64(1)]]);
    // As a copy from another store, which nobody checks.
    let words = [(Word::timestamp(Timestamp(1)), Word::NEVER)];
    store.take_rows(&rows, &words).unwrap();
    assert!(wrong(&store).contains("are live and have one key"), "{}", wrong(&store));
}

#[test]
fn what_a_transaction_left_behind_is_found() {
    let mut store = filled(IndexKind::Ordered);
    store.pending.enter(TransactionId(9));
    assert_eq!(store.check_quiet(), Err("words of transactions remain".to_owned()));
}

#[test]
fn a_schema_whose_index_was_not_built_changes_nothing() {
    let mut store = filled(IndexKind::Ordered);
    let before = Arc::clone(store.schema());
    let mut indexes = before.indexes.to_vec();
    indexes.push(IndexDefinition { id: IndexId(2), name: "new".into(), ..indexes[1].clone() });
    let next = Schema { version: SchemaVersion(2), indexes: indexes.into(), ..(*before).clone() };
    assert!(store.set_schema(Arc::new(next)).is_err());
    assert_eq!((store.schema().version, store.indexes.len()), (SchemaVersion(1), 2));
    assert_eq!(store.check_indexes(), Ok(()));
}

/// An index that counts what is asked of it.
struct Counting {
    path: Box<dyn IndexPath>,
    /// Searches for a key, and entries that they visited.
    searches: Arc<AtomicU64>,
    visited: Arc<AtomicU64>,
}

impl IndexPath for Counting {
    fn module(&self) -> &'static str {
        self.path.module()
    }

    fn insert(&mut self, columns: &[Column], row: usize, address: RowAddress) -> Result<Inserted, StorageError> {
        self.path.insert(columns, row, address)
    }

    fn remove(&mut self, columns: &[Column], row: usize, address: RowAddress) -> bool {
        self.path.remove(columns, row, address)
    }

    fn scan(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        self.path.scan(state, rows_max, found)
    }

    fn equal(&self, columns: &[Column], row: usize, visit: &mut dyn FnMut(RowAddress)) {
        self.searches.fetch_add(1, Ordering::Relaxed);
        self.path.equal(columns, row, &mut |found| {
            self.visited.fetch_add(1, Ordering::Relaxed);
            visit(found);
        });
    }

    fn share(&self, lower: &Key, upper: Option<&Key>) -> f64 {
        self.path.share(lower, upper)
    }

    fn parts(&self) -> &[KeyPart] {
        self.path.parts()
    }

    fn sample(&self, count: usize) -> Vec<Key> {
        self.path.sample(count)
    }

    fn entries(&self) -> u64 {
        self.path.entries()
    }

    fn bytes(&self) -> u64 {
        self.path.bytes()
    }
}

/// 6,000 rows of three keys: each key is searched once, and each entry visited once.
#[test]
fn keys_that_repeat_cost_no_more_than_others() {
    for kind in [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted] {
        let mut store = filled_with(kind, 6_000, 1_024, |key| key % 3);
        let (searches, visited) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let StoreIndex { definition, path } = store.indexes.remove(1);
        let path = Box::new(Counting { path, searches: Arc::clone(&searches), visited: Arc::clone(&visited) });
        store.indexes.push(StoreIndex { definition, path });
        assert_eq!(store.check_indexes(), Ok(()));
        let counted = (searches.load(Ordering::Relaxed), visited.load(Ordering::Relaxed));
        assert_eq!(counted, (3, 6_000), "{kind:?}");
    }
}
