//! A small partition with rows of one open segment, read in every way there is.

use crate::history::model::{Table, View};
use eris_platform::memory::MemoryPool;
use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, DataType, Horizon, IndexDefinition, IndexId,
    IndexKind, Layout, LookupRequest, Outcome, PackedRows, Predicate, ReadRequest, RowAddress, Schema, SchemaVersion,
    StorageError, Store, StoreCounters, StoreOptions, Test, Timestamp, Value, Written,
};
use std::sync::Arc;

pub const KEY: AttributeId = AttributeId(0);
pub const AMOUNT: AttributeId = AttributeId(1);
pub const NAME: AttributeId = AttributeId(2);
pub const GROUP: AttributeId = AttributeId(3);

pub fn index(id: u32, attribute: AttributeId, unique: bool) -> IndexDefinition {
    IndexDefinition {
        id: IndexId(id),
        name: format!("index {id}").into(),
        attributes: [attribute].into(),
        unique,
        primary: unique,
        kind: IndexKind::Ordered,
    }
}

pub fn schema() -> Schema {
    let attribute = |name: &str, data_type, nullable| Attribute { name: name.into(), data_type, nullable };
    Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: [
            attribute("key", DataType::Int32, false),
            attribute("amount", DataType::Int64, true),
            attribute("name", DataType::Text, true),
            attribute("group", DataType::Int32, false),
        ]
        .into(),
        indexes: [index(1, KEY, true), index(2, GROUP, false)].into(),
        layout: Layout::Default,
        physical: None,
        segment_rows: 16,
    }
}

/// A store with keys 0..10 of amount 0, committed at 5, and who committed.
pub struct Fixture {
    pub memory: Arc<MemoryPool>,
    pub store: Store,
    pub table: Table,
}

/// A transaction that sees commits up to `visible`, in this statement.
pub fn view(transaction: u64, visible: u64, statement: u32) -> View {
    View { visible, transaction, statement }
}

/// A reader that writes nothing.
pub fn reader(visible: u64) -> View {
    view(1_000, visible, 1)
}

pub fn rows(keys: std::ops::Range<i32>) -> Batch {
    let row = |key: i32| vec![Value::Int32(key), Value::Int64(0), Value::Text("n".into()), Value::Int32(key % 3)];
    Batch::from_rows(&schema().data_types(), &keys.map(row).collect::<Vec<_>>())
}

pub fn equal(attribute: AttributeId, value: Value) -> Condition {
    Condition { attribute, test: Test::Compare(Comparison::Equal, value) }
}

pub fn amounts(batch: &Batch, column: usize) -> Vec<Option<i64>> {
    let amount = |row| match batch.value(row, column) {
        Value::Int64(amount) => Some(amount),
        Value::Null => None,
        other => panic!("{other:?} is no amount"),
    };
    (0..batch.rows).map(amount).collect()
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(true)
    }

    pub fn with(updates_in_place: bool) -> Self {
        let memory = MemoryPool::unlimited();
        let options = StoreOptions::new(Arc::new(schema()), Arc::clone(&memory));
        let store = Store::new(StoreOptions { updates_in_place, ..options });
        let mut fixture = Self { memory, store, table: Table::default() };
        fixture.table.set(1_000, Outcome::Active);
        fixture.begin(1);
        fixture.store.insert(&view(1, 4, 1).snapshot(&fixture.table), &rows(0..10)).unwrap();
        fixture.commit(1, 5);
        fixture.maintain(5);
        fixture
    }

    pub fn begin(&mut self, transaction: u64) {
        self.table.set(transaction, Outcome::Active);
    }

    pub fn commit(&mut self, transaction: u64, at: u64) {
        self.table.set(transaction, Outcome::Committed(Timestamp(at)));
    }

    pub fn abort(&mut self, transaction: u64) {
        self.table.set(transaction, Outcome::Aborted);
    }

    pub fn maintain(&mut self, oldest: u64) {
        let horizon = Horizon { oldest: Timestamp(oldest), outcomes: &self.table };
        while self.store.maintain(&horizon, 100).more {}
    }

    pub fn counters(&self) -> StoreCounters {
        self.store.statistics().counters
    }

    pub fn images(&self) -> u64 {
        self.store.statistics().before_images
    }

    pub fn image_bytes(&self) -> u64 {
        self.memory.by_consumer().iter().filter(|(name, _)| **name == *"before-images").map(|(_, bytes)| *bytes).sum()
    }

    pub fn addresses(&mut self, view: View, key: i32) -> Vec<RowAddress> {
        let predicate = Predicate::new([equal(KEY, Value::Int32(key))]);
        let request = ReadRequest { predicate, desired: [KEY].into(), order: None };
        let mut cursor = self.store.open_cursor(&request).unwrap();
        let mut found = Vec::new();
        while let Some(gateway) = self.store.next_batch(&view.snapshot(&self.table), &mut cursor).unwrap() {
            found.extend_from_slice(&gateway.addresses);
        }
        found
    }

    pub fn set(&mut self, view: View, key: i32, attribute: AttributeId, value: Value) -> Result<Written, StorageError> {
        let addresses = self.addresses(view, key);
        self.set_at(view, &addresses, attribute, value)
    }

    pub fn set_at(
        &mut self,
        view: View,
        rows: &[RowAddress],
        attribute: AttributeId,
        value: Value,
    ) -> Result<Written, StorageError> {
        let data_type = self.store.schema().attributes[attribute.index()].data_type;
        let new = Batch::from_rows(&[data_type], &vec![vec![value]; rows.len()]);
        self.store.update(&view.snapshot(&self.table), rows, &[attribute], &new)
    }

    pub fn set_amount(&mut self, view: View, key: i32, amount: i64) -> Result<Written, StorageError> {
        self.set(view, key, AMOUNT, Value::Int64(amount))
    }

    /// Updates and commits.
    pub fn change(&mut self, transaction: u64, key: i32, amount: i64, at: u64) {
        self.begin(transaction);
        assert_eq!(self.set_amount(view(transaction, at - 1, 1), key, amount).unwrap().rows, 1);
        self.commit(transaction, at);
    }

    pub fn read(&mut self, view: View, conditions: Vec<Condition>, desired: &[AttributeId]) -> Batch {
        let request = ReadRequest { predicate: Predicate::new(conditions), desired: desired.into(), order: None };
        let mut cursor = self.store.open_cursor(&request).unwrap();
        let mut all = Vec::new();
        while let Some(gateway) = self.store.next_batch(&view.snapshot(&self.table), &mut cursor).unwrap() {
            assert_eq!(gateway.addresses.len(), gateway.batch.rows);
            all.extend((0..gateway.batch.rows).map(|row| gateway.batch.row(row)));
        }
        let types: Vec<_> = desired.iter().map(|id| self.store.schema().attributes[id.index()].data_type).collect();
        Batch::from_rows(&types, &all)
    }

    /// The amounts of the rows with a key, found in every way there is.
    pub fn amounts_of(&mut self, view: View, key: i32) -> Vec<Option<i64>> {
        let by_key = || vec![equal(KEY, Value::Int32(key))];
        let found = amounts(&self.read(view, by_key(), &[NAME, AMOUNT]), 1);
        // Scanned, as the comparison of an index and without one.
        let scanned = self.read(view, vec![], &[AMOUNT, KEY]);
        let same_key = |row: &usize| scanned.value(*row, 1) == Value::Int32(key);
        let scanned: Vec<_> = (0..scanned.rows).filter(same_key).map(|row| amounts(&scanned, 0)[row]).collect();
        assert_eq!(scanned, found, "scanned");
        // The condition on the amount is tested behind the index, and by a scan.
        for amount in &found {
            let test = amount.map_or(Test::IsNull, |it| Test::Compare(Comparison::Equal, Value::Int64(it)));
            let condition = Condition { attribute: AMOUNT, test };
            let behind = self.read(view, [by_key(), vec![condition.clone()]].concat(), &[AMOUNT]);
            assert_eq!(amounts(&behind, 0), found, "tested behind the index");
            let not_null = Condition { attribute: AMOUNT, test: Test::IsNotNull };
            let other = amount.map_or(not_null, |it| equal(AMOUNT, Value::Int64(it + 10)));
            let behind = self.read(view, [by_key(), vec![other]].concat(), &[AMOUNT]);
            assert_eq!(behind.rows, 0, "other amounts are not found behind the index");
            let by_amount = self.read(view, vec![condition], &[KEY]);
            let hits = (0..by_amount.rows).filter(|row| by_amount.value(*row, 0) == Value::Int32(key)).count();
            assert_eq!(hits, found.len(), "found by its amount");
        }
        let snapshot = view.snapshot(&self.table);
        let predicate = Predicate::new(by_key());
        let request = ReadRequest { predicate, desired: [KEY, AMOUNT].into(), order: None };
        let mut packed = PackedRows::default();
        assert!(self.store.read_rows(&snapshot, &request, 64, &mut packed).unwrap());
        assert_eq!(amounts(&packed.to_batch(), 1), found, "read row-wise");
        let request = LookupRequest { attributes: [KEY].into(), desired: [AMOUNT].into() };
        let keys = Batch::from_rows(&[DataType::Int32], &[vec![Value::Int32(key)]]);
        let mut cursor = self.store.open_lookup(&request, &keys).unwrap();
        let mut looked_up = Vec::new();
        while let Some(more) = self.store.next_found(&snapshot, &mut cursor).unwrap() {
            looked_up.extend(amounts(&more.batch, 0));
        }
        assert_eq!(looked_up, found, "looked up");
        found
    }

    pub fn amount(&mut self, view: View, key: i32) -> Option<i64> {
        let found = self.amounts_of(view, key);
        assert_eq!(found.len(), 1, "key {key} is there once for {view:?}");
        found[0]
    }

    /// Everything settled and freed, no byte is left.
    pub fn finish(mut self) {
        self.maintain(900);
        assert_eq!((self.images(), self.image_bytes()), (0, 0));
        let Self { memory, store, .. } = self;
        drop(store);
        assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
    }
}

pub fn holder(result: Result<Written, StorageError>) -> Option<u64> {
    result.expect_err("somebody holds the row").undecided().map(|holder| holder.transaction.0)
}
