//! What a partition counts about its attributes (Tables 5.5 and 5.6 of 004), by example.

use crate::history::generate;
use crate::history::model::{Table, View};
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AccessStatistics, AttachCursor, AttributeId, Batch, Comparison, Condition, Horizon, Layout, Outcome, PinnedCursor,
    Predicate, Progress, ReadRequest, Schema, SealedSegment, Store, StoreOptions, Test, Timestamp, Value,
};
use std::sync::Arc;
use std::time::Duration;

const KEY: usize = 1;
const TEXT: usize = 2;
const FLAG: usize = 6;
const OTHER: usize = 8;

fn schema() -> Schema {
    let mut schema = generate::schema(&mut SeededRandom::new(1), true);
    (schema.layout, schema.physical, schema.segment_rows) = (Layout::Default, None, 64);
    schema
}

/// Every fourth flag is true, every tenth text is NULL, `other` is the key modulo 100.
fn rows(schema: &Schema, keys: std::ops::Range<i32>) -> Batch {
    let mut random = SeededRandom::new(2);
    let row = |key: i32| {
        let mut row = generate::row(&mut random, schema, i64::from(key));
        (row[KEY], row[7]) = (Value::Int32(key), Value::Null);
        row[FLAG] = Value::Boolean(key % 4 == 0);
        row[TEXT] = if key % 10 == 0 { Value::Null } else { Value::Text("text".into()) };
        row[OTHER] = Value::Int32(key % 100);
        row
    };
    Batch::from_rows(&schema.data_types(), &keys.map(row).collect::<Vec<_>>())
}

fn equal(attribute: usize, value: Value) -> Condition {
    Condition { attribute: AttributeId(attribute as u16), test: Test::Compare(Comparison::Equal, value) }
}

fn request(conditions: Vec<Condition>, desired: &[usize]) -> ReadRequest {
    let desired = desired.iter().map(|id| AttributeId(*id as u16)).collect();
    ReadRequest { predicate: Predicate::new(conditions), desired, order: None }
}

fn view(transaction: u64) -> View {
    View { visible: 100, transaction, statement: 1 }
}

struct Partition {
    store: Store,
    table: Table,
    schema: Schema,
    memory: Arc<MemoryPool>,
}

impl Partition {
    fn new() -> Self {
        let (schema, memory, table) = (schema(), MemoryPool::unlimited(), Table::default());
        table.set(1, Outcome::Committed(Timestamp(5)));
        table.set(2, Outcome::Active);
        let mut store = Store::new(StoreOptions::new(Arc::new(schema.clone()), Arc::clone(&memory)));
        store.insert(&view(1).snapshot(&table), &rows(&schema, 0..1_000)).unwrap();
        while store.maintain(&Horizon { oldest: Timestamp(100), outcomes: &table }, 1_000).more {}
        Self { store, table, schema, memory }
    }

    fn read(&mut self, request: &ReadRequest) -> usize {
        let mut cursor = self.store.open_cursor(request).unwrap();
        let mut found = 0;
        while let Some(gateway) = self.store.next_batch(&view(2).snapshot(&self.table), &mut cursor).unwrap() {
            found += gateway.batch.rows;
        }
        found
    }

    fn statistics(&self) -> AccessStatistics {
        self.store.access_statistics()
    }
}

#[test]
fn records_and_nulls_are_counted_as_they_come() {
    let mut partition = Partition::new();
    let statistics = partition.statistics();
    assert_eq!((statistics.records, statistics.requests), (1_000, 1));
    let nulls: Vec<u64> = statistics.attributes.iter().map(|attribute| attribute.nulls).collect();
    assert_eq!((nulls[KEY], nulls[TEXT], nulls[7]), (0, 100, 1_000));
    assert!(statistics.attributes.iter().all(|attribute| attribute.inserts == 1 && attribute.selectivity.is_none()));
    let loaded = rows(&partition.schema, 1_000..1_100);
    let segment = SealedSegment::build(&partition.schema, &loaded, &partition.memory).unwrap();
    let mut cursor = AttachCursor::default();
    let snapshot = view(2).snapshot(&partition.table);
    while partition.store.attach(&snapshot, &segment, &mut cursor, 1_000).unwrap() == Progress::More {}
    let statistics = partition.statistics();
    assert_eq!((statistics.records, statistics.requests, statistics.attributes[TEXT].nulls), (1_100, 2, 110));
}

#[test]
fn lookups_scans_and_links_are_counted_where_they_happen() {
    let mut partition = Partition::new();
    for key in 0..30 {
        assert_eq!(partition.read(&request(vec![equal(KEY, Value::Int32(key))], &[TEXT, OTHER])), 1);
    }
    let with_flag = vec![equal(KEY, Value::Int32(3)), equal(FLAG, Value::Boolean(true))];
    assert_eq!(partition.read(&request(with_flag, &[TEXT])), 0);
    for _ in 0..5 {
        assert_eq!(partition.read(&request(vec![equal(FLAG, Value::Boolean(true))], &[OTHER])), 250);
    }
    let statistics = partition.statistics();
    let of = |id: usize| &statistics.attributes[id];
    assert_eq!((of(KEY).lookups, of(KEY).scans, of(KEY).links), (31, 0, 0));
    assert_eq!((of(TEXT).lookups, of(TEXT).scans, of(TEXT).links), (0, 0, 30));
    assert_eq!((of(FLAG).lookups, of(FLAG).scans, of(FLAG).links), (1, 5, 1), "tested on one row behind the index");
    assert_eq!(of(OTHER).links, 30 + 5 * 250);
    assert_eq!(of(FLAG).selectivity, Some(0.25));
    assert_eq!(statistics.requests, 1 + 30 + 1 + 5);
    let combination = |ids: &[usize]| {
        let ids: Box<[AttributeId]> = ids.iter().map(|id| AttributeId(*id as u16)).collect();
        statistics.combinations.iter().find(|(known, _)| *known == ids).map(|(_, count)| *count)
    };
    assert_eq!(combination(&[KEY, TEXT, OTHER]), Some(30));
    assert_eq!(combination(&[KEY, TEXT, FLAG]), Some(1));
    assert_eq!(combination(&[FLAG, OTHER]), Some(5));
    assert_eq!(statistics.combinations.len(), 3);
}

#[test]
fn plans_that_are_dropped_leave_their_counts() {
    let mut partition = Partition::new();
    // More shapes than are kept.
    for desired in 0..9 {
        for other in 0..9 {
            partition.read(&request(vec![equal(FLAG, Value::Boolean(true))], &[desired, other]));
        }
    }
    let statistics = partition.statistics();
    assert_eq!((statistics.attributes[FLAG].scans, statistics.requests), (81, 82));
    let links: u64 = statistics.attributes.iter().map(|attribute| attribute.links).sum();
    assert_eq!(links, 2 * 81 * 250);
}

#[test]
fn a_new_horizon_forgets_the_workload_and_keeps_the_data() {
    let mut partition = Partition::new();
    partition.read(&request(vec![equal(FLAG, Value::Boolean(true))], &[OTHER]));
    partition.store.add_processing(Duration::from_micros(7));
    let before = partition.statistics();
    assert_eq!(before.processing, Duration::from_micros(7));
    partition.store.begin_horizon();
    let after = partition.statistics();
    assert_eq!((after.requests, after.processing, after.combinations.len()), (0, Duration::ZERO, 0));
    assert_eq!((after.records, after.attributes[TEXT].nulls), (1_000, 100));
    assert_eq!(after.attributes[FLAG].selectivity, Some(0.25));
    assert!(after.attributes.iter().all(|a| (a.inserts, a.scans, a.lookups, a.links) == (0, 0, 0, 0)));
    partition.read(&request(vec![equal(FLAG, Value::Boolean(true))], &[OTHER]));
    assert_eq!(partition.statistics().attributes[OTHER].links, 250, "a plan from before counts on");
}

#[test]
fn pins_count_what_they_read() {
    let mut partition = Partition::new();
    let wanted = request(vec![equal(FLAG, Value::Boolean(true))], &[OTHER]);
    let snapshot = view(2).snapshot(&partition.table);
    let pin = partition.store.pin(&snapshot);
    let mut found = 0;
    for segment in &pin.segments {
        let mut cursor = PinnedCursor::default();
        while let Some(batch) = segment.scan(&snapshot, &wanted, &mut cursor, 16).unwrap() {
            found += batch.rows as u64;
        }
    }
    assert!(found >= 240);
    let statistics = partition.statistics();
    assert_eq!((statistics.attributes[OTHER].links, statistics.attributes[FLAG].selectivity), (found, Some(0.25)));
}

/// The condition that lets fewer rows through is tested first, whatever the order in which it was written.
#[test]
fn plans_test_the_most_selective_condition_first() {
    let mut partition = Partition::new();
    let both = vec![equal(FLAG, Value::Boolean(true)), equal(OTHER, Value::Int32(4))];
    partition.read(&request(vec![equal(FLAG, Value::Boolean(true))], &[KEY]));
    partition.read(&request(vec![equal(OTHER, Value::Int32(4))], &[KEY]));
    let statistics = partition.statistics();
    // Segments that cannot have a 4 are not examined.
    let selectivity = statistics.attributes[OTHER].selectivity.unwrap();
    assert!((0.01..0.02).contains(&selectivity), "{selectivity}");
    assert_eq!(partition.read(&request(both.clone(), &[KEY])), 10);
    let cursor = partition.store.open_cursor(&request(both, &[KEY])).unwrap();
    assert_eq!(cursor.tested_order(), [1, 0]);
}
