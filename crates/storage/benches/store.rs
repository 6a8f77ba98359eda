//! What the inside of a partition costs: `cargo bench -p eris-storage`. Prints one line per measurement and a hash of
//! the results; `--test` runs it with tiny inputs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use eris_storage::{
    AttachCursor, Attribute, AttributeId, Batch, COLUMN, ColumnBuilder, Comparison, Condition, ContainerId, DataType,
    Horizon, IndexDefinition, IndexId, IndexKind, Layout, LayoutMember, Outcome, Outcomes, PhysicalLayout, Predicate,
    Progress, ROW_STATIC, ReadRequest, Schema, SchemaVersion, SealedSegment, Snapshot, StatementNumber, Store,
    StoreOptions, Test, Timestamp, TransactionId, Value, Values,
};
use std::hint::black_box;
use std::sync::Arc;

/// Transaction 1 has committed at 1, others at their own number.
struct Committed;

impl Outcomes for Committed {
    fn outcome(&self, transaction: TransactionId, _statement: StatementNumber) -> Outcome {
        Outcome::Committed(Timestamp(transaction.0))
    }
}

fn snapshot(transaction: u64) -> Snapshot<'static> {
    Snapshot {
        visible: Timestamp(transaction.saturating_sub(1)),
        transaction: TransactionId(transaction),
        statement: StatementNumber(1),
        outcomes: &Committed,
    }
}

fn schema(layout: Layout, text_key: bool) -> Arc<Schema> {
    let attribute = |name: &str, data_type| Attribute { name: name.into(), data_type, nullable: false };
    let mut indexes = vec![IndexDefinition {
        id: IndexId(1),
        name: "pk".into(),
        attributes: [AttributeId(0), AttributeId(1)].into(),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    }];
    if text_key {
        let attributes = [AttributeId(4)].into();
        indexes.push(IndexDefinition {
            id: IndexId(2),
            name: "text".into(),
            attributes,
            unique: false,
            primary: false,
            kind: IndexKind::Ordered,
        });
    }
    Arc::new(Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: [
            attribute("order", DataType::Int32),
            attribute("line", DataType::Int32),
            attribute("price", DataType::Decimal { precision: 12, scale: 2 }),
            attribute("date", DataType::Date),
            attribute("number", DataType::Text),
            attribute("comment", DataType::Text),
        ]
        .into(),
        indexes: indexes.into(),
        layout,
        physical: None,
        segment_rows: 1 << 16,
    })
}

fn batch(schema: &Schema, from: i32, rows: i32) -> Batch {
    let mut random = SeededRandom::new(from as u64);
    let mut columns: Vec<ColumnBuilder> =
        schema.attributes.iter().map(|a| ColumnBuilder::with_capacity(a.data_type, rows as usize)).collect();
    for row in from..from + rows {
        columns[0].push_i32(row / 4);
        columns[1].push_i32(row % 4);
        columns[2].push_i64(random.between(0, 1_000_000));
        columns[3].push_i32(random.between(8_000, 10_500) as i32);
        columns[4].push_bytes(format!("{:015}", u64::from(row as u32) * 7919 % 1_000_003).as_bytes());
        columns[5].push_bytes(b"a comment that is a little longer");
    }
    Batch::new(columns.into_iter().map(ColumnBuilder::finish).collect::<Vec<_>>(), rows as usize)
}

fn new_store(schema: &Arc<Schema>) -> Store {
    Store::new(StoreOptions::new(Arc::clone(schema), MemoryPool::unlimited()))
}

/// Time this thread was on a core: other work on the machine does not count.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn measure<T>(name: &str, operations: usize, unit: &str, mut run: impl FnMut() -> T) -> T {
    let start = cpu_nanos();
    let result = run();
    let elapsed = (cpu_nanos() - start) as f64;
    println!("{name:<52} {:>10.1} ns/{unit}", elapsed / operations as f64);
    result
}

fn scan(store: &mut Store, request: &ReadRequest, hash: &mut u64) -> usize {
    let mut cursor = store.open_cursor(request).unwrap().without_addresses();
    let mut rows = 0;
    while let Some(gateway) = store.next_batch(&snapshot(1_000_000), &mut cursor).unwrap() {
        rows += gateway.batch.rows;
        for column in &gateway.batch.columns {
            match &column.values {
                Values::Int64(values) => *hash = hash.wrapping_add(values.iter().sum::<i64>() as u64),
                Values::Int32(values) => {
                    *hash = hash.wrapping_add(values.iter().map(|v| i64::from(*v)).sum::<i64>() as u64);
                }
                other => *hash = hash.wrapping_add(other.len() as u64),
            }
        }
    }
    store.close_cursor(cursor);
    rows
}

fn request(conditions: Vec<Condition>, desired: &[u16]) -> ReadRequest {
    let desired = desired.iter().copied().map(AttributeId).collect();
    ReadRequest { predicate: Predicate::new(conditions), desired, order: None }
}

fn compare(attribute: u16, comparison: Comparison, value: Value) -> Condition {
    Condition { attribute: AttributeId(attribute), test: Test::Compare(comparison, value) }
}

fn bulk(schema: &Arc<Schema>, segments: i32, segment_rows: i32) -> Store {
    let mut store = new_store(schema);
    for segment in 0..segments {
        let rows = batch(schema, segment * segment_rows, segment_rows);
        let name = format!("{:?}: build sealed segment", schema.layout);
        let sealed =
            measure(&name, rows.rows, "row", || SealedSegment::build(schema, &rows, &MemoryPool::unlimited()).unwrap());
        let mut cursor = AttachCursor::default();
        let name = format!("{:?}: attach", schema.layout);
        measure(&name, rows.rows, "row", || {
            while store.attach(&snapshot(1), &sealed, &mut cursor, 1_000).unwrap() == Progress::More {}
        });
    }
    while store.maintain(&Horizon { oldest: Timestamp(10), outcomes: &Committed }, 10_000).more {}
    store
}

fn point_reads(store: &mut Store, name: &str, keys: i32, reads: usize, hash: &mut u64) {
    let desired: Arc<[AttributeId]> = [AttributeId(2), AttributeId(3), AttributeId(4)].into();
    let mut random = SeededRandom::new(3);
    measure(&format!("{name}: point read of 3 attributes"), reads, "read", || {
        for _ in 0..reads {
            let key = random.below(keys as u64) as i32;
            let request = ReadRequest {
                predicate: Predicate::new([
                    compare(0, Comparison::Equal, Value::Int32(key / 4)),
                    compare(1, Comparison::Equal, Value::Int32(key % 4)),
                ]),
                desired: Arc::clone(&desired),
                order: None,
            };
            let mut cursor = store.open_cursor(&request).unwrap();
            let gateway = store.next_batch(&snapshot(1_000_000), &mut cursor).unwrap().unwrap();
            assert_eq!(gateway.batch.rows, 1);
            *hash = hash.wrapping_add(black_box(gateway).addresses.len() as u64);
            store.close_cursor(cursor);
        }
    });
}

fn updates(store: &mut Store, layout: Layout, keys: i32, count: usize) {
    let desired: Arc<[AttributeId]> = [AttributeId(2)].into();
    let mut random = SeededRandom::new(4);
    measure(&format!("{layout:?}: update by key, settle, vacate"), count, "update", || {
        for n in 0..count as u64 {
            let key = random.below(keys as u64) as i32;
            let transaction = 1_000_000 + n;
            let request = ReadRequest {
                predicate: Predicate::new([
                    compare(0, Comparison::Equal, Value::Int32(key / 4)),
                    compare(1, Comparison::Equal, Value::Int32(key % 4)),
                ]),
                desired: Arc::clone(&desired),
                order: None,
            };
            let mut cursor = store.open_cursor(&request).unwrap();
            let gateway = store.next_batch(&snapshot(transaction), &mut cursor).unwrap().unwrap();
            store.close_cursor(cursor);
            store.update(&snapshot(transaction), &gateway.addresses, &desired, &gateway.batch).unwrap();
            store.maintain(&Horizon { oldest: Timestamp(transaction), outcomes: &Committed }, 100);
        }
    });
}

/// Price and date in columns and everything in rows beside them: scans like columns, point reads like rows? And what
/// the rebuild costs.
fn several_paths(segments: i32, segment_rows: i32, reads: usize, hash: &mut u64) {
    let schema = schema(Layout::Row, false);
    let rows = segments as usize * segment_rows as usize;
    let mut store = bulk(&schema, segments, segment_rows);
    let member = |module: &str, ids: &[u16]| LayoutMember {
        module: module.into(),
        attributes: ids.iter().copied().map(AttributeId).collect(),
    };
    let layouts = [
        ("price, date in columns, all in rows", vec![member(COLUMN, &[2, 3]), member(ROW_STATIC, &[0, 1, 2, 3, 4, 5])]),
        ("each in a column of its own", (0..6).map(|id| member(COLUMN, &[id])).collect()),
    ];
    let some = request(vec![compare(3, Comparison::Less, Value::Date(8_250))], &[2]);
    let two = vec![compare(3, Comparison::Less, Value::Date(9_000)), compare(0, Comparison::NotEqual, Value::Int32(7))];
    let both = request(two, &[2, 3]);
    for (name, members) in layouts {
        let layout = PhysicalLayout::new(members);
        store.set_layout(layout.clone(), layout).unwrap();
        measure(&format!("{name}: rebuild"), rows, "row", || {
            while store.maintain(&Horizon { oldest: Timestamp(10), outcomes: &Committed }, 10_000).more {}
        });
        for (name, request) in [("10 % of one column", &some), ("two conditions", &both)].repeat(2) {
            measure(&format!("several paths: scan {name}"), rows, "row", || scan(&mut store, request, hash));
        }
        point_reads(&mut store, "several paths", rows as i32, reads, hash);
        point_reads(&mut store, "several paths", 1_000, reads, hash);
    }
}

fn main() {
    let tiny = std::env::args().any(|argument| argument == "--test");
    let (segments, segment_rows, reads) = if tiny { (2, 3_000, 100) } else { (16, 1 << 16, 500_000) };
    let rows = segments as usize * segment_rows as usize;
    let mut hash = 0;
    for layout in [Layout::Column, Layout::Row] {
        let schema = schema(layout, true);
        let mut store = bulk(&schema, segments, segment_rows);
        let all = request(vec![], &[2]);
        let some = request(vec![compare(3, Comparison::Less, Value::Date(8_250))], &[2]);
        let two =
            vec![compare(3, Comparison::Less, Value::Date(9_000)), compare(0, Comparison::NotEqual, Value::Int32(7))];
        let both = request(two, &[2, 3]);
        let text =
            request(vec![compare(5, Comparison::Equal, Value::Text("no such comment at all anywhere".into()))], &[2]);
        for round in 0..2 {
            for (name, request) in [
                ("one column", &all),
                ("10 % of one column", &some),
                ("two conditions", &both),
                ("text equality", &text),
            ] {
                measure(&format!("{layout:?}: scan {round} {name}"), rows, "row", || {
                    scan(&mut store, request, &mut hash)
                });
            }
        }
        point_reads(&mut store, &format!("{layout:?}"), rows as i32, reads, &mut hash);
        // The same instructions without the cache misses.
        point_reads(&mut store, &format!("{layout:?}"), 1_000, reads, &mut hash);
        updates(&mut store, layout, rows as i32, reads / 5);
        println!("{:?}", store.statistics());
    }
    for layout in [Layout::Default, Layout::Column] {
        let schema = schema(layout, false);
        let mut store = new_store(&schema);
        let inserted = rows / 4;
        measure(&format!("{layout:?}: insert one by one"), inserted, "row", || {
            for row in 0..inserted as i32 {
                store.insert(&snapshot(1), &batch(&schema, row, 1)).unwrap();
            }
        });
        measure(&format!("{layout:?}: settle and seal"), inserted, "row", || {
            while store.maintain(&Horizon { oldest: Timestamp(10), outcomes: &Committed }, 1_000).more {}
        });
        point_reads(&mut store, &format!("{layout:?}"), inserted as i32, reads, &mut hash);
    }
    several_paths(segments, segment_rows, reads, &mut hash);
    println!("hash {hash:016x}");
}
