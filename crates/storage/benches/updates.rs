//! What an update by key costs, in place and by a new version: `cargo bench -p eris-storage --bench updates`. Prints
//! the two in turns, so that what else the machine does hits both alike; `--test` runs it with tiny inputs.
//!
//! `--count N --in-place 0|1` does N updates of the first kind and nothing else, for a count of instructions: that of
//! 2 N less that of N.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    Attribute, AttributeId, Batch, ColumnBuilder, Comparison, Condition, ContainerId, DataType, Horizon,
    IndexDefinition, IndexId, IndexKind, Layout, Outcome, Outcomes, Predicate, ReadRequest, Schema, SchemaVersion,
    Snapshot, StatementNumber, Store, StoreOptions, Test, Timestamp, TransactionId, Value,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The transaction that is under way; all others have committed at their own number.
static ACTIVE: AtomicU64 = AtomicU64::new(0);

struct Committed;

impl Outcomes for Committed {
    fn outcome(&self, transaction: TransactionId, _statement: StatementNumber) -> Outcome {
        let active = ACTIVE.load(Ordering::Relaxed) == transaction.0;
        if active { Outcome::Active } else { Outcome::Committed(Timestamp(transaction.0)) }
    }
}

fn snapshot(transaction: u64) -> Snapshot<'static> {
    Snapshot {
        visible: Timestamp(transaction - 1),
        transaction: TransactionId(transaction),
        statement: StatementNumber(1),
        outcomes: &Committed,
    }
}

const KEY: AttributeId = AttributeId(0);
/// A counter, a flag and eight further integers: what TATP's subscribers have in small.
const ATTRIBUTES: u16 = 10;

fn schema() -> Arc<Schema> {
    let attribute = |id: u16| Attribute {
        name: format!("a{id}").into(),
        data_type: if id == 2 { DataType::Boolean } else { DataType::Int32 },
        nullable: false,
    };
    let index = |id: u32, attribute: u16, kind| IndexDefinition {
        id: IndexId(id),
        name: format!("i{id}").into(),
        attributes: [AttributeId(attribute)].into(),
        unique: true,
        primary: id == 1,
        kind,
    };
    Arc::new(Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: (0..ATTRIBUTES).map(attribute).collect(),
        indexes: [index(1, 0, IndexKind::Hash), index(2, 9, IndexKind::Ordered)].into(),
        layout: Layout::Default,
        physical: None,
        segment_rows: 1 << 16,
    })
}

fn rows(schema: &Schema, keys: std::ops::Range<i32>) -> Batch {
    let columns = schema.attributes.iter().map(|attribute| {
        let mut column = ColumnBuilder::with_capacity(attribute.data_type, keys.len());
        for key in keys.clone() {
            match attribute.data_type {
                DataType::Boolean => column.push_bool((key & 1) as u8),
                _ => column.push_i32(key),
            }
        }
        column.finish()
    });
    Batch::new(columns.collect::<Vec<_>>(), keys.len())
}

/// Keys 0..keys, inserted by transaction 1; `sealed`: left alone until they are.
fn filled(updates_in_place: bool, keys: i32, sealed: bool) -> Store {
    let schema = schema();
    let options = StoreOptions::new(Arc::clone(&schema), MemoryPool::unlimited());
    let mut store = Store::new(StoreOptions { updates_in_place, ..options });
    for from in (0..keys).step_by(4_096) {
        store.insert(&snapshot(1), &rows(&schema, from..keys.min(from + 4_096))).unwrap();
    }
    if sealed {
        store.close_tail();
    }
    let oldest = Timestamp(if sealed { 10 } else { 0 });
    while store.maintain(&Horizon { oldest, outcomes: &Committed }, 10_000).more {}
    store
}

/// Updates of random keys below `keys`, each found by its key, settled, and freed `behind` transactions later.
fn update(store: &mut Store, transactions: std::ops::Range<u64>, keys: i32, attributes: &[u16], behind: u64) {
    let desired: Arc<[AttributeId]> = attributes.iter().copied().map(AttributeId).collect();
    let mut random = SeededRandom::new(transactions.start);
    for transaction in transactions {
        ACTIVE.store(transaction, Ordering::Relaxed);
        let key = Value::Int32(random.below(keys as u64) as i32);
        let predicate = Predicate::new([Condition { attribute: KEY, test: Test::Compare(Comparison::Equal, key) }]);
        let request = ReadRequest { predicate, desired: Arc::clone(&desired), order: None };
        let mut cursor = store.open_cursor(&request).unwrap();
        let gateway = store.next_batch(&snapshot(transaction), &mut cursor).unwrap().unwrap();
        store.close_cursor(cursor);
        let written = store.update(&snapshot(transaction), &gateway.addresses, &desired, &gateway.batch).unwrap();
        assert_eq!(written.rows, 1);
        ACTIVE.store(0, Ordering::Relaxed);
        let oldest = Timestamp(transaction - behind.min(transaction));
        store.maintain(&Horizon { oldest, outcomes: &Committed }, 100);
    }
}

/// Time this thread was on a core: other work on the machine does not count.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// What the updates do: name, keys in the store, keys that are updated, attributes, how far the oldest reader is back.
type Kind = (&'static str, i32, i32, &'static [u16], u64);

const KINDS: [Kind; 5] = [
    ("one integer of 1,000 hot rows", 60_000, 1_000, &[1], 1),
    ("one integer of 60,000 rows", 60_000, 60_000, &[1], 1),
    ("two attributes of 60,000 rows", 60_000, 60_000, &[1, 2], 1),
    ("one integer of a million rows", 1 << 20, 1 << 20, &[1], 1),
    ("one integer of 1,000 hot rows, a reader 1,000 behind", 60_000, 1_000, &[1], 1_000),
];

/// Transactions before this one are of the preparation.
const FIRST: u64 = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    if let Some(count) = number("--count") {
        let (_, keys, updated, attributes, behind) = KINDS[0];
        let mut store = filled(number("--in-place") != Some(0), keys, false);
        update(&mut store, FIRST..FIRST + count, updated, attributes, behind);
        return;
    }
    let tiny = arguments.iter().any(|argument| argument == "--test");
    let (rounds, count) = if tiny { (1, 200) } else { (4, 200_000) };
    for (name, keys, updated, attributes, behind) in KINDS {
        let (keys, updated) = if tiny { (1_000, updated.min(1_000)) } else { (keys, updated) };
        let mut stores = [true, false].map(|in_place| filled(in_place, keys, keys >= 1 << 20));
        for round in 0..rounds {
            for (store, way) in stores.iter_mut().zip(["in place", "new version"]) {
                let start = cpu_nanos();
                let first = FIRST + round * count;
                update(store, first..first + count, updated, attributes, behind);
                let elapsed = (cpu_nanos() - start) as f64 / count as f64;
                println!("{name:<54} {way:<12} round {round} {elapsed:>8.0} ns/update");
            }
        }
        for store in stores {
            let statistics = store.statistics();
            let (rows, bytes) = (statistics.rows_total, statistics.bytes);
            let counters = statistics.counters;
            println!("    {} of {} in place, {rows} rows, {bytes} bytes", counters.updated_in_place, counters.updated);
        }
    }
}
